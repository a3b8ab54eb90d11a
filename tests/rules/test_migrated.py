"""Rule files written for Vlt-Bridge act as their comments say, at a quiet, a busy and an extreme moment."""

from pathlib import Path
from typing import Any

import pytest

from flyball import Limits
from flyball.budget.run_budget import TurnBudget
from flyball.message import Message, MessageType, Role
from flyball.outcome import Failure, Outcome, Success
from flyball.progress import Emit, Notice, Order, Point, Progress, SetState
from flyball.request import Call
from flyball.rules import RuleSet, Trigger

HERE = Path(__file__).parent
FILES = sorted([*HERE.glob("migrated/*.toml"), *HERE.glob("examples/*.toml")])
POINTS = {
    Trigger.QUERY_START: Point.RUN_STARTED,
    Trigger.TURN_START: Point.TURN_STARTED,
    Trigger.TURN_END: Point.TURN_ENDED,
    Trigger.TOOL_CALL: Point.TOOL_CALLED,
    Trigger.TOOL_COMPLETE: Point.TOOL_ENDED,
    Trigger.TOOL_FAILURE: Point.TOOL_ENDED,
    Trigger.SESSION_END: Point.RUN_ENDED,
}


class Moment:
    """A moment of a run, with the call or the outcome that a rule may be about."""

    def __init__(
        self,
        number: int,
        turns: int,
        tokens: int,
        context: int,
        calls: int,
        failures: int,
        tool: str,
        text: str,
        seconds: float,
        state: dict[str, Any],
        **metadata: Any,
    ) -> None:
        self.success = _success(tool, text, seconds)
        self.failure = _failure(tool)
        self.call = Call("c", tool, {"q": "steam"})
        results: list[Outcome] = []
        results += [_success(name, "x", 1) for name in ("vault_search", tool)][:calls]
        results += [_success("read", "x", 1)] * (calls - failures - len(results)) + [self.failure] * failures
        done = [outcome.tool for outcome in results if outcome.ok]
        self.progress = Progress(
            "run-1",
            _spend(turns, tokens),
            [Message("run-1", n, 0.0, MessageType.TEXT, Role.USER, "Hello.") for n in range(calls * 3)],
            state,
            metadata,
            turn=turns,
            results=results,
            successes={name: done.count(name) for name in done},
            number=number,
            input_tokens=context,
        )

    def act(self, rules: RuleSet, trigger: Trigger) -> list[Order]:
        """Return the orders of rules that were never evaluated before, and end the moment."""
        subjects = {
            Trigger.TOOL_CALL: self.call,
            Trigger.TOOL_COMPLETE: self.success,
            Trigger.TOOL_FAILURE: self.failure,
            Trigger.SESSION_END: "completed",
        }
        with self.progress.envelope:
            return list(rules.begin()(POINTS[trigger], self.progress, subjects.get(trigger)))


def _spend(turns: int, tokens: int) -> TurnBudget:
    envelope = Limits(turns=10, tokens=1_250, context_tokens=1_000).open()  # 250 tokens are for the report
    envelope.budgets["turns"].increment(turns)
    envelope.budgets["tokens"].increment(tokens)
    return envelope


def _success(tool: str, text: str, seconds: float) -> Success:
    return Success.create("c", tool, seconds, text, text)


def _failure(tool: str) -> Failure:
    return Failure(call_id="c", tool=tool, seconds=1.0, kind="OSError", error="no network")


def quiet() -> Moment:
    return Moment(1, 1, 50, 100, 1, 0, "read", "a" * 200, 0.1, {})


def busy() -> Moment:
    state = {"searches": "3", "session_start": 1, "reminded": "5"}
    user = {"id": "ada", "settings": {"thinking_enabled": True}}
    return Moment(10, 8, 850, 870, 12, 3, "web_search", "b" * 2_500, 6.04, state, user=user, project="steam")


def extreme() -> Moment:
    state = {"searches": 9, "reminded": 39}
    return Moment(40, 10, 990, 980, 60, 9, "Web_search", "", 300.0, state, user="bob")


def summarize(orders: list[Order]) -> object:
    """Return the text, the event or the state that the one order has. None without an order."""
    match orders:
        case []:
            return None
        case [Notice(text=text)]:
            return text
        case [Emit(name=name, data=data)]:
            return data["message"] if name.startswith("log.") else {name: dict(data)}
        case [SetState(key=key, value=value)]:
            return {key: value}
        case _:
            return orders


