"""The kit that checks reports against the record, for tests of users."""

import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ModelError
from flyball.result import Result
from flyball.testing import (
    ScriptedModel,
    assert_report_honest,
    call,
    fail,
    find_unsupported_claims,
    say,
)


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def run(*lines: object, report: str | None = None, turns: int = 1) -> Result:
    grace = fail(ModelError("gone")) if report is None else say(report)
    model = ScriptedModel(*(lines or (call("add", a=1, b=2),)), grace=grace)  # pyright: ignore[reportArgumentType]
    return Agent(model=model, tools=[add], limits=Limits(turns=turns)).run("Add 1 and 2.")


def test_an_honest_report_passes() -> None:
    result = run(report="I added 1 and 2, which is 3.")
    assert assert_report_honest(result) is result


def test_a_claim_without_support_fails_with_the_sentence() -> None:
    result = run(report="I added 1 and 2. I emailed the sum to Ada.")
    with pytest.raises(AssertionError, match="I emailed the sum to Ada"):
        assert_report_honest(result)
    [claim] = find_unsupported_claims(result)
    assert (claim.text, claim.reason) == ("I emailed the sum to Ada.", "no successful call fits")


def test_the_record_beside_a_report_is_not_checked() -> None:
    result = run(report="I emailed the sum.")
    assert result.text != "I emailed the sum."
    assert len(find_unsupported_claims(result)) == len(result.unsupported) == 1


def test_a_report_from_the_record_has_no_findings() -> None:
    assert find_unsupported_claims(run()) == ()


def test_an_answer_is_checked_too() -> None:
    honest = run(call("add", a=1, b=2), say("The task is complete: I added 1 and 2."), turns=3)
    assert honest.completed
    assert find_unsupported_claims(honest) == ()
    assert find_unsupported_claims(run(say("I added 1 and 2, and saved the sum."), turns=3))


def test_another_text_can_be_checked_against_the_same_record() -> None:
    result = run(report="I added 1 and 2.")
    assert find_unsupported_claims(result, "The numbers 1 and 2 were added.") == ()
    assert find_unsupported_claims(result, "The server was restarted.")
