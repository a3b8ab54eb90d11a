"""Writes of the gateway's server, joined within one turn of the event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from flyball.gateway.joined_writes import JoinedWrites


class Sends(asyncio.Transport):
    """Transport that keeps what is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []

    def write(self, data: Any) -> None:
        self.parts.append(data)

    def close(self) -> None:
        self.parts.append(b"closed")

    def abort(self) -> None:
        self.parts.append(b"aborted")


class Turns(list[Callable[[], None]]):
    """Calls for the next turn of the event loop."""

    def end(self) -> None:
        calls = [*self]
        self.clear()
        for call in calls:
            call()


@pytest.fixture
def sends() -> Sends:
    return Sends()


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def joined(sends: Sends, turns: Turns) -> JoinedWrites:
    return JoinedWrites(sends, turns.append)


def test_head_of_a_response_goes_with_the_first_bytes_of_its_body_at_once(joined: JoinedWrites, sends: Sends) -> None:
    joined.write(b"head ")
    joined.write(b"body")
    assert sends.parts == [b"head body"]


def test_later_writes_of_a_turn_go_together_when_it_ends(joined: JoinedWrites, sends: Sends, turns: Turns) -> None:
    for part in (b"1", b"2", b"3", b"", b"4"):
        joined.write(part)
    assert sends.parts == [b"12"]
    turns.end()
    assert sends.parts == [b"12", b"34"]


def test_a_single_write_goes_when_the_turn_ends_and_the_next_turn_begins_anew(
    joined: JoinedWrites, sends: Sends, turns: Turns
) -> None:
    for part in (b"1", b"2"):
        joined.write(part)
        turns.end()
    assert sends.parts == [b"1", b"2"]
    turns.end()
    assert sends.parts == [b"1", b"2"]


def test_many_bytes_go_at_once_so_that_a_slow_client_pauses_the_reply(joined: JoinedWrites, sends: Sends) -> None:
    for part in (b"1", b"2", b"3" * 40_000, b"4" * 40_000, b"5"):
        joined.write(part)
    assert [len(part) for part in sends.parts] == [2, 80_000]


def test_a_connection_that_closes_has_sent_all_that_was_written(
    joined: JoinedWrites, sends: Sends, turns: Turns
) -> None:
    joined.write(b"1")
    joined.close()
    turns.end()
    assert sends.parts == [b"1", b"closed"]


def test_an_aborted_connection_sends_no_more(joined: JoinedWrites, sends: Sends, turns: Turns) -> None:
    joined.write(b"1")
    joined.abort()
    turns.end()
    assert sends.parts == [b"aborted"]
