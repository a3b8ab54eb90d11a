"""The server itself: its script, what it hears, and how it misbehaves."""

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse, IncompleteRead, RemoteDisconnected
from typing import Any

import pytest

from flyball import ConfigError
from flyball.request import Usage
from flyball.testing import ModelServer, call, call_json, say, sent, status

OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"
BOUND_S = 60


class Client:
    """One connection, kept alive as long as the server does."""

    def __init__(self, server: ModelServer, timeout: float = BOUND_S) -> None:
        self.connection = HTTPConnection(server.url.removeprefix("http://"), timeout=timeout)

    def post(self, path: str = OPENAI, **body: Any) -> HTTPResponse:
        self.connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        return self.connection.getresponse()

    def read(self, path: str = OPENAI, **body: Any) -> Any:
        return json.loads(self.post(path, **body).read())

    def events(self, path: str = OPENAI, **body: Any) -> list[str]:
        return data_of(self.post(path, stream=True, **body).read())

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def data_of(raw: bytes) -> list[str]:
    lines = raw.decode().splitlines()
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [one.name for one in threading.enumerate() if "model-server" in one.name] == []


class TestScript:
    def test_the_server_says_one_line_for_each_request_and_remembers_what_it_heard(self) -> None:
        with ModelServer(say("one"), say("two")) as server, Client(server) as client:
            said = [client.read(model="m", n=n)["choices"][0]["message"]["content"] for n in range(2)]
        assert said == ["one", "two"]
        assert [(heard.path, heard.body) for heard in server.requests] == [
            (OPENAI, {"model": "m", "n": 0}),
            (OPENAI, {"model": "m", "n": 1}),
        ]
        assert server.requests[0].headers["content-type"] == "application/json"

    def test_a_connection_is_kept_alive_also_behind_a_stream_and_an_error(self) -> None:
        lines = [say("a"), sent(say("b"), gzip=True), status(500), say("c")]
        with ModelServer(*lines) as server, Client(server) as client:
            client.events()
            kept = client.connection.sock
            client.post(ANTHROPIC, stream=True).read()
            client.post().read()
            client.read()
            assert kept is not None
            assert client.connection.sock is kept

    def test_a_request_past_the_last_line_fails_and_says_so(self, snapshot: Callable[..., None]) -> None:
        with ModelServer(say("one")) as server, Client(server) as client:
            client.read()
            snapshot(client.read()["error"]["message"])
            assert client.read(ANTHROPIC)["error"]["type"] == "invalid_request_error"

    def test_a_looping_server_begins_again(self) -> None:
        with ModelServer.looping(say("one"), say("two")) as server, Client(server) as client:
            said = [client.read(ANTHROPIC)["content"][0]["text"] for _ in range(3)]
        assert said == ["one", "two", "one"]

    def test_many_ask_at_once_and_each_line_is_said_once(self) -> None:
        said: list[str] = []

        def ask(server: ModelServer) -> None:
            with Client(server) as client:
                said.append(client.read()["choices"][0]["message"]["content"])

        with ModelServer(*[say(str(n)) for n in range(20)]) as server:
            threads = [threading.Thread(target=ask, args=(server,)) for _ in range(20)]
            [thread.start() for thread in threads]
            [thread.join(BOUND_S) for thread in threads]
        assert sorted(said, key=int) == [str(n) for n in range(20)]

    def test_another_path_is_not_found(self) -> None:
        with ModelServer(say("x")) as server, Client(server) as client:
            answer = client.post("/v1/embeddings")
            assert (answer.status, b"/v1/embeddings" in answer.read()) == (404, True)

    def test_a_delay_is_kept_and_its_pieces_come_meanwhile(self) -> None:
        with ModelServer(say("one two").after(0.2)) as server, Client(server) as client:
            began = time.monotonic()
            answer = client.post(stream=True)
            first = answer.readline() + answer.readline() + answer.readline()
            assert b'"role": "assistant"' in first
            answer.read()
            assert time.monotonic() - began >= 0.2


