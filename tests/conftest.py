"""What every test relies on: settings are empty unless a test gives them, and nothing depends on how fast it runs."""

import os

import hypothesis


def pytest_configure() -> None:
    for name in [name for name in os.environ if name.startswith("FLYBALL_")]:
        del os.environ[name]
    os.environ["FLYBALL_CONFIG"] = os.devnull
    hypothesis.settings.register_profile("flyball", deadline=None, print_blob=True)
    hypothesis.settings.load_profile("flyball")
