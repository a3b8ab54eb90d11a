"""Both wires against a real server on this machine: replies, failures, time limits, connections."""

import gc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from flyball import Agent, Limits, ModelError, tool
from flyball.errors import ContextTooLong, Retryable
from flyball.models import AnthropicModel, OpenAIModel, Timeouts
from flyball.models.http import HttpModel
from flyball.request import Finish, Reply, Request, Usage
from flyball.testing import ModelServer, call, call_json, say, sent, status, together
from flyball.wire import normalize

Made = Callable[..., HttpModel]
HELLO = Request(normalize("Hello", run="r"))
BOUND_S = 60.0
_BEGUN = b"""data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "So"}}

data: {"choices": [{"delta": {"content": "So"}}]}

"""
"""A reply that has begun, for either wire: what it does not know it leaves aside."""


def ask(model: HttpModel, request: Request = HELLO, tell: Any = None, backend: str = "asyncio") -> Reply:
    async def main() -> Reply:
        with anyio.fail_after(BOUND_S):
            return await model.ask(request, tell)

    return anyio.run(main, backend=backend)


def error_of(model: HttpModel) -> ModelError:
    with pytest.raises(ModelError) as caught:
        ask(model)
    return caught.value


class TestReply:
    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_text_calls_usage_and_end_are_heard(self, made: Made, stream: bool, backend: str) -> None:
        used = Usage(input=50, output=9, cached=20, reasoning=0)
        line = say("Let me see.", call("add", a=1, b=2), call("look", at="ü")).using(used)
        with ModelServer(line) as server:
            reply = ask(made(server, stream=stream), backend=backend)
        assert (reply.text, reply.finish, reply.usage) == ("Let me see.", Finish.CALLS, used)
        assert [call.name for call in reply.calls] == ["add", "look"]
        assert len({call.id for call in reply.calls}) == 2
        assert reply.calls[1].arguments in ('{"at": "ü"}', '{"at": "\\u00fc"}')

    def test_the_text_is_told_as_it_comes(self, made: Made) -> None:
        pieces: list[str] = []
        with ModelServer(say("").streaming("It ", "is ", "3.")) as server:
            reply = ask(made(server), tell=pieces.append)
        assert ("".join(pieces), reply.text) == ("It is 3.", "It is 3.")
        assert len(pieces) == 3

    @pytest.mark.parametrize(
        ("ending", "finish"),
        [("length", Finish.LENGTH), ("content_filter", Finish.CONTENT_FILTER), ("stop", Finish.STOP)],
    )
    def test_the_reason_for_its_end_is_heard(self, made: Made, stream: bool, ending: str, finish: Finish) -> None:
        with ModelServer(say("So").ending(ending)) as server:
            assert ask(made(server, stream=stream)).finish is finish

    def test_a_reason_that_nobody_knows_is_an_end(self, made: Made, wire: str, stream: bool) -> None:
        """The Responses API has reasons only for replies that are not complete."""
        expected = Finish.LENGTH if wire == "openai-responses" else Finish.STOP
        with ModelServer(sent(say("So"), finish="brand_new")) as server:
            assert ask(made(server, stream=stream)).finish is expected

    def test_calls_are_calls_whatever_the_reason_says(self, made: Made, stream: bool) -> None:
        with ModelServer(call("add", a=1).ending("stop")) as server:
            assert ask(made(server, stream=stream)).finish is Finish.CALLS

    def test_half_the_arguments_are_passed_on_for_the_model_to_hear_of(self, made: Made) -> None:
        with ModelServer(call_json("add", '{"a": 1, "b"')) as server:
            assert ask(made(server)).calls[0].arguments == '{"a": 1, "b"'

    def test_ids_that_repeat_are_passed_on_and_a_run_tells_them_apart(self, made: Made, stream: bool) -> None:
        twins = sent(together(call("add", a=1, b=2), call("add", a=3, b=4)), ids=["same", "same"])
        with ModelServer(twins, say("3 and 7.")) as server:
            result = Agent(model=made(server, stream=stream), tools=[add]).run("Go.")
        assert (result.text, [one.text for one in result.tool_results]) == ("3 and 7.", ["3", "7"])

    @pytest.mark.parametrize("wrong", [-1, "many", 1.5, None, True])
    def test_usage_that_is_nonsense_counts_as_not_told(self, made: Made, stream: bool, wrong: object) -> None:
        with ModelServer(sent(say("So"), usage=wrong)) as server:
            reply = ask(made(server, stream=stream))
        assert reply.text == "So"
        assert reply.usage in (None, Usage())

    def test_how_the_bytes_come_does_not_matter(self, made: Made) -> None:
        line = say("", call("look", at="ünïcödé ✓")).streaming("Grüße ", "✓", " aus 東京")
        with ModelServer(sent(line, gzip=True, crlf=True, comments=True, split=[1, 2, 3, 7])) as server:
            reply = ask(made(server))
        assert reply.text == "Grüße ✓ aus 東京"
        assert "ünïcödé" in str(reply.calls) or "\\u00fc" in str(reply.calls)

    def test_a_server_that_does_not_stream_is_understood_all_the_same(self, wire: str, made: Made) -> None:
        whole: dict[str, Any] = {"content": [{"type": "text", "text": "Whole."}], "stop_reason": "end_turn"}
        if wire == "google":
            whole = {"candidates": [{"content": {"parts": [{"text": "Whole."}]}, "finishReason": "STOP"}]}
        if wire == "openai-responses":
            content = [{"type": "output_text", "text": "Whole."}]
            whole = {"status": "completed", "output": [{"type": "message", "role": "assistant", "content": content}]}
        if wire == "openai":
            whole = {"choices": [{"message": {"content": "Whole."}, "finish_reason": "stop"}]}
        with ModelServer(status(200, body=whole)) as server:
            assert ask(made(server)).text == "Whole."


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class TestFailure:
    @pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 503, 529])
    def test_what_may_pass_is_retryable_with_the_providers_words(self, made: Made, code: int) -> None:
        with ModelServer(status(code, "Come back later.", headers={"Retry-After": "3"})) as server:
            error = error_of(made(server))
        assert isinstance(error, Retryable)
        assert (error.after, error.began) == (3.0, False)
        assert f"answered {code}: Come back later." in str(error)

    def test_a_conversation_that_is_too_long_is_an_error_of_its_own(self, made: Made) -> None:
        with ModelServer(status(400, "prompt is too long: 9 > 8"), status(413, "too large")) as server:
            model = made(server)
            assert [type(error_of(model)) for _ in range(2)] == [ContextTooLong, ContextTooLong]

    def test_a_refused_key_is_final_hidden_and_the_hint_names_its_source(self, made: Made, key: str) -> None:
        with ModelServer(status(401, f"Incorrect API key provided: {key}.")) as server:
            error = error_of(made(server))
        assert type(error) is ModelError
        assert "Incorrect API key provided: ***" in str(error)
        assert str(error).endswith("(the key comes from key=)")

    def test_a_refused_key_of_the_environment_is_named_by_its_variable(
        self, made: Made, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with ModelServer(status(401, "Who are you?"), status(401, "Not you.")) as server:
            model = made(server, key=None)
            assert str(error_of(model)).endswith("(no key was sent; set FLYBALL_API_KEY)")
            monkeypatch.setenv("FLYBALL_API_KEY", "one-of-theirs")
            assert str(error_of(model)).endswith("(the key comes from FLYBALL_API_KEY)")

    def test_a_page_instead_of_a_reply_is_told(self, made: Made, stream: bool) -> None:
        with ModelServer(status(200, body="<html>Welcome to our wiki</html>")) as server:
            error = error_of(made(server, stream=stream))
        assert isinstance(error, Retryable)

    def test_a_server_that_is_not_there_is_not_asked_again(self, made: Made) -> None:
        with ModelServer() as server:
            model = made(server)
        error = error_of(model)
        assert not isinstance(error, Retryable)
        assert error.began is False

    def test_a_server_that_hangs_up_before_it_said_anything_has_used_nothing(self, made: Made, stream: bool) -> None:
        with ModelServer(sent(say("So"), "reset")) as server:
            error = error_of(made(server, stream=stream))
        assert isinstance(error, Retryable)
        assert not error.began

    @pytest.mark.parametrize("fault", ["cut", "reset", "half"])
    def test_a_stream_that_breaks_after_its_first_token_may_have_been_paid(self, made: Made, fault: Any) -> None:
        line = say("").streaming(*["It", "is", "a", "long", "story", "of", "words."])
        with ModelServer(sent(line, fault, events=6)) as server:
            error = error_of(made(server))
        assert isinstance(error, Retryable)
        assert error.began

    def test_an_error_in_the_middle_of_a_stream_is_told(self, made: Made) -> None:
        line = say("").streaming(*["It", "is", "a", "long", "story", "of", "words."])
        with ModelServer(sent(line, "error", events=6, message="The engine is on fire.")) as server:
            error = error_of(made(server))
        assert "The engine is on fire." in str(error)
        assert error.began

    def test_a_reply_without_an_end_is_none(self, made: Made) -> None:
        with ModelServer(sent(say("So"), finish=None)) as server:
            assert isinstance(error_of(made(server)), Retryable)

    def test_a_reply_that_has_ended_counts_also_where_its_stream_breaks_then(self, made: Made, wire: str) -> None:
        events = {"openai": 4, "anthropic": 6, "openai-responses": 9, "google": 2}[wire]
        with ModelServer(sent(say("So"), "cut", events=events)) as server:
            assert ask(made(server)).text == "So"

    def test_a_loop_asks_again_and_waits_as_long_as_it_is_asked_to(self, made: Made) -> None:
        with ModelServer(status(429, "busy", headers={"Retry-After": "0.01"}), say("Here.")) as server:
            result = Agent(model=made(server)).run("Hello?")
        assert (result.text, result.turns, result.requests) == ("Here.", 1, 2)


class TestPatience:
    def test_a_server_that_says_nothing_is_given_up(self, made: Made, stream: bool) -> None:
        with ModelServer(sent(say("So"), "hang")) as server:
            error = error_of(made(server, stream=stream, patience=Timeouts(first=0.05)))
        assert isinstance(error, Retryable)
        assert error.began
        assert "0.05" in str(error)

    def test_a_server_that_falls_silent_is_given_up(self, made: Made) -> None:
        with ModelServer(sent(say("").streaming(*["word "] * 9), "hang", events=6)) as server:
            error = error_of(made(server, patience=Timeouts(between=0.05)))
        assert "0.05" in str(error)
        assert error.began

    @pytest.mark.parametrize("idle", ['{"type": "ping"}', '{"choices": [{"delta": {"content": ""}}]}'])
    def test_a_server_that_only_keeps_the_connection_open_is_given_up(self, idle: str, key: str) -> None:
        async def serve(stream: SocketStream) -> None:
            async with stream:
                await stream.receive()
                await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + _BEGUN)
                with suppress(anyio.BrokenResourceError, anyio.EndOfStream):
                    while True:
                        await stream.send(f"data: {idle}\n\n".encode())
                        await anyio.sleep(0.01)

        async def main() -> None:
            kind = AnthropicModel if "ping" in idle else OpenAIModel
            async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
                url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(listener.serve, serve)
                    with pytest.raises(Retryable, match=r"0\.2"):
                        await kind("m", url=url, key=key, patience=Timeouts(between=0.2, whole=5)).ask(HELLO)
                    tasks.cancel_scope.cancel()

        anyio.run(main)

    def test_a_server_that_goes_on_and_on_is_given_up(self, made: Made) -> None:
        with ModelServer(sent(say("").streaming(*["word "] * 50).after(30))) as server:
            error = error_of(made(server, patience=Timeouts(whole=0.3)))
        assert isinstance(error, Retryable)
        assert "0.3" in str(error)

    def test_a_run_ends_at_its_deadline_with_what_was_said_so_far(self, made: Made, wire: str) -> None:
        events = {"openai": 3, "anthropic": 4, "openai-responses": 5, "google": 1}[wire]
        line = sent(say("").streaming("So far", " so good"), "hang", events=events)
        with ModelServer(line) as server:
            result = Agent(model=made(server), limits=Limits(seconds=1), grace=False).run("Go.")
        assert (result.stop, result.completed) == ("deadline", False)
        assert "So far" in result.text


