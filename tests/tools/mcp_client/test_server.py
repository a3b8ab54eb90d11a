"""How a server is named: what may be given, what is refused, and what is shown of it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from socket import create_server, socket
from threading import Thread
from typing import Any

import pytest

from flyball import Agent, ConfigError
from flyball.errors import UsageError
from flyball.testing import ScriptedModel, say
from flyball.tools import mcp
from flyball.tools.mcp_client.stdio import OutputTail


class TestTheServer:
    @pytest.mark.parametrize("server", ["", "  ", "'unfinished", [], [1], [""], 3, None])
    def test_is_a_command_or_a_url(self, server: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            mcp(server)
        assert caught.value.where.startswith("mcp")

    def test_is_split_as_a_shell_would(self) -> None:
        assert mcp("npx -y 'a b'").command == ("npx", "-y", "a b")

    def test_is_named_by_its_command_or_url_without_what_may_be_secret(self) -> None:
        assert repr(mcp("npx -y thing")) == "<MCP server 'npx -y thing'>"
        assert mcp("https://user:pass@example.org:8443/mcp?key=xyzzy#f").name == (
            "MCP server 'https://example.org:8443/mcp'"
        )
        assert mcp("npx", name="files").name == "files"

    @pytest.mark.parametrize(
        ("command", "shown"),
        [
            ("npx files --root /a", "npx files --root /a"),
            ("server --token xyzzy --root /a", "server --token *** --root /a"),
            ("server --api-key=xyzzy 'a b'", "server --api-key=*** 'a b'"),
            ("env API_KEY=xyzzy server", "env API_KEY=*** server"),
            ("server --auth --verbose", "server --auth --verbose"),
            ("tokenizer keys.txt", "tokenizer keys.txt"),
        ],
    )
    def test_what_a_command_is_given_in_secret_is_not_in_its_name(self, command: str, shown: str) -> None:
        assert mcp(command).name == f"MCP server {shown!r}"

    def test_does_not_show_what_it_is_given(self) -> None:
        sources = [mcp("npx", env={"KEY": "xyzzy"}), mcp("http://a/mcp", headers={"key": "xyzzy"})]
        assert "xyzzy" not in repr(sources)
        with pytest.raises(ConfigError) as raised:
            mcp("npx", env={"KEY": 3, "OTHER": "xyzzy"})  # pyright: ignore[reportArgumentType]
        assert "xyzzy" not in str(raised.value)


@pytest.mark.parametrize(
    ("server", "options", "where", "found"),
    [
        ("npx", {"header": {}}, "mcp, options", "header"),
        ("npx", {"timeout": 0}, "mcp, timeout", 0),
        ("npx", {"connect_timeout": -1}, "mcp, connect_timeout", -1),
        ("npx", {"only": "add"}, "mcp, only", "add"),
        ("npx", {"prefix": 3}, "mcp, prefix", 3),
    ],
)
def test_a_wrong_option_of_a_server_is_told(server: str, options: Any, where: str, found: object) -> None:
    with pytest.raises(ConfigError) as raised:
        mcp(server, **options)
    assert (raised.value.where, raised.value.found) == (where, found)


@pytest.mark.parametrize(("server", "option"), [("npx", "headers"), ("http://a/mcp", "env")])
def test_an_option_of_the_other_kind_of_server_is_refused(server: str, option: str) -> None:
    options: Any = {option: {}}
    with pytest.raises(UsageError, match=f"mcp: {option} works only with"):
        mcp(server, **options)


def test_a_wrong_environment_of_a_server_is_told_and_not_shown(snapshot: Callable[..., None]) -> None:
    wrong: Any = "A=B"
    with pytest.raises(ConfigError) as raised:
        mcp("npx", env=wrong)
    assert raised.value.code == "usage_error"
    assert "A=B" not in str(raised.value)
    snapshot(raised.value)


def test_a_missing_extra_is_told_in_one_line() -> None:
    program = "import sys; sys.modules['mcp'] = None\nfrom flyball.tools import mcp\nmcp('npx')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    told = done.stderr.splitlines()[-1]
    assert "UsageError" in told
    assert "pip install 'flyball-ai[mcp]'" in told


def test_the_sdk_is_loaded_only_when_it_is_used() -> None:
    program = "import sys, flyball.tools, flyball.agent.agent\nprint('mcp' in sys.modules, 'jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False False\n"


class TestTheTail:
    def test_keeps_the_end_of_much(self) -> None:
        tail = OutputTail()
        for n in range(10_000):
            tail.write(f"line {n}\n".encode())
        assert tail.text.endswith("line 9998\nline 9999")
        assert len(tail.text) <= 2_000

    def test_shows_no_secret_that_is_long_enough_to_be_one(self) -> None:
        tail = OutputTail(["xyzzy", "xyzzy-and-more", "a"])
        tail.write("a key: xyzzy-and-more, xyzzy\xff".encode("latin-1"))
        assert tail.text == "a key: ***, ***�"


@pytest.fixture
def web() -> Iterator[tuple[socket, list[bytes]]]:
    """A loopback socket that answers each connection with what is in the list."""
    answers: list[bytes] = []
    with create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)
                    connection.sendall(answers[0])

        server = Thread(target=serve)
        server.start()
        try:
            yield listening, answers
        finally:
            listening.shutdown(2)
            server.join(60)


class TestAUrl:
    def failure(self, url: str) -> str:
        source = mcp(url, headers={"authorization": "Bearer xyzzy"}, name="the server")
        result = Agent(model=ScriptedModel(say("x")), tools=[source]).run("go")
        assert (result.stop, result.requests) == ("failed", 0)
        assert result.error is not None
        return result.error["message"]

    def test_where_nobody_listens_fails_the_run(self) -> None:
        with create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        assert self.failure(f"http://127.0.0.1:{port}/mcp").startswith("the server: ")

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "the server: "),
            (b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n", "the server: "),
            (b"SSH-2.0 xyzzy Bearer xyzzy\r\n\r\n", "the server: "),
        ],
    )
    def test_where_somebody_else_listens_fails_the_run(
        self, web: tuple[socket, list[bytes]], answer: bytes, said: str
    ) -> None:
        listening, answers = web
        answers.append(answer)
        told = self.failure(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp")
        assert told.startswith(said)
        assert "Bearer xyzzy" not in told
