import inspect
import pickle

import pytest

from flyball import errors
from flyball.errors import (
    AmountError,
    ArgumentError,
    BudgetExceeded,
    CallClosed,
    CommandFailed,
    ConfigError,
    ContextTooLong,
    DeadlineExceeded,
    FetchRefused,
    FileRefused,
    FlyballError,
    MessageError,
    Mistakes,
    ModelError,
    Outside,
    RemoteError,
    RemoteRefused,
    ResumeError,
    Retryable,
    RuleError,
    RunStopped,
    SessionBusy,
    SettingError,
    SourceError,
    StaleFence,
    StoreError,
    TomlError,
    ToolFailed,
    UnknownBudget,
    UnknownName,
    UnknownTool,
    nearest,
)
from flyball.unit import Unit

EXAMPLES: list[tuple[FlyballError, str]] = [
    (ResumeError("run r1", "a child", "its parent"), "run r1: found 'a child'; expected its parent"),
    (ConfigError("budget 'x', ceiling", -1, "an int"), "budget 'x', ceiling: found -1; expected an int"),
    (
        SettingError("max_turns", "flyball.toml:3", "many", "a whole number"),
        "max_turns (flyball.toml:3): found 'many'; expected a whole number",
    ),
    (TomlError("flyball.toml:2", "x", "valid TOML"), "flyball.toml:2: found 'x'; expected valid TOML"),
    (AmountError("x", 0), "budget 'x': found the amount 0; expected an int of at least 1"),
    (BudgetExceeded("x", 5, 3, 9), "budget 'x': asked for 5, but 3 of 9 is left"),
    (
        BudgetExceeded("cost_usd", 2 * 10**9, 10**9, 10**9, Unit.USD),
        "budget 'cost_usd': asked for $2.00, but $1.00 of $1.00 is left",
    ),
    (ArgumentError("add", ("a: missing", "b: missing")), "the arguments of add are wrong: a: missing; b: missing"),
    (CallClosed("timed_out"), "the call is over (timed_out); nothing may be written for it any more"),
    (CommandFailed("exit code 1", "no such file"), "exit code 1\nno such file"),
    (CommandFailed("exit code 1", ""), "exit code 1"),
    (FetchRefused("file:///etc", "only http"), "'file:///etc': only http"),
    (FileRefused("../a", "it goes up"), "'../a': it goes up"),
    (UnknownName("x", ("y",)), "nothing is known as 'x'; known are y"),
    (UnknownTool("ad", ("add", "sub")), "there is no tool 'ad'; did you mean add?"),
    (UnknownTool("zzz", ()), "there is no tool 'zzz'; offered are none"),
    (DeadlineExceeded(), "the deadline is past"),
    (DeadlineExceeded(True), "the deadline was cancelled"),
    (MessageError(3, "role", "boss", "a role"), "messages[3].role: found 'boss'; expected a role"),
    (ModelError("the key is wrong"), "the key is wrong"),
    (ContextTooLong("200,001 tokens"), "200,001 tokens"),
    (Retryable("busy", 3.5), "busy"),
    (Retryable("it broke", began=True), "it broke"),
    (RemoteError("billing", "it broke off"), "billing: it broke off"),
    (RemoteRefused("billing", "it refused (409)"), "billing: it refused (409)"),
    (RuleError("context has no field 'x'"), "context has no field 'x'"),
    (RuleError("division by zero", "a / b"), "division by zero (in a / b)"),
    (RunStopped("budget", "It met a limit.", None), "It met a limit."),
    (SourceError("MCP server 'x'", "it has ended"), "MCP server 'x': it has ended"),
    (StoreError("runs.db", "it is full"), "runs.db: it is full"),
    (SessionBusy("runs.db", "it is held"), "runs.db: it is held"),
    (Outside("disk", "it is full"), "disk: it is full"),
    (StaleFence("runs.db", "another has it"), "runs.db: another has it"),
    (ToolFailed("no such file"), "no such file"),
    (UnknownBudget("turn", ("turns", "retries")), "no budget is registered as 'turn'; did you mean turns?"),
    (UnknownBudget("zzz", ("b", "a")), "no budget is registered as 'zzz'; registered are a, b"),
]


@pytest.mark.parametrize(("error", "message"), EXAMPLES)
def test_an_error_writes_its_own_message_and_survives_pickling(error: FlyballError, message: str) -> None:
    assert str(error) == message
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), message, vars(error))


def classes() -> list[type[FlyballError]]:
    found = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    return [kind for kind in found if issubclass(kind, FlyballError)]


def test_mistakes_are_told_one_to_a_line_and_survive_pickling() -> None:
    mistakes = Mistakes((ConfigError("a.b", 1, "a text"), SettingError("a.c", "x.toml:3", "", "an int")))
    assert str(mistakes) == "a.b: found 1; expected a text\na.c (x.toml:3): found ''; expected an int"
    assert (mistakes.where, mistakes.found, mistakes.expected) == ("a.b", 1, "a text")
    again = pickle.loads(pickle.dumps(mistakes))
    assert (type(again), str(again)) == (Mistakes, str(mistakes))
    assert [vars(error) for error in again.errors] == [vars(error) for error in mistakes.errors]


def test_every_error_is_drawn_in_the_tree_and_has_a_code_of_its_own() -> None:
    assert {kind.__name__ for kind in classes() if f" {kind.__name__}" not in (errors.__doc__ or "")} == set()
    assert len({kind.code for kind in classes()}) == len(classes())


def test_every_error_is_tried_above() -> None:
    assert {type(error) for error, _ in EXAMPLES} | {FlyballError, Mistakes} == set(classes())


def test_a_huge_value_does_not_bury_the_message() -> None:
    assert len(str(ConfigError("here", "x" * 100_000, "less"))) < 400


def test_nearest_finds_what_was_meant_and_nothing_else() -> None:
    assert nearest("max_truns", ["max_turns", "price"]) == ["max_turns"]
    assert nearest("MAX_Turns", ["max_turns", "price"]) == ["max_turns"]
    assert nearest("zzz", ["max_turns"]) == []


class Broken:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_a_value_that_cannot_be_shown_does_not_hide_the_error() -> None:
    assert str(ConfigError("here", Broken(), "x")) == "here: found <a Broken that cannot be shown>; expected x"