ITERATION = "Iteration {} of 10. Consider completing current task or breaking it down."
FINAL = "FINAL ITERATION: Complete task now or summarize progress."

EXPECTED: dict[str, tuple[object, object, object]] = {
    # the four files about iterations
    "iteration-budget-warning": (None, ITERATION.format(8), ITERATION.format(10)),
    "iteration-critical": (None, None, FINAL),
    "iteration-checkpoint": (None, None, "Checkpoint: 10 iterations. Progress check recommended."),
    "track-iterations": tuple({"last_iteration_count": count} for count in (1, 8, 10)),  # pyright: ignore[reportAssignmentType]
    # budgets and context
    "budget-percent": (None, "Tokens: 85% used.", "Tokens: 99% used."),
    "budget-or-context": (None, None, "STOP SOON: almost nothing is left."),
    "context-window": (None, "Context at 87%.", "Context at 98%."),
    "long-talk": (None, "36 messages: consider a fresh start.", "180 messages: consider a fresh start."),
    "cooldown": (None, "A reminder: tokens are short.", None),
    "thinking-user": (None, "Thinking is on in turn 8 of 10.", None),
    # events
    "every-tenth": (
        None,
        {"agent.checkpoint": {"turn": 10, "user": "ada", "kind": "turns"}},
        {"agent.checkpoint": {"turn": 40, "user": "bob", "kind": "turns"}},
    ),
    "nested-payload": (
        None,
        {"custom.usage": {"rule": "nested-payload", "details": {"calls": 12, "level": 2}}},
        {"custom.usage": {"rule": "nested-payload", "details": {"calls": 60, "level": 2}}},
    ),
    # calls
    "many-calls": (None, None, "60 calls so far. Is WEB_SEARCH needed?"),
    "log-calls": tuple(f"call of {tool} (tool.call.pending)" for tool in ("read", "web_search", "Web_search")),  # pyright: ignore[reportAssignmentType]
    # failures
    "failures-total": (None, "3 failures. Try another way.", "9 failures. Try another way."),
    "failures-of-tool": (
        {"monitoring.failure": {"tool": "read", "error": "OSError: no network", "count": 0}},
        {"monitoring.failure": {"tool": "web_search", "error": "OSError: no network", "count": 3}},
        {"monitoring.failure": {"tool": "Web_search", "error": "OSError: no network", "count": 9}},
    ),
    "search-fails": (None, "Searching does not work: check the network.", None),
    # results
    "large-text": (None, "web_search returned 2500 characters: summarize.", None),
    "empty-search": (None, None, "Few results of web_search: use broader words."),
    "slow-call": (None, "That took 6.0 s.", "That took 300.0 s."),
    "research-done": (None, "Enough material: start writing.", None),
    "count-searches": (None, {"searches": 4}, {"searches": 10}),
    "remember-tool": (
        {"last": {"tool": "read", "size": 200}},
        {"last": {"tool": "web_search", "size": 2500}},
        {"last": {"tool": "Web_search", "size": 0}},
    ),
    # sessions
    "first-start": ({"session_start": 1}, None, {"session_start": 40}),
    "who-asks": (None, "ada on steam", "bob on "),
    "log-default": ("Rule triggered",) * 3,
    "state-keys": (None, "3 values in the state", "2 values in the state"),
    "404-session-end": (
        "Ended: 1 calls, 0 failures, 5% of the tokens",
        "Ended: 12 calls, 3 failures, 85% of the tokens",
        "Ended: 60 calls, 9 failures, 99% of the tokens",
    ),
}
"""What each rule does at a quiet, a busy and an extreme moment."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_acts_as_its_comment_says_at_a_quiet_a_busy_and_an_extreme_moment(path: Path) -> None:
    rules = RuleSet.load(path, strict=True)
    [rule] = rules
    acts = [summarize(moment().act(rules, rule.trigger)) for moment in (quiet, busy, extreme)]
    assert tuple(acts) == EXPECTED[rule.id]


def test_every_expected_rule_has_its_file() -> None:
    assert {rule.id for rule in RuleSet.load(*FILES, strict=True)} == EXPECTED.keys()
    assert len(FILES) >= 24


def test_all_files_together_load_beside_the_core_rules_in_silence() -> None:
    rules = RuleSet.load(*FILES).with_core()
    assert (rules.problems, rules.warnings) == ((), ())