class TestStatus:
    @pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
    def test_a_status_has_its_headers_and_the_shape_of_its_wire(self, path: str) -> None:
        line = status(429, "Slow down.", headers={"Retry-After": "Fri, 31 Dec 2100 23:59:59 GMT"})
        with ModelServer(line) as server, Client(server) as client:
            answer = client.post(path)
            assert (answer.status, answer.headers["retry-after"]) == (429, "Fri, 31 Dec 2100 23:59:59 GMT")
            assert json.loads(answer.read())["error"]["message"] == "Slow down."

    def test_a_text_is_a_page(self) -> None:
        with ModelServer(status(502, body="<h1>Bad gateway</h1>")) as server, Client(server) as client:
            answer = client.post()
            assert (answer.status, answer.headers["content-type"]) == (502, "text/html")
            assert answer.read() == b"<h1>Bad gateway</h1>"

    def test_anything_else_is_json(self) -> None:
        with ModelServer(status(400, body={"detail": [1]}), status(529)) as server, Client(server) as client:
            assert client.read() == {"detail": [1]}
            assert client.read(ANTHROPIC)["error"]["type"] == "overloaded_error"


class TestBreaks:
    @pytest.mark.parametrize("path", [OPENAI, ANTHROPIC])
    def test_a_stream_is_cut_behind_so_many_events(self, path: str) -> None:
        with ModelServer(say("a b c"), sent(say("a b c"), "cut", events=3)) as server, Client(server) as client:
            whole = client.events(path)
            with pytest.raises(IncompleteRead) as caught:
                client.events(path)
        cut = data_of(caught.value.partial)
        assert len(cut) == 3
        assert [json.loads(one).get("type") for one in cut] == [json.loads(one).get("type") for one in whole[:3]]

    @pytest.mark.parametrize("streamed", [False, True])
    @pytest.mark.parametrize("length", [0, 1, 30])
    def test_a_body_is_cut_behind_so_many_bytes(self, length: int, streamed: bool) -> None:
        line = sent(say("a b c"), "cut", bytes=length)
        with ModelServer(line) as server, Client(server) as client, pytest.raises(IncompleteRead) as caught:
            client.post(stream=streamed).read()
        assert len(caught.value.partial) == length

    def test_a_cut_behind_the_last_event_leaves_out_the_end_only(self) -> None:
        line = sent(say("a"), "cut", events=99)
        with ModelServer(line) as server, Client(server) as client, pytest.raises(IncompleteRead) as caught:
            client.events()
        assert data_of(caught.value.partial)[-1] == "[DONE]"

    def test_a_cut_without_a_place_comes_before_the_headers(self) -> None:
        line = sent(say("a"), "cut")
        with ModelServer(line) as server, Client(server) as client, pytest.raises(RemoteDisconnected):
            client.post()

    @pytest.mark.parametrize("place", [{}, {"events": 1}, {"bytes": 5}], ids=str)
    def test_a_connection_is_reset(self, place: Any) -> None:
        line = sent(say("a"), "reset", **place)
        with ModelServer(line) as server, Client(server) as client, pytest.raises(ConnectionResetError) as caught:
            client.post(stream=True).read()
        assert not isinstance(caught.value, RemoteDisconnected)

    @pytest.mark.parametrize("events", [0, 2])
    def test_a_stream_hangs_behind_so_many_events_until_the_server_closes(self, events: int) -> None:
        with ModelServer(sent(say("a b"), "hang", events=events)) as server, Client(server) as client:
            connection = client.connection
            answer = client.post(stream=True)
            assert len(data_of(b"".join(answer.readline() for _ in range(2 * events)))) == events
            connection.sock.settimeout(0.2)
            with pytest.raises(TimeoutError):
                answer.readline()
            server.__exit__()

    def test_a_server_that_hangs_before_the_headers_sends_nothing(self) -> None:
        line = sent(say("a"), "hang")
        with ModelServer(line) as server, Client(server, timeout=0.2) as client, pytest.raises(TimeoutError):
            client.post()

    def test_closing_ends_connections_that_nobody_uses(self) -> None:
        with ModelServer(say("a")) as server, Client(server) as client:
            client.read()
            server.__exit__()
            assert client.connection.sock.recv(1) == b""


