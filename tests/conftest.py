"""What every test relies on: settings are empty unless a test gives them, and nothing depends on how fast it runs."""

import os

import hypothesis

from flyball.testing.plugin import clear_settings


def pytest_configure() -> None:
    clear_settings(os.environ)
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("flyball", deadline=None, print_blob=True, suppress_health_check=slow)
    hypothesis.settings.load_profile("flyball")
