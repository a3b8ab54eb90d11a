"""What a journal promises."""

from __future__ import annotations

from ...errors import StaleFence, StoreError
from ...store import Kind, Row
from .store_fixture import StoreFixture, refused, together


def rows_come_back_as_they_were_in_their_order(desk: StoreFixture) -> None:
    """Stores do not look into them."""
    desk.begin()
    first = [Row(0, Kind.RUN, '{"seed": 1}'), Row(1, Kind.STARTED, fingerprint=2**32 - 1)]
    later = [Row(1, Kind.OUTCOME, '"one \\ud800"'), Row(1, Kind.OUTCOME, '"two"'), Row(1, Kind.ANSWER, "[]", 7, 3)]
    desk.store.journal.write("r", first)
    desk.store.journal.write("r", later)
    assert desk.store.journal.read("r") == [*first, *later]
    assert desk.store.journal.read("r", after=3) == later[1:]
    assert desk.store.journal.read("r", after=5) == []
    assert all(type(row.kind) is Kind for row in desk.store.journal.read("r"))


def an_effect_is_answered_once(desk: StoreFixture) -> None:
    """The second answer is refused with all that came with it, also in one and the same write."""
    desk.begin()
    desk.store.journal.write("r", [Row(1, Kind.ANSWER, '"first"')])
    more = [Row(2, Kind.STARTED), Row(1, Kind.ANSWER, '"second"')]
    assert "second answer" in str(refused(StoreError, lambda: desk.store.journal.write("r", more)))
    twice = [Row(2, Kind.ANSWER), Row(2, Kind.ANSWER)]
    refused(StoreError, lambda: desk.store.journal.write("r", twice))
    assert desk.store.journal.read("r") == [Row(1, Kind.ANSWER, '"first"')]


def an_effect_may_be_started_again(desk: StoreFixture) -> None:
    """A request that was killed is asked again."""
    desk.begin()
    rows = [Row(1, Kind.STARTED), Row(1, Kind.STARTED), Row(1, Kind.ANSWER)]
    desk.store.journal.write("r", rows)
    assert desk.store.journal.read("r") == rows


def a_later_take_may_answer_anew_and_that_once_too(desk: StoreFixture) -> None:
    """A paused run that goes on answers what was open."""
    desk.begin()
    desk.store.journal.write("r", [Row(1, Kind.ANSWER)])
    desk.store.journal.write("r", [Row(1, Kind.ANSWER, take=1)])
    refused(StoreError, lambda: desk.store.journal.write("r", [Row(1, Kind.ANSWER, take=1)]))
    assert len(desk.store.journal.read("r")) == 2


def runs_have_journals_of_their_own(desk: StoreFixture) -> None:
    """And one that nobody has started has none, and gets none."""
    desk.begin("a")
    desk.begin("b")
    desk.store.journal.write("a", [Row(1, Kind.ANSWER, '"a"')])
    desk.store.journal.write("b", [Row(1, Kind.ANSWER, '"b"')])
    assert desk.store.journal.read("a") == [Row(1, Kind.ANSWER, '"a"')]
    assert desk.store.journal.read("nobody") == []
    assert "nobody" in str(refused(StoreError, lambda: desk.store.journal.write("nobody", [Row(1, Kind.ANSWER)])))


def a_journal_under_a_guard_is_fenced(desk: StoreFixture) -> None:
    """An old holder writes no row."""
    old = desk.hold(seconds=1)
    desk.begin()
    desk.store.journal.write("r", [Row(1, Kind.ANSWER)], old)
    desk.clock.move(2)
    desk.hold(owner="two")
    refused(StaleFence, lambda: desk.store.journal.write("r", [Row(2, Kind.ANSWER)], old))
    assert desk.store.journal.read("r") == [Row(1, Kind.ANSWER)]


def of_two_that_answer_at_once_one_is_refused(desk: StoreFixture) -> None:
    """Whoever comes first."""
    desk.begin()

    def answer(text: str) -> str | None:
        try:
            desk.store.journal.write("r", [Row(1, Kind.ANSWER, text)])
        except StoreError:
            return None
        return text

    given = together([lambda text=str(n): answer(text) for n in range(6)])
    kept = [text for text in given if text is not None]
    assert len(kept) == 1, f"one answer was to be kept, but {len(kept)} were"
    assert desk.store.journal.read("r") == [Row(1, Kind.ANSWER, kept[0])]
