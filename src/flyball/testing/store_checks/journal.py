"""Checks of the journal."""

from __future__ import annotations

from ...errors import StaleFence, StoreError
from ...store import Kind, Row
from .store_fixture import StoreFixture, assert_raises, run_in_threads


def rows_come_back_as_they_were_in_their_order(fixture: StoreFixture) -> None:
    """Check that rows are stored unchanged and can be read from any position."""
    fixture.start_run()
    first = [Row(0, Kind.RUN, '{"seed": 1}'), Row(1, Kind.STARTED, fingerprint=2**32 - 1)]
    later = [Row(1, Kind.OUTCOME, '"one \\ud800"'), Row(1, Kind.OUTCOME, '"two"'), Row(1, Kind.ANSWER, "[]", 7, 3)]
    fixture.store.journal.write("r", first)
    fixture.store.journal.write("r", later)
    assert fixture.store.journal.read("r") == [*first, *later]
    assert fixture.store.journal.read("r", after=3) == later[1:]
    assert fixture.store.journal.read("r", after=5) == []
    assert all(type(row.kind) is Kind for row in fixture.store.journal.read("r"))


def an_effect_is_answered_once(fixture: StoreFixture) -> None:
    """Check that a second answer is refused with its whole write.

    This holds even if both answers are in the same write.
    """
    fixture.start_run()
    fixture.store.journal.write("r", [Row(1, Kind.ANSWER, '"first"')])
    more = [Row(2, Kind.STARTED), Row(1, Kind.ANSWER, '"second"')]
    assert "second answer" in str(assert_raises(StoreError, lambda: fixture.store.journal.write("r", more)))
    twice = [Row(2, Kind.ANSWER), Row(2, Kind.ANSWER)]
    assert_raises(StoreError, lambda: fixture.store.journal.write("r", twice))
    assert fixture.store.journal.read("r") == [Row(1, Kind.ANSWER, '"first"')]


def an_effect_may_be_started_again(fixture: StoreFixture) -> None:
    """Check that a killed request can be started again."""
    fixture.start_run()
    rows = [Row(1, Kind.STARTED), Row(1, Kind.STARTED), Row(1, Kind.ANSWER)]
    fixture.store.journal.write("r", rows)
    assert fixture.store.journal.read("r") == rows


def a_later_take_may_answer_anew_and_that_once_too(fixture: StoreFixture) -> None:
    """Check that a resumed run can answer an open effect once more."""
    fixture.start_run()
    fixture.store.journal.write("r", [Row(1, Kind.ANSWER)])
    fixture.store.journal.write("r", [Row(1, Kind.ANSWER, take=1)])
    assert_raises(StoreError, lambda: fixture.store.journal.write("r", [Row(1, Kind.ANSWER, take=1)]))
    assert len(fixture.store.journal.read("r")) == 2


def runs_have_journals_of_their_own(fixture: StoreFixture) -> None:
    """Check that journals are separate, and that an unknown run has none."""
    fixture.start_run("a")
    fixture.start_run("b")
    fixture.store.journal.write("a", [Row(1, Kind.ANSWER, '"a"')])
    fixture.store.journal.write("b", [Row(1, Kind.ANSWER, '"b"')])
    assert fixture.store.journal.read("a") == [Row(1, Kind.ANSWER, '"a"')]
    assert fixture.store.journal.read("nobody") == []
    assert "nobody" in str(
        assert_raises(StoreError, lambda: fixture.store.journal.write("nobody", [Row(1, Kind.ANSWER)]))
    )


def a_journal_under_a_guard_is_fenced(fixture: StoreFixture) -> None:
    """Check that a stale holder cannot write a row."""
    old = fixture.acquire_lease(seconds=1)
    fixture.start_run()
    fixture.store.journal.write("r", [Row(1, Kind.ANSWER)], old)
    fixture.clock.move(2)
    fixture.acquire_lease(owner="two")
    assert_raises(StaleFence, lambda: fixture.store.journal.write("r", [Row(2, Kind.ANSWER)], old))
    assert fixture.store.journal.read("r") == [Row(1, Kind.ANSWER)]


def of_two_that_answer_at_once_one_is_refused(fixture: StoreFixture) -> None:
    """Check that only the first of several answers is stored."""
    fixture.start_run()

    def answer(text: str) -> str | None:
        try:
            fixture.store.journal.write("r", [Row(1, Kind.ANSWER, text)])
        except StoreError:
            return None
        return text

    answers = run_in_threads([lambda text=str(n): answer(text) for n in range(6)])
    kept = [text for text in answers if text is not None]
    assert len(kept) == 1, f"expected one stored answer, found {len(kept)}"
    assert fixture.store.journal.read("r") == [Row(1, Kind.ANSWER, kept[0])]
