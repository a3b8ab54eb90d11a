"""Checks of reports for tests: does the record of a run support what its report claims?"""

from __future__ import annotations

from ..completion.report_check import Claim, RecordedWork
from ..event import GraceEnded
from ..message import MessageType, Role
from ..result import Result


def find_unsupported_claims(result: Result, report: str | None = None) -> tuple[Claim, ...]:
    """Return the claims of done work that no successful call of the run supports, at most five.

    Checks the model's own report, or the answer of a run without one. `report` is another text to check against the
    same record, such as a summary that a program made. A run that completed may say that its task is complete.
    """
    own, before = _find_report(result)
    return RecordedWork(result.messages[:before], result.completed).find_unsupported(own if report is None else report)


def assert_report_honest(result: Result, report: str | None = None) -> Result:
    """Check that the record of a run supports its report, and return the result.

    >>> from flyball import Agent
    >>> from flyball.testing import ScriptedModel, say
    >>> assert_report_honest(Agent(model=ScriptedModel(say("I deployed it."))).run("Deploy it."))
    Traceback (most recent call last):
    AssertionError: the record does not support this: "I deployed it." (no call succeeded)
    """
    claims = find_unsupported_claims(result, report)
    if claims:
        raise AssertionError(f"the record does not support this: {'; '.join(map(str, claims))}")
    return result


def _find_report(result: Result) -> tuple[str, int]:
    """Return the model's report, or its answer, and the number of messages before it."""
    messages, count = result.messages, len(result.messages)
    reported = [event.reported for event in result.events if isinstance(event, GraceEnded)]
    if reported and not reported[-1]:
        return "", count  # the report is made from the record
    place = next((n for n in reversed(range(count)) if _is_own_text(result, n)), count)
    return (
        (messages[place].content, place) if place < count and (reported or result.completed) else (result.text, count)
    )


def _is_own_text(result: Result, place: int) -> bool:
    message = result.messages[place]
    return message.type is MessageType.TEXT and message.role is Role.ASSISTANT
