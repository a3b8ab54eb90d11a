"""One request to a service that does not keep to any rule."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import pytest

from flyball import FlyballError
from flyball.errors import RemoteError
from flyball.serve.remote_request import RemoteRequest

BOUND_S = 60.0
SECRET = "sesame-open-yourself"


@contextmanager
def blurting(said: bytes) -> Generator[str]:
    """A service that answers whoever calls with these very bytes, once."""

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            while b"}" not in connection.recv(65_536):
                pass
            connection.sendall(said)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(BOUND_S)
        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/chat"
        finally:
            thread.join(BOUND_S)
    assert not thread.is_alive()


def refusal_of(said: bytes) -> str:
    async def made(url: str) -> FlyballError:
        with anyio.fail_after(BOUND_S), pytest.raises(RemoteError) as caught:
            await RemoteRequest("far", url, {}, {}, BOUND_S, (SECRET,)).send(lambda told: None)
        return caught.value

    with blurting(said) as url:
        return str(anyio.run(made, url))


def test_what_the_client_quotes_of_an_answer_is_short_and_without_our_secrets() -> None:
    words = refusal_of(b"HTTP/1.1 999999 Bearer " + SECRET.encode() + b" so" * 1_000 + b"\r\n\r\n")
    assert "illegal status line" in words
    assert "Bearer ***" in words
    assert SECRET not in words
    assert len(words) < 600


def test_what_is_too_much_to_be_read_is_not_read() -> None:
    body = b'{"stop": "completed", "state": [' + b"{}," * (6 * 2**20) + b"{}]}"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert "18,874," in refusal_of(head + body)


def test_hints_before_the_answer_are_no_answer() -> None:
    hints, end = b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20, b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"
    assert "(500)" in refusal_of(hints + end)


def test_a_change_of_protocol_that_nobody_asked_for_is_no_answer() -> None:
    assert refusal_of(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")


def test_a_redirect_is_not_followed_and_no_secret_leaves_for_another_host() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.0)
        where = f"http://127.0.0.1:{other.getsockname()[1]}/chat".encode()
        words = refusal_of(b"HTTP/1.1 307 There\r\nlocation: " + where + b"\r\ncontent-length: 0\r\n\r\n")
        assert "(307)" in words
        with pytest.raises(BlockingIOError):
            other.accept()
