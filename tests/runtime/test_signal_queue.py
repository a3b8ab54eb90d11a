from threading import Thread

import pytest

from flyball.loop.effects import Cancel, Extend, Late, LeaseLost, Signal, Steer, TimeUp
from flyball.runtime import SignalQueue

LONG = 60.0
ALL: list[Signal] = [Cancel(), LeaseLost(), Steer("x"), Extend({}), Late("1", "f"), TimeUp()]
URGENT, TOO_LATE_TO_CHANGE = ALL[:2], ALL[2:4]


def test_letters_come_out_once_and_in_order() -> None:
    mailbox = SignalQueue()
    assert all(mailbox.send(letter) for letter in ALL)
    assert (list(mailbox.drain()), list(mailbox.drain())) == (ALL, [])


@pytest.mark.parametrize("letter", ALL)
def test_only_what_is_urgent_cuts_what_is_under_way(letter: Signal) -> None:
    mailbox, cuts = SignalQueue(), list[str]()
    mailbox.on_cancel = lambda: cuts.append("cut")
    mailbox.send(letter)
    assert (mailbox.is_cancelling, bool(cuts)) == (letter in URGENT, letter in URGENT)


@pytest.mark.parametrize("letter", ALL)
def test_in_the_grace_turn_nothing_can_be_steered_or_extended_any_more(letter: Signal) -> None:
    mailbox = SignalQueue()
    mailbox.in_grace_turn = True
    assert mailbox.send(letter) is (letter not in TOO_LATE_TO_CHANGE)


@pytest.mark.parametrize("letter", ALL)
def test_after_the_end_nothing_is_taken_and_nobody_is_cut(letter: Signal) -> None:
    mailbox, cuts = SignalQueue(), list[str]()
    mailbox.on_cancel = lambda: cuts.append("cut")
    mailbox.ended = True
    assert (mailbox.send(letter), list(mailbox.drain()), cuts) == (False, [], [])


def test_who_holds_the_lock_decides_before_another_thread_can_post() -> None:
    mailbox, told = SignalQueue(), list[bool]()
    thread = Thread(target=lambda: told.append(mailbox.send(Steer("x"))))
    with mailbox.lock:
        thread.start()
        assert list(mailbox.drain()) == []
        mailbox.ended = True
    thread.join(LONG)
    assert told == [False]