class TestLies:
    def test_half_of_an_event_comes(self) -> None:
        with ModelServer(sent(say("a b"), "half", events=1)) as server, Client(server) as client:
            first, half, *rest = client.events()
        json.loads(first)
        assert half.startswith("{")
        with pytest.raises(ValueError, match="line 1"):
            json.loads(half)
        assert rest[-1] == "[DONE]"

    def test_half_of_a_whole_answer_comes(self) -> None:
        line = sent(say("a b"), "half")
        with ModelServer(line) as server, Client(server) as client, pytest.raises(ValueError, match="line 1"):
            client.read()

    def test_calls_have_the_same_id(self) -> None:
        line = sent(say("", call("a"), call("b")), ids=("x", "x"))
        with ModelServer(line, line) as server, Client(server) as client:
            assert [one["id"] for one in client.read()["choices"][0]["message"]["tool_calls"]] == ["x", "x"]
            assert [one["id"] for one in client.read(ANTHROPIC)["content"]] == ["x", "x"]

    def test_arguments_are_half_json(self) -> None:
        line = call_json("a", '{"x": 1')
        with ModelServer(line, line) as server, Client(server) as client:
            deltas = [json.loads(one).get("delta", {}) for one in client.events(ANTHROPIC)]
            assert "".join(delta.get("partial_json", "") for delta in deltas) == '{"x": 1'
            assert client.read(ANTHROPIC)["content"][0]["input"] == '{"x": 1'

    @pytest.mark.parametrize("count", [-1, "many", None, 10**30])
    def test_each_count_of_the_usage_is_wrong(self, count: object) -> None:
        line = sent(say("a"), usage=count)
        with ModelServer(line, line) as server, Client(server) as client:
            assert set(map(repr, client.read()["usage"].values())) == {repr(count)}
            assert set(map(repr, client.read(ANTHROPIC)["usage"].values())) == {repr(count)}

    def test_the_usage_is_another_one_or_is_missing(self) -> None:
        lines = [sent(say("a"), usage={"tokens": 3}), say("a").using(None), say("a").using(Usage(10**15, 1))]
        with ModelServer(*lines) as server, Client(server) as client:
            assert client.read()["usage"] == {"tokens": 3}
            assert "usage" not in client.read()
            assert client.read()["usage"]["prompt_tokens"] == 10**15

    @pytest.mark.parametrize("finish", [None, "tired"])
    def test_the_reason_for_the_end_is_missing_or_unknown(self, finish: str | None) -> None:
        line = sent(say("a"), finish=finish)
        with ModelServer(line, line) as server, Client(server) as client:
            assert client.read()["choices"][0]["finish_reason"] == finish
            assert client.read(ANTHROPIC)["stop_reason"] == finish

    def test_the_headers_of_a_line_replace_those_of_the_wire(self) -> None:
        line = sent(say("a"), headers={"content-type": "text/plain", "X-Odd": "1"})
        with ModelServer(line) as server, Client(server) as client:
            headers = client.post(stream=True).headers
        assert (headers.get_all("content-type"), headers["x-odd"]) == (["text/plain"], "1")

    def test_the_body_is_packed(self) -> None:
        with ModelServer(sent(say("a b"), gzip=True)) as server, Client(server) as client:
            answer = client.post(stream=True)
            assert answer.headers["content-encoding"] == "gzip"
            assert data_of(gzip.decompress(answer.read()))[-1] == "[DONE]"

    def test_lines_end_otherwise_and_comments_stand_between(self) -> None:
        with ModelServer(sent(say("a b"), crlf=True, comments=True)) as server, Client(server) as client:
            raw = client.post(ANTHROPIC, stream=True).read()
        assert b"\n" not in raw.replace(b"\r\n", b"")
        assert raw.count(b": keep-alive\r\n\r\n") == len(data_of(raw))


class TestMistakes:
    @pytest.mark.parametrize(
        ("given", "options", "where", "found"),
        [
            (["cutt"], {}, "sent, the fault", "cutt"),
            (["cut"], {"events": -1}, "sent, events", -1),
            ([], {"split": [2, 0]}, "sent, split", 0),
            ([], {"gzipp": True}, "sent, options", "gzipp"),
        ],
    )
    def test_a_way_of_sending_that_there_is_not_is_refused(
        self, given: Any, options: Any, where: str, found: object
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            sent(say("a"), *given, **options)
        assert (caught.value.where, caught.value.found) == (where, found)

    @pytest.mark.parametrize(("given", "options"), [([], {"events": 1}), (["half"], {"bytes": 1})])
    def test_a_place_that_does_not_fit_the_fault_is_refused(self, given: Any, options: Any) -> None:
        with pytest.raises(ConfigError, match="sent: ") as caught:
            sent(say("a"), *given, **options)
        assert caught.value.code == "usage_error"

    def test_only_lines_can_be_sent(self) -> None:
        with pytest.raises(ConfigError) as caught:
            ModelServer("hello")  # pyright: ignore[reportArgumentType]
        assert (caught.value.where, caught.value.found) == ("script", "hello")
        with pytest.raises(ConfigError) as caught:
            ModelServer.looping()
        assert caught.value.code == "usage_error"

    def test_a_server_has_an_address_only_while_it_is_open(self) -> None:
        with pytest.raises(ConfigError, match="open"):
            _ = ModelServer(say("a")).url
        with ModelServer(say("a")) as server, pytest.raises(ConfigError, match="open"), server:
            pass
