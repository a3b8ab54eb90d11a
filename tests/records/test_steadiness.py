"""From when on calls that come again are a loop: in code, and in settings."""

from typing import Any

import pytest

from flyball import ConfigError, SettingError, Settings, tool
from flyball.steadiness import SETTINGS, Thresholds


def test_thresholds_have_these_defaults() -> None:
    assert Thresholds.of(Settings({})) == Thresholds(same=3, rounds=2, longest=4, failures=2)


def test_every_threshold_is_read_from_the_settings() -> None:
    settings = Settings({"repetition": {"same": 4, "rounds": 3, "longest": "5", "failures": 6}})
    assert Thresholds.of(settings) == Thresholds(same=4, rounds=3, longest=5, failures=6)
    assert set(SETTINGS) == {f"repetition.{name}" for name in ("same", "rounds", "longest", "failures")}


def test_a_threshold_of_none_looks_for_no_such_loop() -> None:
    assert Thresholds.of(Settings({"repetition.same": "none", "repetition.failures": "None"})).same is None


def test_a_threshold_of_the_environment_counts_first() -> None:
    settings = Settings.load(environ={"FLYBALL_REPETITION__SAME": "7"})
    assert Thresholds.of(settings).same == 7


@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"same": "many"}, "none"),
        ({"same": 1}, "2"),
        ({"same": 17}, "16"),
        ({"longest": "none"}, "2"),
        ({"longest": 9}, "16"),
        ({"rounds": 5}, "16"),
        ({"failures": True}, ""),
    ],
)
def test_a_wrong_threshold_in_settings_is_refused_by_its_key(given: dict[str, Any], fact: str) -> None:
    with pytest.raises(SettingError) as caught:
        Thresholds.of(Settings({"repetition": given}))
    [key] = given
    assert (caught.value.code, caught.value.where) == ("setting_invalid", f"repetition.{key}")
    assert fact in caught.value.expected


@pytest.mark.parametrize("wrong", [{"same": 1}, {"same": 2.5}, {"rounds": 0}, {"longest": None}, {"same": 17}])
def test_a_wrong_threshold_in_code_is_refused_by_its_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"thresholds, {next(iter(wrong))}"):
        Thresholds(**wrong)


def test_a_poll_that_may_not_be_called_again_is_refused() -> None:
    with pytest.raises(ConfigError, match="poll"):

        @tool(poll=True, duplicates="reject")
        def status() -> str: ...
