"""What every test relies on: settings are empty unless a test gives them, and nothing depends on how fast it runs."""

import os

import hypothesis

from flyball.testing.plugin import clear_settings


def pytest_configure() -> None:
    clear_settings(os.environ)
    hypothesis.settings.register_profile("flyball", deadline=None, print_blob=True)
    hypothesis.settings.load_profile("flyball")
