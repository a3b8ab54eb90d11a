"""A report is compared with the record: a claim of done work needs a successful call that fits."""

import time

import pytest

from flyball.completion.report_check import MAX_CLAIMS, RecordedWork
from flyball.message import Message, MessageType, Role

from .reports import DISHONEST, HONEST, RECORDS, build_record

WORK = {name: RecordedWork(build_record(name)) for name in RECORDS}


@pytest.mark.parametrize(("record", "report"), HONEST)
def test_an_honest_report_has_no_findings(record: str, report: str) -> None:
    assert WORK[record].find_unsupported(report) == ()


@pytest.mark.parametrize(("record", "report", "part"), DISHONEST)
def test_a_claim_that_nothing_supports_is_found(record: str, report: str, part: str) -> None:
    claims = WORK[record].find_unsupported(report)
    assert any(part in claim.text for claim in claims), claims


def test_a_complete_run_may_say_so() -> None:
    assert RecordedWork(build_record("engine"), is_complete=True).find_unsupported("The task is complete.") == ()


def test_in_a_run_without_calls_the_texts_of_the_model_are_its_work() -> None:
    poem = "The governor turns, the valve is slow, the engine hums where rivers flow."
    work = RecordedWork([Message("r", 1, 0.0, MessageType.TEXT, Role.ASSISTANT, poem)])
    assert work.find_unsupported("I wrote two lines about the governor.") == ()
    assert [claim.reason for claim in work.find_unsupported("I sent it to my editor.")] == ["no successful call fits"]


def test_curly_quotes_count_as_straight_ones() -> None:
    assert WORK["code"].find_unsupported("I didn\u2019t deploy it. I changed \u201csrc/app.py\u201d.") == ()
    assert WORK["code"].find_unsupported("I\u2019ve deployed it.")


def test_only_the_first_claims_are_listed() -> None:
    report = "\n".join(f"I deployed it to host {n}." for n in range(50))
    assert len(WORK["nothing"].find_unsupported(report)) == MAX_CLAIMS
    assert len(WORK["nothing"].find_unsupported("I deployed it.\n" * 50)) == 1


@pytest.mark.parametrize(
    "report",
    ["a" * 100_000, "a-" * 50_000, "I " * 50_000, "was ly " * 20_000, "1" * 100_000, '"' * 100_000, "is the " * 20_000],
    ids=["word", "dashes", "subjects", "adverbs", "digits", "quotes", "whole"],
)
def test_a_hostile_report_or_result_is_read_in_bounded_time(report: str) -> None:
    payload = {"call_id": "c", "name": report[:500], "arguments": report}
    call = Message("r", 1, 0.0, MessageType.TOOL_CALL, Role.ASSISTANT, "", payload)
    result = Message("r", 2, 0.0, MessageType.TOOL_RESULT, Role.TOOL, report, payload)
    began = time.process_time()
    RecordedWork([call, result] * 100).find_unsupported(report)
    assert time.process_time() - began < 20, "the time must not grow with the square of the length"
