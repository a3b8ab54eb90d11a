from threading import Thread

import pytest

from flyball.loop.effects import Cancel, Extend, Late, LeaseLost, Signal, Steer, TimeUp
from flyball.runtime import Mailbox

LONG = 60.0
ALL: list[Signal] = [Cancel(), LeaseLost(), Steer("x"), Extend({}), Late("1", "f"), TimeUp()]
URGENT, TOO_LATE_TO_CHANGE = ALL[:2], ALL[2:4]


def test_letters_come_out_once_and_in_order() -> None:
    mailbox = Mailbox()
    assert all(mailbox.post(letter) for letter in ALL)
    assert (list(mailbox.empty()), list(mailbox.empty())) == (ALL, [])


@pytest.mark.parametrize("letter", ALL)
def test_only_what_is_urgent_cuts_what_is_under_way(letter: Signal) -> None:
    mailbox, cuts = Mailbox(), list[str]()
    mailbox.on_cut(lambda: cuts.append("cut"))
    mailbox.post(letter)
    assert (mailbox.cutting, bool(cuts)) == (letter in URGENT, letter in URGENT)


@pytest.mark.parametrize("letter", ALL)
def test_in_the_grace_turn_nothing_can_be_steered_or_extended_any_more(letter: Signal) -> None:
    mailbox = Mailbox()
    mailbox.reporting = True
    assert mailbox.post(letter) is (letter not in TOO_LATE_TO_CHANGE)


@pytest.mark.parametrize("letter", ALL)
def test_after_the_end_nothing_is_taken_and_nobody_is_cut(letter: Signal) -> None:
    mailbox, cuts = Mailbox(), list[str]()
    mailbox.on_cut(lambda: cuts.append("cut"))
    mailbox.ended = True
    assert (mailbox.post(letter), list(mailbox.empty()), cuts) == (False, [], [])


def test_who_holds_the_lock_decides_before_another_thread_can_post() -> None:
    mailbox, told = Mailbox(), list[bool]()
    thread = Thread(target=lambda: told.append(mailbox.post(Steer("x"))))
    with mailbox.lock:
        thread.start()
        assert list(mailbox.empty()) == []
        mailbox.ended = True
    thread.join(LONG)
    assert told == [False]
