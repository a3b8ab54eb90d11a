import inspect
import pickle
from collections.abc import Callable

import pytest

from flyball import errors
from flyball.errors import (
    AmountError,
    ArgumentError,
    BudgetExceeded,
    CallClosed,
    CommandFailed,
    ConfigError,
    ConfigErrors,
    ContextTooLong,
    DeadlineExceeded,
    DelegationPaused,
    ExternalError,
    FetchRefused,
    FileRefused,
    FlyballError,
    MessageError,
    ModelError,
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
    Ungoverned,
    UnknownBudget,
    UnknownName,
    UnknownTool,
    UntrustedSettings,
    UsageError,
    suggest_names,
)
from flyball.unit import Unit

EXAMPLES: list[FlyballError] = [
    ResumeError("run r1", "it is a child run; resume its parent, run r0"),
    ConfigError("budget 'x', ceiling", -1, "an int"),
    SettingError("max_turns", "flyball.toml:3", "many", "a whole number"),
    TomlError("flyball.toml:2", "x", "valid TOML"),
    UsageError("this run has ended"),
    AmountError("x", 0),
    BudgetExceeded("x", 5, 3, 9),
    DelegationPaused("caller"),
    BudgetExceeded("cost_usd", 2 * 10**9, 10**9, 10**9, Unit.USD),
    ArgumentError("add", ("a: missing", "b: missing")),
    CallClosed("timed_out"),
    CommandFailed("exit code 1", "no such file"),
    CommandFailed("exit code 1", ""),
    FetchRefused("file:///etc", "only http"),
    FileRefused("../a", "it goes up"),
    UnknownName("x", ("y",)),
    UnknownTool("ad", ("add", "sub")),
    UnknownTool("zzz", ()),
    DeadlineExceeded(),
    DeadlineExceeded(True),
    MessageError(3, "role", "boss", "a role"),
    ModelError("the key is wrong"),
    ContextTooLong("200,001 tokens"),
    Retryable("busy", 3.5),
    Retryable("it broke", began=True),
    RemoteError("billing", "it broke off"),
    RemoteRefused("billing", "it refused (409)"),
    RuleError("context has no field 'x'"),
    RuleError("division by zero", "a / b"),
    RunStopped("budget", "It reached a limit.", None),
    SourceError("MCP server 'x'", "it has ended"),
    StoreError("runs.db", "it is full"),
    SessionBusy("runs.db", "it is held"),
    ExternalError("disk", "it is full"),
    StaleFence("runs.db", "another has it"),
    ToolFailed("no such file"),
    UnknownBudget("turn", ("turns", "retries")),
    UnknownBudget("zzz", ("b", "a")),
    TomlError("flyball.toml", reason="cannot read the file: Permission denied"),
    Ungoverned("NOT GOVERNED: amp would go around the gateway"),
    UntrustedSettings("flyball.toml may only lower limits, but it sets model"),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: f"{error.code}-{EXAMPLES.index(error)}")
def test_an_error_writes_its_own_message_and_survives_pickling(
    error: FlyballError, snapshot: Callable[..., None]
) -> None:
    snapshot(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def classes() -> list[type[FlyballError]]:
    found = {kind for _, kind in inspect.getmembers(errors, inspect.isclass)}  # old names may be among them
    return sorted((kind for kind in found if issubclass(kind, FlyballError)), key=lambda kind: kind.__name__)


def test_mistakes_are_told_one_to_a_line_and_survive_pickling() -> None:
    mistakes = ConfigErrors((ConfigError("a.b", 1, "a text"), SettingError("a.c", "x.toml:3", "", "an int")))
    assert str(mistakes).splitlines() == [str(error) for error in mistakes.errors]
    assert (mistakes.where, mistakes.found, mistakes.expected) == ("a.b", 1, "a text")
    again = pickle.loads(pickle.dumps(mistakes))
    assert (type(again), str(again)) == (ConfigErrors, str(mistakes))
    assert [vars(error) for error in again.errors] == [vars(error) for error in mistakes.errors]


def test_every_error_is_drawn_in_the_tree_and_has_a_code_of_its_own() -> None:
    assert {kind.__name__ for kind in classes() if f" {kind.__name__}" not in (errors.__doc__ or "")} == set()
    assert len({kind.code for kind in classes()}) == len(classes())


def test_every_error_has_an_example() -> None:
    assert {type(error) for error in EXAMPLES} | {FlyballError, ConfigErrors} == set(classes())


def test_a_huge_value_does_not_bury_the_message() -> None:
    assert len(str(ConfigError("here", "x" * 100_000, "less"))) < 400


def test_nearest_finds_what_was_meant_and_nothing_else() -> None:
    assert suggest_names("max_truns", ["max_turns", "price"]) == ["max_turns"]
    assert suggest_names("MAX_Turns", ["max_turns", "price"]) == ["max_turns"]
    assert suggest_names("zzz", ["max_turns"]) == []


class Broken:
    def __repr__(self) -> str:
        raise ZeroDivisionError


def test_a_value_that_cannot_be_shown_does_not_hide_the_error() -> None:
    told = str(ConfigError("here", Broken(), "x"))
    assert told.startswith("here: ")
    assert "Broken" in told
