"""The official SDKs read what the server says: it speaks as the providers do."""

from typing import Any

import anthropic
import openai
import pytest
from anthropic.types import TextBlock, ThinkingBlock, ToolUseBlock

from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.request import Usage
from flyball.testing import ModelServer, call, fail, say, sent, status, together

ASKED: Any = {"model": "m-1", "messages": [{"role": "user", "content": "1 + 2?"}]}
USED = Usage(input=100, output=20, cached=60, reasoning=7)
TEXT = "Hé, ☃ and 👩‍🚀:  two sums.\n"


def openai_client(server: ModelServer) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-key", max_retries=0, timeout=60)


def anthropic_client(server: ModelServer) -> Any:
    return anthropic.Anthropic(base_url=server.url, api_key="sk-key", max_retries=0, timeout=60)


def completion(server: ModelServer, *, stream: bool) -> Any:
    with openai_client(server) as client:
        if not stream:
            return client.chat.completions.create(**ASKED)
        with client.chat.completions.stream(**ASKED, stream_options={"include_usage": True}) as events:
            return events.get_final_completion()


def message(server: ModelServer, *, stream: bool) -> anthropic.types.Message:
    with anthropic_client(server) as client:
        if not stream:
            return client.messages.create(**ASKED, max_tokens=50)
        with client.messages.stream(**ASKED, max_tokens=50) as events:
            return events.get_final_message()


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


class TestOpenAI:
    def test_the_openai_sdk_reads_text_calls_usage_and_the_end(self, stream: bool) -> None:
        line = say(TEXT, call("add", a=1, b=2), call("add", a=3, b="☃")).using(USED)
        with ModelServer(line) as server:
            read = completion(server, stream=stream)
        choice, usage = read.choices[0], read.usage
        assert choice.message.content == TEXT
        assert [(one.id, one.function.name, one.function.arguments) for one in choice.message.tool_calls] == [
            ("call-0", "add", '{"a": 1, "b": 2}'),
            ("call-1", "add", '{"a": 3, "b": "☃"}'),
        ]
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
        assert usage.prompt_tokens_details.cached_tokens == 60
        assert usage.completion_tokens_details.reasoning_tokens == 7
        assert (choice.finish_reason, read.model) == ("tool_calls", "m-1")

    @pytest.mark.parametrize("finish", ["stop", "content_filter"])
    def test_the_openai_sdk_reads_why_a_reply_ended(self, finish: str) -> None:
        with ModelServer(say("x").ending(finish)) as server:
            assert completion(server, stream=False).choices[0].finish_reason == finish

    def test_without_stream_options_no_usage_is_told(self) -> None:
        with ModelServer(say("a b")) as server, openai_client(server) as client:
            chunks = list(client.chat.completions.create(**ASKED, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "a b"
        assert [chunk.usage for chunk in chunks if chunk.usage] == []

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (400, openai.BadRequestError),
            (401, openai.AuthenticationError),
            (404, openai.NotFoundError),
            (429, openai.RateLimitError),
            (500, openai.InternalServerError),
        ],
    )
    def test_the_openai_sdk_raises_its_own_error_for_a_status(
        self, code: int, kind: type[openai.APIStatusError]
    ) -> None:
        line = status(code, "Not so.", headers={"Retry-After": "7"})
        with ModelServer(line) as server, pytest.raises(kind, match=r"Not so\.") as caught:
            completion(server, stream=True)
        assert caught.value.response.headers["retry-after"] == "7"

    def test_the_openai_sdk_raises_the_error_in_a_stream(self) -> None:
        line = sent(say("a b c"), "error", events=2, message="Too busy.")
        with ModelServer(line) as server, pytest.raises(openai.APIError, match=r"Too busy\."):
            completion(server, stream=True)


