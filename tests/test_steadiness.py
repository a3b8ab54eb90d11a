"""From when on calls that come again are a loop: in code, and in settings."""

from typing import Any

import pytest

from flyball import ConfigError, SettingError, Settings, tool
from flyball.steadiness import SETTINGS, Thresholds


def test_the_usual_ones() -> None:
    assert Thresholds.of(Settings({})) == Thresholds(same=3, rounds=2, longest=4, failures=2)


def test_every_setting_is_read() -> None:
    settings = Settings({"repetition": {"same": 4, "rounds": 3, "longest": "5", "failures": 6}})
    assert Thresholds.of(settings) == Thresholds(same=4, rounds=3, longest=5, failures=6)
    assert set(SETTINGS) == {f"repetition.{name}" for name in ("same", "rounds", "longest", "failures")}


def test_none_looks_for_no_such_loop() -> None:
    assert Thresholds.of(Settings({"repetition.same": "none", "repetition.failures": "None"})).same is None


def test_the_environment_counts_first() -> None:
    settings = Settings.load(environ={"FLYBALL_REPETITION__SAME": "7"})
    assert Thresholds.of(settings).same == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"same": "many"}, "repetition.same .*found 'many'; expected a whole number, or none"),
        ({"same": 1}, "repetition.same .*found 1; expected an int of at least 2"),
        ({"same": 17}, "repetition.same .*found 17; expected at most 16"),
        ({"longest": "none"}, "repetition.longest .*expected an int of at least 2"),
        ({"longest": 9}, "repetition.longest .*expected at most 16 calls in all"),
        ({"rounds": 5}, "repetition.rounds .*expected at most 16 calls in all"),
        ({"failures": True}, "repetition.failures .*expected a whole number"),
    ],
)
def test_a_wrong_setting_is_named_with_its_source(given: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=words):
        Thresholds.of(Settings({"repetition": given}))


@pytest.mark.parametrize("wrong", [{"same": 1}, {"same": 2.5}, {"rounds": 0}, {"longest": None}, {"same": 17}])
def test_so_is_a_wrong_one_in_code(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"thresholds, {next(iter(wrong))}"):
        Thresholds(**wrong)


def test_a_poll_that_may_not_be_called_again_is_refused() -> None:
    with pytest.raises(ConfigError, match="poll"):

        @tool(poll=True, duplicates="reject")
        def status() -> str: ...
