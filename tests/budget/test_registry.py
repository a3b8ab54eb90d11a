import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import (
    BudgetSpec,
    ConfigError,
    IterationBudget,
    IterationBudgetRegistry,
    Limits,
    SettingError,
    Unit,
    UnknownBudget,
)
from flyball.settings import Settings


def registry(**settings: object) -> IterationBudgetRegistry:
    return IterationBudgetRegistry(settings=settings)


def from_file(folder: Path, text: str) -> IterationBudgetRegistry:
    (folder / "flyball.toml").write_text(text)
    return IterationBudgetRegistry(settings=Settings.load(folder, {}))


class TestSeed000:
    def test_the_two_budgets_of_the_seed_are_there(self) -> None:
        assert registry().create("conversation_turns").ceiling == 25
        assert registry().create("chain_depth").ceiling == 3
        assert registry(max_turns=60).create("conversation_turns").ceiling == 50
        assert registry(max_chain_depth=0).create("chain_depth").ceiling == 1

    def test_a_budget_is_found_by_its_name_and_by_its_spec(self) -> None:
        budgets = registry()
        assert "conversation_turns" in budgets
        assert "my_budget" not in budgets
        spec = budgets.register("my_budget", default=5)
        assert "my_budget" in budgets
        assert spec in budgets
        assert None not in budgets

    def test_a_new_budget_is_registered_once_and_created_per_run(self) -> None:
        budgets = registry()
        budgets.register("my_budget", default=5, min=1, max=20, setting="my_budget_max")
        first, second = budgets.create("my_budget"), budgets.create("my_budget")
        while not first.exceeded:
            first.increment()
        assert (first.current, second.current) == (5, 0)
        assert first.to_response_flag() == "max_my_budget_reached"

    def test_the_override_goes_before_the_setting_before_the_default(self) -> None:
        budgets = registry(my_budget_max=7)
        budgets.register("my_budget", default=5, min=1, max=20, setting="my_budget_max")
        assert budgets.create("my_budget", 0, 9).ceiling == 9
        assert budgets.create("my_budget").ceiling == 7
        budgets.register("my_budget", default=5, min=1, max=20)
        assert budgets.create("my_budget").ceiling == 5

    def test_the_clamp_is_not_negotiable(self) -> None:
        budgets = registry(my_budget_max=-3)
        budgets.register("my_budget", default=5, min=1, max=20, setting="my_budget_max")
        assert budgets.create("my_budget").ceiling == 1
        assert budgets.create("my_budget", ceiling=99).ceiling == 20

    def test_a_budget_registered_again_replaces_the_first(self) -> None:
        budgets = registry()
        budgets.register("conversation_turns", default=2)
        assert budgets.create("conversation_turns").ceiling == 2
        assert registry().create("conversation_turns").ceiling == 25

    def test_a_start_is_taken_along(self) -> None:
        assert registry().create("conversation_turns", start=24).remaining == 1


BUILT_IN = {
    "conversation_turns": (25, 1, 50, "max_turns"),
    "agent_iterations": (90, 1, 500, "max_iterations"),
    "child_iterations": (50, 1, 250, "delegation.max_iterations"),
    "chain_depth": (3, 1, 10, "max_chain_depth"),
    "tool_calls": (None, 0, None, "max_tool_calls"),
    "reflections": (4, 0, 20, "max_reflections"),
    "nudges": (3, 0, 20, "max_nudges"),
    "retries": (10, 0, 100, "max_retries"),
    "tokens": (None, 0, None, "max_tokens"),
    "context_tokens": (200_000, 0, None, "max_context_tokens"),
    "cost_usd": (None, 0, None, "max_usd"),
    "seconds": (3_600, 1, 86_400, "max_seconds"),
    "child_seconds": (600, 1, 86_400, "delegation.child_timeout_seconds"),
    "children": (16, 0, 1_000, "delegation.max_children"),
    "depth": (2, 0, 8, "delegation.max_depth"),
    "report_tokens": (4_000, 32, None, "max_report_tokens"),
    "report_seconds": (30, 1, None, "max_report_seconds"),
}


def test_the_built_in_budgets_are_those_of_the_design() -> None:
    assert {spec.name: (spec.default, spec.min, spec.max, spec.setting) for spec in registry()} == BUILT_IN


def test_a_counter_knows_its_family_its_unit_and_how_far_it_may_be_extended() -> None:
    tree = IterationBudget("tree", 9)
    turns = registry().create("conversation_turns", parent=tree)
    assert turns.consume()
    assert tree.used == 1
    assert turns.extend(99, by="a person") == 25
    cost = registry().create("cost_usd", ceiling=4.3, beside=turns)
    assert (cost.ceiling, cost.unit, cost.maximum) == (4_300_000_000, Unit.USD, None)


