from typing import Any

from flyball.loop.effects import Answer
from flyball.person import Verdict
from flyball.runtime.history import JOURNAL_CODEC, RunHistory, parse_journal
from flyball.store import Kind, Row

OPEN = Verdict(None)


def row(n: int, at: float | None = None, value: Any = None, take: int = 0) -> Row:
    if at is None:
        return Row(n, Kind.STARTED, JOURNAL_CODEC.dumps({"events": n}), take=take)
    return Row(n, Kind.ANSWER, JOURNAL_CODEC.dumps(Answer(value, at)), take=take)


def paused() -> list[Row]:
    return [row(0), row(0, 1.0), row(1), row(1, 3.0, OPEN)]


def told(past: RunHistory) -> tuple[int, int, float]:
    return len(past.answers), len(past.started), past.at


def test_a_run_that_goes_on_from_its_question_has_used_the_time_until_it_paused() -> None:
    assert told(parse_journal(paused()).truncate_at_question()) == (1, 2, 3.0)


def test_answers_that_do_not_count_any_more_have_taken_their_time() -> None:
    assert told(parse_journal([*paused(), row(1, take=1)])) == (1, 2, 3.0)
    assert told(parse_journal([*paused(), row(1, take=1), row(1, 4.0, Verdict(True), take=1)])) == (2, 2, 4.0)
