"""Rules about several prior tools, about what a limit denies, and about completion."""

from typing import Any, ClassVar

import pytest

from flyball.errors import ConfigError
from flyball.progress import Done
from flyball.tool_rules import RequirePriorTool, RequireToolUse, ToolRules, ToolRuleTracker


def begin(*rules: Any, done: str = "") -> ToolRuleTracker:
    tracker = ToolRules.of(list(rules)).begin()
    for tool in done.split():
        tracker.note(Done(tool, {}, None))
    return tracker


class TestPriorTools:
    rule: ClassVar[dict[str, Any]] = {"tool": "publish", "prior_tools": ["write", "review"]}

    @pytest.mark.parametrize("done", ["", "write", "review", "write write"])
    def test_a_tool_waits_for_all_of_them(self, done: str) -> None:
        denial = begin(self.rule, done=done).denial("publish", {})
        assert denial is not None
        assert all((tool in denial) is (tool not in done) for tool in ("write", "review"))

    @pytest.mark.parametrize("done", ["write review", "review write"])
    def test_they_may_come_in_any_order(self, done: str) -> None:
        assert begin(self.rule, done=done).denial("publish", {}) is None

    def test_parameters_hold_for_each_of_them(self) -> None:
        tracker = begin({**self.rule, "with_parameters": {"page": 1}})
        for tool, page in (("write", 1), ("review", 2)):
            tracker.note(Done(tool, {"page": page}, None))
        assert "review with page = 1" in (tracker.denial("publish", {}) or "")

    @pytest.mark.parametrize(
        "rule",
        [
            {"tool": "publish", "prior_tools": []},
            {"tool": "publish", "prior_tools": "write"},
            {"tool": "publish", "prior_tools": ["write", "publish"]},
            {"tool": "publish", "prior_tools": ["write"], "require_prior_tool": "review"},
        ],
    )
    def test_a_wrong_list_is_refused_with_its_place(self, rule: Any) -> None:
        with pytest.raises(ConfigError, match=r"tool_rules\[0\].prior_tools"):
            ToolRules.of([rule])

    def test_tools_that_wait_for_each_other_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="waits for the next"):
            ToolRules.of([self.rule, {"tool": "review", "require_prior_tool": "publish"}])

    def test_a_tool_that_is_not_offered_is_named_by_its_place(self) -> None:
        with pytest.raises(ConfigError, match=r"prior_tools\[1\]"):
            ToolRules.of([self.rule]).check_offered(["publish", "write"])


class TestDeny:
    rule: ClassVar[dict[str, Any]] = {"limited_tools": ["search"], "max_calls": 1, "then_require_one_of": ["note"]}

    def test_only_the_limited_tools_are_denied_by_default(self) -> None:
        tracker = begin(self.rule, done="search")
        assert (tracker.denial("search", {}) is None, tracker.denial("read", {}) is None) == (False, True)

    def test_all_tools_but_the_required_ones_are_denied_on_request(self) -> None:
        tracker = begin({**self.rule, "deny": "all"}, done="search")
        denied = [tracker.denial(tool, {}) is not None for tool in ("search", "read", "note")]
        assert denied == [True, True, False]

    def test_nothing_is_denied_before_the_limit_and_after_the_required_call(self) -> None:
        rule = {**self.rule, "deny": "all"}
        assert begin(rule).denial("read", {}) is None
        assert begin(rule, done="search note").denial("read", {}) is None

    def test_another_word_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="deny"):
            ToolRules.of([{**self.rule, "deny": "some"}])


class TestCompletion:
    @pytest.mark.parametrize(
        ("rule", "done", "blocks"),
        [
            ({"block_until_tool": "login"}, "", False),
            ({"block_until_tool": "login", "blocks_completion": True}, "", True),
            ({"block_until_tool": "login", "blocks_completion": True}, "login", False),
            ({"tool": "a", "prior_tools": ["b", "c"], "blocks_completion": True}, "b", True),
            ({"tool": "a", "prior_tools": ["b", "c"], "blocks_completion": True}, "b c", False),
            ({"require_tool_use": True}, "", True),
            ({"require_tool_use": True}, "anything", False),
            ({"require_tool_use": ["a", "b"]}, "c", True),
            ({"require_tool_use": ["a", "b"]}, "b", False),
        ],
    )
    def test_a_run_may_complete_once_its_rules_are_met(self, rule: Any, done: str, blocks: bool) -> None:
        assert (begin(rule, done=done).completion_denial() is not None) is blocks

    @pytest.mark.parametrize("value", [False, [], "a", 1])
    def test_require_tool_use_is_true_or_a_list(self, value: Any) -> None:
        with pytest.raises(ConfigError, match="require_tool_use"):
            ToolRules.of([{"require_tool_use": value}])

    def test_blocks_completion_is_true_or_false(self) -> None:
        with pytest.raises(ConfigError, match="blocks_completion"):
            ToolRules.of([{"block_until_tool": "login", "blocks_completion": "yes"}])

    def test_tools_without_which_a_run_cannot_complete_are_found(self) -> None:
        gate = RequirePriorTool(tool="a", prior_tools=["b", "c"], blocks_completion=True)
        rules = ToolRules((gate, RequireToolUse(require_tool_use=["d", "e"])))
        assert rules.unavailable(["a", "b"]) == ("c", "d", "e")
        assert rules.unavailable(["a", "b", "c", "e"]) == ()

    def test_a_rule_that_fails_does_not_let_the_run_complete(self) -> None:
        class Broken(RequireToolUse):
            def begin(self) -> Any:
                raise ValueError("broken")

        tracker = ToolRules((Broken(require_tool_use=True),)).begin()
        assert "ValueError" in (tracker.completion_denial() or "")