def test_a_start_is_in_the_same_unit_as_the_ceiling() -> None:
    cost = registry().create("cost_usd", start=2.5, ceiling=4.3)
    assert (cost.used, cost.remaining) == (2_500_000_000, 1_800_000_000)
    with pytest.raises(ConfigError) as caught:
        registry().create("conversation_turns", start=1.5)
    assert (caught.value.where, caught.value.found) == ("budget 'conversation_turns', start", 1.5)


def test_a_counter_joins_the_lock_beside_it() -> None:
    turns = registry().create("conversation_turns")
    assert registry().create("tokens", beside=turns).lock is turns.lock


@pytest.mark.parametrize("name", [None, [], 3])
def test_what_is_no_name_is_an_unknown_budget(name: Any) -> None:
    with pytest.raises(UnknownBudget) as caught:
        registry().create(name)
    assert caught.value.code == "budget_unknown"


@pytest.mark.parametrize("settings", [5, "x", []])
def test_settings_must_be_a_mapping(settings: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        IterationBudgetRegistry(settings=settings)
    assert (caught.value.where, caught.value.found) == ("settings", settings)


def test_a_registry_can_be_changed_while_it_is_read() -> None:
    budgets = registry()
    for spec in budgets:
        budgets.register(f"{spec.name}_again", default=1)
    assert len(list(budgets)) == 2 * len(BUILT_IN)


def test_a_budget_that_is_registered_again_after_use_has_its_new_default_and_bounds() -> None:
    budgets = registry()
    assert budgets.create("retries").ceiling == 10
    assert budgets.create("retries", ceiling=500).ceiling == 100
    budgets.register("retries", default=20, max=200)
    assert budgets.create("retries").ceiling == 20
    assert budgets.create("retries", ceiling=500).ceiling == 200


def test_counters_of_one_ceiling_count_separately() -> None:
    budgets = registry()
    first, second = budgets.create("retries"), budgets.create("retries")
    assert first.consume(3)
    assert (first.used, second.used, Limits().open(budgets).budgets["retries"].used) == (3, 0, 0)


def test_time_is_explained_but_not_counted() -> None:
    assert registry(max_seconds=0.5).explain("seconds").value == 1.0
    assert registry(max_seconds="90.5").explain("seconds").value == 90.5
    with pytest.raises(ConfigError, match="budget 'seconds'"):
        registry().create("seconds")


class TestNoCeiling:
    @pytest.mark.parametrize("value", [None, "none", " None "])
    def test_a_setting_may_say_that_there_is_no_ceiling(self, value: object) -> None:
        assert registry(max_context_tokens=value).create("context_tokens").ceiling is None

    def test_a_setting_that_is_no_number_is_told_that_it_may_be_none(self) -> None:
        with pytest.raises(SettingError) as caught:
            registry(max_tokens="off").create("tokens")
        assert (caught.value.where, caught.value.found) == ("max_tokens", "off")
        assert "none" in caught.value.expected

    def test_code_may_say_that_there_is_no_ceiling(self) -> None:
        assert registry(max_tokens=5).create("tokens", ceiling=None).ceiling is None

    def test_no_ceiling_is_refused_where_there_is_a_highest(self) -> None:
        with pytest.raises(ConfigError, match="50") as caught:
            registry().create("conversation_turns", ceiling=None)
        assert (caught.value.where, caught.value.found) == ("budget 'conversation_turns', ceiling", None)
        with pytest.raises(SettingError, match="50") as caught:
            registry(max_turns="none").create("conversation_turns")
        assert (caught.value.where, caught.value.found) == ("max_turns", "none")


class TestBadSettings:
    @pytest.mark.parametrize("found", ["", "many", "4.5", 4.5, True, [], {"a": 1}, math.nan])
    def test_a_setting_that_does_not_parse_is_an_error_and_never_a_default(self, found: object) -> None:
        with pytest.raises(SettingError) as caught:
            registry(max_turns=found).create("conversation_turns")
        assert (caught.value.code, caught.value.where) == ("setting_invalid", "max_turns")
        assert repr(caught.value.found) == repr(found)

    def test_a_bad_setting_of_a_file_names_the_file_and_line(self, tmp_path: Path) -> None:
        budgets = from_file(tmp_path, "# mine\n\n[delegation]\nmax_iterations = 'lots'\n")
        with pytest.raises(SettingError) as caught:
            budgets.create("child_iterations")
        error = caught.value
        assert (error.where, error.source, error.found) == ("delegation.max_iterations", "flyball.toml:4", "lots")
        assert budgets.create("conversation_turns").ceiling == 25

    def test_a_bad_setting_of_the_environment_names_the_variable(self) -> None:
        budgets = IterationBudgetRegistry(settings=Settings.load(Path("/"), {"FLYBALL_MAX_TURNS": "x"}))
        with pytest.raises(SettingError) as caught:
            budgets.create("conversation_turns")
        assert "FLYBALL_MAX_TURNS" in caught.value.source
        assert caught.value.found == "x"


class TestClampInSettings:
    def test_a_clamp_narrows_setting_code_and_default(self, tmp_path: Path, snapshot: Callable[..., None]) -> None:
        budgets = from_file(tmp_path, "max_turns = 40\n[clamp]\nmax_turns = 20\nmax_iterations = 30\n")
        assert budgets.create("conversation_turns").ceiling == 20
        assert budgets.create("conversation_turns", ceiling=45).ceiling == 20
        assert budgets.create("agent_iterations").ceiling == 30
        assert budgets.create("conversation_turns").extend(99, by="anybody") == 0
        explained = budgets.explain("conversation_turns")
        assert (explained.value, explained.source, explained.is_clamped) == (20, "flyball.toml:1", True)
        snapshot(explained)

    def test_a_clamp_gives_a_ceiling_to_what_had_none(self, tmp_path: Path) -> None:
        budgets = from_file(tmp_path, "[clamp]\nmax_tokens = 1_000\n")
        assert budgets.create("tokens").ceiling == 1_000
        assert (budgets.explain("tokens").value, budgets.explain("tokens").is_clamped) == (1_000, True)
        with pytest.raises(ConfigError, match=r"1,000.*flyball\.toml:2") as caught:
            budgets.create("tokens", ceiling=None)
        assert (caught.value.where, caught.value.found) == ("budget 'tokens', ceiling", None)

    def test_the_environment_may_narrow_what_the_file_says_and_never_widen_it(self, tmp_path: Path) -> None:
        (tmp_path / "flyball.toml").write_text("[clamp]\nmax_turns = 20\n")
        narrower = Settings.load(tmp_path, {"FLYBALL_CLAMP__MAX_TURNS": "10"})
        assert IterationBudgetRegistry(settings=narrower).create("conversation_turns").ceiling == 10
        wider = Settings.load(tmp_path, {"FLYBALL_CLAMP__MAX_TURNS": "50"})
        with pytest.raises(SettingError) as caught:
            IterationBudgetRegistry(settings=wider).create("conversation_turns")
        assert "FLYBALL_CLAMP__MAX_TURNS" in caught.value.source
        assert (caught.value.where, caught.value.found) == ("clamp.max_turns", "50")

    def test_a_clamp_of_a_nested_key_is_nested_too(self, tmp_path: Path) -> None:
        budgets = from_file(tmp_path, "[clamp.delegation]\nmax_iterations = 9\n")
        assert budgets.create("child_iterations").ceiling == 9

    @pytest.mark.parametrize("found", [51, 0, "x"])
    def test_a_clamp_that_would_widen_or_is_no_number_is_refused(self, tmp_path: Path, found: object) -> None:
        budgets = from_file(tmp_path, f"[clamp]\nmax_turns = {found!r}\n")
        with pytest.raises(SettingError) as caught:
            budgets.create("conversation_turns")
        error = caught.value
        assert (error.where, error.source, error.found) == ("clamp.max_turns", "flyball.toml:2", found)


class TestRegister:
    @pytest.mark.parametrize(
        ("arguments", "argument", "fact"),
        [
            ({"default": 5, "min": 9, "max": 1}, "max", "9"),
            ({"default": 5, "min": 6}, "default", "6"),
            ({"default": 5, "max": 4}, "default", "4"),
            ({"default": None, "max": 4}, "default", "4"),
            ({"default": 1, "max": 0}, "default", "0"),
            ({"default": 5, "min": -1}, "min", "0"),
            ({"default": 5, "min": None}, "min", ""),
            ({"default": True}, "default", ""),
            ({"default": "5"}, "default", ""),
            ({"default": 5.5}, "default", ""),
            ({"default": 5, "setting": ""}, "setting", ""),
            ({"default": 5, "unit": "euro"}, "unit", "count, usd, seconds"),
        ],
    )
    def test_a_budget_of_nonsense_is_refused_and_not_registered(
        self, arguments: dict[str, Any], argument: str, fact: str
    ) -> None:
        budgets = registry()
        with pytest.raises(ConfigError) as caught:
            budgets.register("mine", **arguments)
        assert caught.value.where == f"budget 'mine', {argument}"
        assert caught.value.found is arguments[argument]
        assert fact in caught.value.expected
        assert "mine" not in {spec.name for spec in budgets}

    @pytest.mark.parametrize("name", ["", " ", None])
    def test_a_budget_needs_a_name(self, name: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            registry().register(name, default=5)
        assert (caught.value.where, caught.value.found) == ("budget name", name)

    def test_units_may_be_named_by_their_word(self) -> None:
        spec = registry().register("fuel", default=1.5, unit="usd")
        assert spec == BudgetSpec("fuel", 1.5, unit=Unit.USD)


@pytest.mark.parametrize("found", [True, "9", 1.5, math.nan, []])
def test_a_ceiling_that_is_no_number_is_a_config_error(found: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        registry().create("conversation_turns", ceiling=found)
    assert caught.value.where == "budget 'conversation_turns', ceiling"
    assert caught.value.found is found


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownBudget, match="conversation_turns") as caught:
        registry().create("conversation_turn")
    assert caught.value.name == "conversation_turn"
    with pytest.raises(UnknownBudget, match="agent_iterations, ") as caught:
        registry().explain("zzz")
    assert set(caught.value.known) == set(BUILT_IN)


class TestExplain:
    def test_an_explanation_tells_value_source_and_what_was_clamped(self, snapshot: Callable[..., None]) -> None:
        budgets = registry(max_turns=99, max_usd="4.30")
        snapshot(budgets.explain("conversation_turns"), "clamped")
        snapshot(budgets.explain("cost_usd"), "setting")
        snapshot(budgets.explain("retries"), "default")
        snapshot(budgets.explain("retries", 5), "code")
        assert budgets.explain("conversation_turns").is_clamped
        assert not budgets.explain("retries").is_clamped

    def test_a_clamped_setting_or_ceiling_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        budgets = registry(max_turns=99)
        with caplog.at_level(logging.WARNING):
            budgets.explain("conversation_turns")
            assert caplog.messages == []
            for _ in range(3):
                budgets.create("conversation_turns")
                budgets.create("agent_iterations", ceiling=10_000)
        given = budgets.explain("agent_iterations", 10_000)
        assert caplog.messages == [str(budgets.explain("conversation_turns")), str(given)]

    def test_a_clamped_setting_of_time_is_logged_once_too(self, caplog: pytest.LogCaptureFixture) -> None:
        assert registry(max_seconds=999_999).resolve("seconds").value == 86_400
        assert len(caplog.messages) == 1

    def test_a_default_that_a_clamp_narrows_on_purpose_is_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        assert IterationBudgetRegistry(settings={"clamp.max_turns": 20}).create("conversation_turns").ceiling == 20
        assert caplog.messages == []

    def test_an_absurd_number_is_refused_and_not_a_crash(self) -> None:
        assert registry(max_turns=16**5_000).create("conversation_turns").ceiling == 50


def test_without_settings_it_reads_environment_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 30\nmax_retries = 3\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLYBALL_CONFIG")
    monkeypatch.setenv("FLYBALL_MAX_TURNS", "31")
    budgets = IterationBudgetRegistry()
    assert budgets.create("conversation_turns").ceiling == 31
    assert budgets.create("retries").ceiling == 3


numbers = st.integers(-(10**6), 10**6)


@given(
    low=st.integers(0, 100),
    width=st.none() | st.integers(0, 100),
    default=st.integers(0, 200),
    setting=st.none() | numbers,
    override=st.none() | numbers,
    clamp=st.none() | st.integers(0, 200),
)
def test_every_ceiling_is_the_first_that_was_given_and_inside_every_bound(
    low: int, width: int | None, default: int, setting: int | None, override: int | None, clamp: int | None
) -> None:
    high = None if width is None else low + width
    default = max(low, default if high is None else min(default, high))
    given = {"mine": setting} if setting is not None else {}
    narrowed = {"clamp.mine": clamp} if clamp is not None else {}
    budgets = IterationBudgetRegistry(settings={**given, **narrowed})
    budgets.register("mine", default=default, min=low, max=high, setting="mine")
    if clamp is not None and not (low <= clamp and (high is None or clamp <= high)):
        with pytest.raises(SettingError, match=r"clamp\.mine"):
            budgets.create("mine")
        return
    most = min(bound for bound in (math.inf, high, clamp) if bound is not None)
    asked = next(value for value in (override, setting, default) if value is not None)
    budget = budgets.create("mine") if override is None else budgets.create("mine", ceiling=override)
    assert budget.ceiling == max(low, min(asked, most))
