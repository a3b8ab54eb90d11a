"""The report without a model: what the record says, and nothing else."""

import re
from collections.abc import Callable

import pytest

from flyball import Agent, Limits, tool
from flyball.budget.limits import Reserve
from flyball.errors import ModelError
from flyball.event import GraceEnded
from flyball.progress import Continue
from flyball.record import from_record
from flyball.result import Result
from flyball.store import MemoryStore
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, together


@tool(effects="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def broken() -> None:
    """Fail."""
    raise ValueError("out of order")


SUM, BROKEN = call("add", a=1, b=2), call("broken")
SILENT = fail(ModelError("gone"))


def reported(*lines: Line, turns: int | None = None, grace: Line = SILENT, limits: Limits | None = None) -> Result:
    """The result of a run whose model goes through its lines, meets a limit and then gives no report."""
    own = limits or Limits(turns=turns or len(lines))
    agent = Agent(model=ScriptedModel(*lines, grace=grace), tools=[add, broken], limits=own)
    return assert_honest(ScriptDriver(agent).run("Go."))


def test_a_report_says_what_was_done_and_what_failed(snapshot: Callable[..., None]) -> None:
    text = reported(together(SUM, SUM), BROKEN, call("unknown")).text
    assert ": add (2)." in text
    assert ": broken (1), unknown (1)." in text
    snapshot(text)


def test_a_report_says_none_where_nothing_was_called(snapshot: Callable[..., None]) -> None:
    snapshot(reported(say("x"), limits=Limits(context_tokens=1)).text)


def test_a_report_begins_with_the_limit_that_was_met() -> None:
    result = reported(SUM)
    assert result.warning is not None
    assert result.text.startswith(result.warning)


def test_a_report_says_where_the_work_stood() -> None:
    text = reported(say("First I add.", SUM), say("Then I break.", BROKEN)).text
    assert "- add: done: 3\n- broken: failed: ValueError: out of order" in text
    assert ": Then I break." in text


def test_a_report_shows_the_last_calls_only() -> None:
    text = reported(*[call("add", a=n, b=0) for n in range(9)]).text
    assert re.findall(r"- add: done: (\d)", text) == ["4", "5", "6", "7", "8"]


def test_a_report_says_by_whom_it_was_made(snapshot: Callable[..., None]) -> None:
    snapshot(reported(SUM).text.splitlines()[-1])


@pytest.mark.parametrize(
    "lines",
    [(SUM,), (SUM, SUM, BROKEN), (together(SUM, BROKEN), say("more", SUM))],
)
def test_the_same_run_gives_the_same_report(lines: tuple[Line, ...]) -> None:
    assert reported(*lines).text == reported(*lines).text


@pytest.mark.parametrize(
    "limits",
    [Limits(turns=2), Limits(context_tokens=150), Limits(tokens=700, reserve=Reserve(tokens=1)), Limits(tool_calls=2)],
    ids=["turns", "context", "tokens", "calls"],
)
def test_the_numbers_of_a_report_are_those_of_the_result(limits: Limits) -> None:
    result = reported(*[SUM.using(None)] * 9, limits=limits)
    turns, requests = re.findall(r"(\d+) turns?\b.* (\d+) requests?\b", result.text)[0]
    assert (int(turns), int(requests)) == (result.turns, result.requests)


@pytest.mark.parametrize("grace", [say(""), say(" \n "), SILENT, say("no").ending("content_filter"), SUM])
def test_a_report_from_the_record_stands_in_whenever_the_model_gives_none(grace: Line) -> None:
    result = reported(SUM, grace=grace)
    assert result.text.splitlines()[-1] == reported(SUM).text.splitlines()[-1]
    assert (result.stop, result.completed) == ("budget", False)


def test_no_report_is_made_from_the_record_where_the_model_reports() -> None:
    assert reported(SUM, grace=say("I added.")).text == "I added."


class TestClaims:
    """A report of the model is compared with the record."""

    def test_an_honest_report_stands_alone(self) -> None:
        result = reported(SUM, grace=say("I added 1 and 2. I did not finish."))
        assert (result.text, result.unsupported) == ("I added 1 and 2. I did not finish.", ())

    def test_the_record_is_shown_beside_a_report_that_claims_too_much(self, snapshot: Callable[..., None]) -> None:
        result = reported(SUM, BROKEN, grace=say("I added 1 and 2. I deployed the result. All tests pass."))
        assert [claim.partition(" (")[0] for claim in result.unsupported] == [
            '"I deployed the result."',
            '"All tests pass."',
        ]
        assert ": add (1)." in result.text
        snapshot(result.text)

    def test_the_event_the_explanation_and_the_record_have_the_claims(self) -> None:
        result = reported(SUM, grace=say("I deployed the result."))
        [ended] = [event for event in result.events if isinstance(event, GraceEnded)]
        assert (ended.reported, ended.unsupported) == (True, result.unsupported)
        assert "1 claim that the record does not support" in result.explain()
        assert from_record(result.to_dict()).unsupported == result.unsupported

    def test_a_report_that_was_cut_off_says_so(self, snapshot: Callable[..., None]) -> None:
        result = reported(SUM, grace=say("I added 1 and").ending("length"))
        assert result.unsupported == ()
        snapshot(result.text)

    def test_work_of_an_earlier_run_that_this_one_continues_counts(self) -> None:
        store, first = MemoryStore(), ScriptedModel(SUM, say("Added."))
        Agent(model=first, tools=[add], store=store).run("Add.", session="s")
        model = ScriptedModel.looping(BROKEN, grace=say("I added 1 and 2. Then nothing worked."))
        again = Agent(model=model, tools=[broken], store=store, limits=Limits(turns=1)).run("Go on.", session="s")
        assert again.unsupported == ()

    def test_the_check_can_be_switched_off(self) -> None:
        model = ScriptedModel(SUM, grace=say("I deployed the result."))
        agent = Agent(model=model, tools=[add], limits=Limits(turns=1), check_report=False)
        result = ScriptDriver(agent).run("Go.")
        assert (result.text, result.unsupported) == ("I deployed the result.", ())

    def test_the_report_itself_supports_nothing(self) -> None:
        model = ScriptedModel.looping(say("Hm."), grace=say("I wrote a long poem about steam. " * 5))
        agent = Agent(model=model, completion=lambda _: Continue("More."), limits=Limits(turns=2))
        result = ScriptDriver(agent).run("Go.")
        assert result.unsupported
