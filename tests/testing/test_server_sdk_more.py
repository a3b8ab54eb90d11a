"""The official SDKs read what the server says over the Responses API and as Gemini."""

import asyncio
import json
from typing import Any
from urllib.request import Request, urlopen

import openai
import pytest
from google import genai
from google.genai import errors, types

from flyball.message import check_pairs
from flyball.request import Usage
from flyball.testing import LoopingProvider, ModelServer, call, say, sent, status
from flyball.wire import normalize

USED = Usage(input=100, output=20, cached=60, reasoning=7)
TEXT = "Hé, ☃ and 👩‍🚀:  two sums.\n"


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return request.param


CLIENT: dict[str, Any] = {
    "api_key": "sk-key", "max_retries": 0, "timeout": 60, "_strict_response_validation": True,
}  # fmt: skip
"""Options of OpenAI's clients. They check each body and event against the SDK's types."""


class TestResponses:
    def ask(self, server: ModelServer, *, stream: bool) -> Any:
        asked: Any = {"model": "m-1", "input": "1 + 2?"}
        client: Any = openai.OpenAI(base_url=f"{server.url}/v1", **CLIENT)
        with client:
            if not stream:
                return client.responses.create(**asked)
            return list(client.responses.create(**asked, stream=True))[-1].response

    def test_the_async_client_reads_the_same(self, stream: bool) -> None:
        async def ask(url: str) -> Any:
            async with openai.AsyncOpenAI(base_url=f"{url}/v1", **CLIENT) as client:
                if not stream:
                    return await client.responses.create(model="m-1", input="1 + 2?")
                events = await client.responses.create(model="m-1", input="1 + 2?", stream=True)
                last: Any = [event async for event in events][-1]
                return last.response

        line = sent(say(TEXT, call("add", a=1)).using(USED), thinking="Hm.", split=3)
        with ModelServer(line, line) as server:
            read = asyncio.run(ask(server.url))
            server.requests.clear()
            assert read.model_dump() == self.ask(server, stream=stream).model_dump()

    def test_the_sdk_continues_what_the_provider_keeps(self) -> None:
        client: Any = openai.OpenAI(base_url="http://127.0.0.1:9/v1", **CLIENT)
        with LoopingProvider() as server, client:
            client.base_url = f"{server.url}/v1"
            tool = {"type": "function", "name": "add", "parameters": {"type": "object"}, "strict": False}
            first = client.responses.create(model="m", input="1 + 2?", tools=[tool])
            result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "3"}
            again = client.responses.create(model="m", previous_response_id=first.id, input=[result], tools=[tool])
        assert ([again.output[-1].type], server.refused) == (["function_call"], [])

    def test_the_sdk_reads_text_reasoning_calls_usage_and_the_end(self, stream: bool) -> None:
        line = sent(say(TEXT, call("add", a=1, b="☃"), call("now")).using(USED), thinking="Hm.", split=3)
        with ModelServer(line) as server:
            read = self.ask(server, stream=stream)
        assert (read.output_text, read.status, read.model) == (TEXT, "completed", "m-1")
        thought, _, *calls = read.output
        assert (thought.summary[0].text, bool(thought.encrypted_content)) == ("Hm.", True)
        assert [(one.call_id, one.name, one.arguments) for one in calls] == [
            ("call-0", "add", '{"a": 1, "b": "☃"}'),
            ("call-1", "now", "{}"),
        ]
        usage = read.usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (100, 20, 120)
        assert (usage.input_tokens_details.cached_tokens, usage.output_tokens_details.reasoning_tokens) == (60, 7)

    def test_the_helper_of_the_sdk_gathers_a_stream(self) -> None:
        line = sent(say(TEXT, call("add", a=1)).using(USED), thinking="Hm.")
        client: Any = openai.OpenAI(base_url="http://127.0.0.1:9/v1", **CLIENT)
        with ModelServer(line) as server, client:
            client.base_url = f"{server.url}/v1"
            with client.responses.stream(model="m", input="?") as events:
                read = events.get_final_response()
        assert (read.output_text, read.output[-1].arguments) == (TEXT, '{"a": 1}')

    def test_the_sdk_reads_each_piece_as_it_comes(self) -> None:
        client: Any = openai.OpenAI(base_url="http://127.0.0.1:9/v1", **CLIENT)
        with ModelServer(say("").streaming("It ", "is ", "3.")) as server, client:
            client.base_url = f"{server.url}/v1"
            events = list(client.responses.create(model="m", input="?", stream=True))
        assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["It ", "is ", "3."]
        assert [event.sequence_number for event in events] == list(range(len(events)))

    @pytest.mark.parametrize(
        ("ending", "reason"), [("length", "max_output_tokens"), ("content_filter", "content_filter")]
    )
    def test_the_sdk_reads_why_a_reply_ended(self, ending: str, reason: str, stream: bool) -> None:
        with ModelServer(say("x").ending(ending)) as server:
            read = self.ask(server, stream=stream)
        assert (read.status, read.incomplete_details.reason) == ("incomplete", reason)

    def test_the_sdk_reads_a_refusal(self, stream: bool) -> None:
        with ModelServer(say("I can't.").ending("refusal")) as server:
            read = self.ask(server, stream=stream)
        assert read.output[0].content[0].refusal == "I can't."

    def test_the_sdk_raises_its_own_errors(self) -> None:
        with ModelServer(status(429, "Slow."), sent(say("a b"), "error", events=5, message="Too busy.")) as server:
            with pytest.raises(openai.RateLimitError, match=r"Slow\."):
                self.ask(server, stream=False)
            client: Any = openai.OpenAI(base_url=f"{server.url}/v1", **CLIENT)
            with client:
                [*_, last] = client.responses.create(model="m", input="?", stream=True)
        assert (last.type, last.message) == ("error", "Too busy.")