class TestAnthropic:
    def test_the_anthropic_sdk_reads_text_calls_usage_and_the_end(self, stream: bool) -> None:
        line = say(TEXT, call("add", a=1, b="☃"), call("now")).using(USED)
        with ModelServer(line) as server:
            read = message(server, stream=stream)
        assert [(type(block), block.model_dump(include={"text", "id", "input"})) for block in read.content] == [
            (type(read.content[0]), {"text": TEXT}),
            (ToolUseBlock, {"id": "call-0", "input": {"a": 1, "b": "☃"}}),
            (ToolUseBlock, {"id": "call-1", "input": {}}),
        ]
        usage, details = read.usage, read.usage.output_tokens_details
        assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (40, 60, 20)
        assert details is not None
        assert (details.thinking_tokens, read.stop_reason, read.model) == (7, "tool_use", "m-1")

    def test_the_anthropic_sdk_reads_what_the_model_thought(self, stream: bool) -> None:
        with ModelServer(sent(say("3"), thinking="One and two, hm.")) as server:
            thought, said = message(server, stream=stream).content
        assert isinstance(thought, ThinkingBlock)
        assert isinstance(said, TextBlock)
        assert (thought.thinking, bool(thought.signature), said.text) == ("One and two, hm.", True, "3")

    @pytest.mark.parametrize(
        ("finish", "word"), [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal")]
    )
    def test_the_anthropic_sdk_reads_why_a_reply_ended(self, finish: str, word: str, stream: bool) -> None:
        with ModelServer(say("x").ending(finish)) as server:
            assert message(server, stream=stream).stop_reason == word

    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            (400, anthropic.BadRequestError),
            (401, anthropic.AuthenticationError),
            (413, anthropic.RequestTooLargeError),
            (429, anthropic.RateLimitError),
            (500, anthropic.InternalServerError),
            (529, anthropic.OverloadedError),
        ],
    )
    def test_the_anthropic_sdk_raises_its_own_error_for_a_status(
        self, code: int, kind: type[anthropic.APIStatusError]
    ) -> None:
        with ModelServer(status(code, "Not so.")) as server, pytest.raises(kind, match=r"Not so\."):
            message(server, stream=False)

    def test_the_anthropic_sdk_raises_the_error_in_a_stream(self) -> None:
        line = sent(say("a b c"), "error", events=3)
        with ModelServer(line) as server, pytest.raises(anthropic.APIStatusError, match="Overloaded"):
            message(server, stream=True)


ODD: list[Any] = [{"gzip": True}, {"crlf": True}, {"comments": True}, {"split": 1}, {"split": (3, 1, 20)}]
ODD.append({"gzip": True, "crlf": True, "comments": True, "split": (1, 2)})


class TestOddButRight:
    @pytest.mark.parametrize("manner", ODD, ids=str)
    def test_both_read_a_reply_that_is_sent_in_an_odd_way(self, manner: Any, stream: bool) -> None:
        line = sent(say(TEXT, call("add", a="☃")), **manner)
        with ModelServer(line, line) as server:
            by_openai = completion(server, stream=stream).choices[0].message
            by_anthropic = message(server, stream=stream).content
        assert (by_openai.content, by_openai.tool_calls[0].function.arguments) == (TEXT, '{"a": "☃"}')
        assert [block.model_dump(include={"text", "input"}) for block in by_anthropic] == [
            {"text": TEXT},
            {"input": {"a": "☃"}},
        ]


class TestFailures:
    """What a scripted model would raise comes as the providers say it."""

    def test_a_retryable_error_is_a_rate_limit_that_says_how_long(self) -> None:
        line = fail(Retryable("busy", after=2.5))
        with ModelServer(line, line) as server:
            with pytest.raises(openai.RateLimitError) as first:
                completion(server, stream=False)
            with pytest.raises(anthropic.RateLimitError) as second:
                message(server, stream=True)
        assert [one.value.response.headers["retry-after"] for one in (first, second)] == ["2.5", "2.5"]

    def test_a_context_that_is_too_long_has_the_words_of_each_provider(self) -> None:
        line = fail(ContextTooLong("300000 tokens > 200000 maximum"))
        with ModelServer(line, line) as server:
            with pytest.raises(openai.BadRequestError) as first:
                completion(server, stream=False)
            with pytest.raises(anthropic.BadRequestError, match="prompt is too long: 300000 tokens > 200000 maximum"):
                message(server, stream=False)
        assert first.value.code == "context_length_exceeded"

    def test_another_model_error_is_a_bad_request(self) -> None:
        line = fail(ModelError("no such tool"))
        with ModelServer(line) as server, pytest.raises(openai.BadRequestError, match="no such tool"):
            completion(server, stream=False)

    def test_an_error_of_the_system_is_a_connection_that_breaks(self) -> None:
        with ModelServer(fail(ConnectionError("gone"))) as server, pytest.raises(openai.APIConnectionError):
            completion(server, stream=False)


def test_together_makes_parallel_calls(stream: bool) -> None:
    line = together(call("add", a=1), call("sub", a=2), call("mul", a=3))
    with ModelServer(line, line) as server:
        calls = completion(server, stream=stream).choices[0].message.tool_calls
        blocks = message(server, stream=stream).content
    assert [one.function.name for one in calls] == ["add", "sub", "mul"]
    assert [block.name for block in blocks if isinstance(block, ToolUseBlock)] == ["add", "sub", "mul"]