class TestConnection:
    def test_one_connection_serves_many_requests(self, made: Made, stream: bool) -> None:
        async def main(model: HttpModel) -> None:
            for _ in range(5):
                await model.ask(HELLO)

        with ModelServer.looping(say("So")) as server:
            anyio.run(main, made(server, stream=stream))
            assert (len(server.requests), server.connections) == (5, 1)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_a_connection_is_closed_with_its_event_loop(self, made: Made, backend: str) -> None:
        with ModelServer.looping(say("So")) as server:
            model = made(server)
            for _ in range(2):
                assert ask(model, backend=backend).text == "So"
        gc.collect()

    def test_a_client_of_the_users_own_is_used_and_left_open(self, made: Made) -> None:
        async def main(server: ModelServer) -> None:
            async with httpx2.AsyncClient(headers={"x-mine": "yes"}) as client:
                await made(server, client=client).ask(HELLO)
                assert not client.is_closed

        with ModelServer(say("So")) as server:
            anyio.run(main, server)
        assert server.requests[0].headers["x-mine"] == "yes"

    def test_no_cookie_is_kept(self, made: Made) -> None:
        with ModelServer(sent(say("So"), headers={"Set-Cookie": "who=me; Path=/"}), say("So")) as server:

            async def main() -> None:
                model = made(server)
                await model.ask(HELLO)
                await model.ask(HELLO)

            anyio.run(main)
        assert "cookie" not in server.requests[1].headers

    def test_many_runs_at_once_share_a_client(self, made: Made) -> None:
        async def main(agent: Agent) -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(agent.arun, "Hello")

        with ModelServer.looping(say("So")) as server:
            anyio.run(main, Agent(model=made(server)))
        assert len(server.requests) == 20


class TestSecrecy:
    @pytest.mark.parametrize("code", [200, 401, 500])
    def test_the_key_is_in_no_result_event_message_or_name(self, made: Made, code: int, key: str) -> None:
        with ModelServer.looping(say("So") if code == 200 else status(code, f"You sent {key}.")) as server:
            model = made(server, headers={"x-team": f"{key}-team"})
            result = Agent(model=model, limits=Limits(retries=1)).run("Hello?")
        shown = [repr(model), str(vars(model)), str(result.to_dict()), str(result.events), str(result.error)]
        assert not [text for text in shown if key in text]
        assert model.secrets() == (key, f"{key}-team")

    @pytest.mark.parametrize("letters", [70, 480, 495])
    def test_no_part_of_the_key_is_left_where_words_are_cut(self, made: Made, letters: int, key: str) -> None:
        words = f"{'x' * letters}{key}"
        lines = [status(401, words), status(401, body=words), sent(say("So"), "error", message=words)]
        lines.append(status(200, body=words, headers={"Content-Type": "application/json"}))
        for line in lines:
            with ModelServer(line) as server:
                error = error_of(made(server))
            assert "x" * 50 in str(error)
            assert key[:4] not in str(error)