class TestGemini:
    def ask(self, server: ModelServer, *, stream: bool) -> list[types.GenerateContentResponse]:
        client: Any = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=server.url))
        asked: Any = {"model": "m-1", "contents": "1 + 2?"}
        try:
            if stream:
                return list(client.models.generate_content_stream(**asked))
            return [client.models.generate_content(**asked)]
        finally:
            client.close()

    def test_the_async_client_reads_the_same(self, stream: bool) -> None:
        async def ask(url: str) -> list[types.GenerateContentResponse]:
            client: Any = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=url)).aio
            asked: Any = {"model": "m-1", "contents": "1 + 2?"}
            try:
                if stream:
                    return [chunk async for chunk in await client.models.generate_content_stream(**asked)]
                return [await client.models.generate_content(**asked)]
            finally:
                await client.aclose()

        line = sent(say(TEXT, call("add", a=1)).using(USED), thinking="Hm.", split=3)
        with ModelServer(line, line) as server:
            read = asyncio.run(ask(server.url))
            server.requests.clear()
            plain = self.ask(server, stream=stream)
        left_out = {"sdk_http_response"}
        assert [one.model_dump(exclude=left_out) for one in read] == [one.model_dump(exclude=left_out) for one in plain]

    def test_the_sdk_makes_the_calls_of_a_chat_itself(self) -> None:
        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b

        with ModelServer(call("add", a=1, b=2), say("It is 3.")) as server:
            client: Any = genai.Client(api_key="key", http_options=types.HttpOptions(base_url=server.url))
            chat = client.chats.create(model="m-1", config=types.GenerateContentConfig(tools=[add]))
            said = chat.send_message("1 + 2?").text
            client.close()
        messages = normalize(server.requests[-1].body["contents"], run="r")
        assert (said, check_pairs(messages)) == ("It is 3.", [])  # the SDK sends results without ids

    def test_the_sdk_reads_text_thoughts_calls_usage_and_the_end(self, stream: bool) -> None:
        line = sent(say(TEXT, call("add", a=1, b="☃"), call("now")).using(USED), thinking="Hm.", split=3)
        with ModelServer(line) as server:
            replies = self.ask(server, stream=stream)
        parts: list[Any] = [part for one in replies for part in (one.candidates or [])[0].content.parts or []]  # pyright: ignore[reportOptionalMemberAccess]
        assert "".join(part.text for part in parts if part.text and not part.thought) == TEXT
        assert [part.text for part in parts if part.thought] == ["Hm."]
        calls = [part.function_call for part in parts if part.function_call]
        assert [(one.id, one.name, one.args) for one in calls] == [
            ("call-0", "add", {"a": 1, "b": "☃"}),
            ("call-1", "now", {}),
        ]
        last: Any = replies[-1]
        usage = last.usage_metadata
        assert (usage.prompt_token_count, usage.candidates_token_count, usage.thoughts_token_count) == (100, 13, 7)
        assert (usage.cached_content_token_count, usage.total_token_count) == (60, 120)
        assert (last.candidates[0].finish_reason, last.model_version) == (types.FinishReason.STOP, "m-1")

    @pytest.mark.parametrize(("ending", "reason"), [("length", "MAX_TOKENS"), ("content_filter", "SAFETY")])
    def test_the_sdk_reads_why_a_reply_ended(self, ending: str, reason: str, stream: bool) -> None:
        with ModelServer(say("x").ending(ending)) as server:
            last: Any = self.ask(server, stream=stream)[-1]
        assert last.candidates[0].finish_reason == types.FinishReason(reason)

    def test_the_sdk_raises_its_own_errors(self, stream: bool) -> None:
        with (
            ModelServer(status(400, "Not so.")) as server,
            pytest.raises(errors.ClientError, match=r"INVALID_ARGUMENT.*Not so\."),
        ):
            self.ask(server, stream=stream)


def test_gemini_is_streamed_as_an_array_to_a_client_that_does_not_ask_for_events() -> None:

    with ModelServer(say("").streaming("It ", "is ", "3.")) as server:
        url = f"{server.url}/v1beta/models/m:streamGenerateContent"
        request = Request(url, json.dumps({"contents": []}).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=60) as answer:
            chunks = json.loads(answer.read())
            assert answer.headers["content-type"] == "application/json"
    assert [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks] == ["It ", "is ", "3.", ""]
