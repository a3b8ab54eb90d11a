"""Whole runs over the wires: what the loop makes of what they tell it."""

import subprocess
import sys
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from flyball import Agent, Limits, TokenPrice, Usage, tool
from flyball.event import Delta, Event, ModelRequested
from flyball.models import AnthropicModel, OpenAIModel
from flyball.models.http import HttpModel
from flyball.testing import ModelServer, RuleFolder, assert_honest, call, say, sent, status

Made = Callable[..., HttpModel]


@tool(poll=True)
def read(page: int) -> str:
    """Read a page."""
    return f"page {page} " * 400


def test_a_conversation_that_is_too_long_is_shortened_and_the_turn_given_back(made: Made) -> None:
    pages = [call("read", page=page) for page in range(5)]
    with ModelServer(*pages, status(400, "prompt is too long: 9 > 8"), say("I read five pages.")) as server:
        result = assert_honest(Agent(model=made(server), tools=[read]).run("Read."))
    assert (result.stop, result.text, result.turns) == ("completed", "I read five pages.", 6)
    refused, shortened = (str(heard.body) for heard in server.requests[-2:])
    assert len(shortened) < len(refused)


def test_a_conversation_that_cannot_be_shortened_ends_with_the_words_of_the_provider(made: Made) -> None:
    with ModelServer.looping(status(413, "At most 9 bytes.")) as server:
        result = assert_honest(Agent(model=made(server)).run("Read."))
    assert (result.stop, result.turns, result.flags) == ("budget", 0, ("max_context_tokens_reached",))
    assert result.error is not None
    assert "answered 413: At most 9 bytes." in result.error["message"]
    assert "At most 9 bytes." in result.explain()


def test_the_text_is_told_to_those_who_watch(made: Made) -> None:
    seen: list[Event] = []
    with ModelServer(say("").streaming("It ", "is ", "3.")) as server:
        Agent(model=made(server), sinks=[seen.append]).run("Go.")
    assert [event.text for event in seen if isinstance(event, Delta)] == ["It ", "is ", "3."]


def test_a_cap_is_sent_where_tokens_are_limited(made: Made, wire: str) -> None:
    with ModelServer(say("So").using(None)) as server:
        Agent(model=made(server), limits=Limits(tokens=2_000)).run("Go.")
    body = server.requests[0].body
    body = body.get("generationConfig", body)
    key = {"google": "maxOutputTokens", "openai-responses": "max_output_tokens"}.get(wire, "max_tokens")
    assert 0 < body[key] < 2_000


def test_an_answer_that_may_be_any_text_is_not_asked_for_as_json(made: Made) -> None:
    with ModelServer(say("So it is.")) as server:
        result = Agent(model=made(server), output=str).run("Go.")
    assert result.output == "So it is."
    assert (
        not {"output_config", "response_format", "system", "text", "generationConfig", "instructions"}
        & server.requests[0].body.keys()
    )


def test_thoughts_that_led_to_nothing_do_not_go_back() -> None:
    with ModelServer(sent(say("").ending("length"), thinking="Well, well."), say("3")) as server:
        result = Agent(model=AnthropicModel("m", url=server.url), output=int).run("How many?")
    assert result.output == 3
    assert [message["role"] for message in server.requests[1].body["messages"]] == ["user", "user"]


def test_each_kind_of_token_has_its_price(made: Made, wire: str) -> None:
    """Gemini does not report tokens that it wrote to its cache."""
    written = 0 if wire == "google" else 500
    used = Usage(input=1_600, output=50, cached=1_000, written=written)
    with ModelServer(say("So").using(used)) as server:
        model = made(server, price=TokenPrice(input=5, output=25, cached=0.5, written=6.25))
        result = Agent(model=model, limits=Limits(usd=1)).run("Go.")
    assert result.usage == used
    assert result.to_dict()["cost_usd"] == {model.name: 0.005375 if written else 0.00475}


def test_the_last_report_is_asked_for_without_tools_that_could_be_called(made: Made, wire: str) -> None:
    lines = [call("read", page=1), call("read", page=2), say("I read two pages.")]
    with ModelServer(*lines) as server:
        result = assert_honest(Agent(model=made(server), tools=[read], limits=Limits(turns=2)).run("Read."))
    assert (result.stop, result.text) == ("budget", "I read two pages.")
    last = server.requests[-1].body
    assert last.get("tool_choice") == ({"type": "none"} if wire == "anthropic" else None)
    assert ("tools" in last) == (wire == "anthropic")


def test_signed_reasoning_goes_back_with_the_calls_it_led_to() -> None:
    thought = sent(call("read", page=1), thinking="Which page? The first.")
    with ModelServer(thought, say("So.")) as server:
        result = assert_honest(Agent(model=AnthropicModel("m", url=server.url), tools=[read]).run("Read."))
    assert result.text == "So."
    blocks = server.requests[1].body["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert blocks[0]["signature"]


def test_two_models_of_two_wires_share_a_conversation(tmp_path: Path) -> None:
    rules = RuleFolder(tmp_path).add("on_tool_complete", 'type = "use_model"\nmodel = "other"').load()
    with ModelServer(sent(call("read", page=1), thinking="hm"), call("read", page=2), say("So.")) as server:
        first, other = AnthropicModel("a", url=server.url), OpenAIModel("b", url=f"{server.url}/v1")
        agent = Agent(model=first, models={"other": other}, tools=[read], rules=rules)
        result = assert_honest(agent.run("Read."))
    assert result.text == "So."
    assert [heard.body["model"] for heard in server.requests] == ["a", "b", "b"]
    assert [message["role"] for message in server.requests[1].body["messages"]] == ["user", "assistant", "tool"]


PROGRAM = """
import asyncio
from flyball import Agent, Limits
from flyball.testing import ModelServer, say, sent
with ModelServer.looping(say("hello")) as server:
    agent = Agent(model=server.url + "/v1#m")
    print(agent.run("Go.").text, asyncio.run(agent.arun("Go.")).text, agent.start("Go.").result().text)
with ModelServer.looping(sent(say("").streaming(*["so "] * 50), "hang", events=8)) as server:
    agent = Agent(model=server.url + "/v1#m", limits=Limits(seconds=60))
    run = agent.start("Go.")
    next(event for event in run if type(event).__name__ == "Delta")
    run.cancel()
    print(run.result().stop)
"""


def test_a_program_that_asked_models_ends_without_a_word() -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "hello hello hello\ncancelled\n"
    said = [line for line in done.stderr.splitlines() if line and not line.startswith("Executing <")]
    assert said == []


def test_a_long_document_counts_by_its_pages_and_not_as_text() -> None:
    document = b64encode(b"%PDF-1.7\n" + b"<< /Type /Page >>\n" * 4 + bytes(900_000)).decode()
    source = {"type": "base64", "media_type": "application/pdf", "data": document}
    content = [{"type": "text", "text": "What does it say?"}, {"type": "document", "source": source}]
    with ModelServer(say("That all is well.")) as server:
        agent = Agent(
            model=AnthropicModel("claude-sonnet-4-5", url=server.url, key="key"), limits=Limits(tokens=30_000)
        )
        result = assert_honest(agent.run([{"role": "user", "content": content}]))
    assert (result.text, server.requests[0].body["messages"][0]["content"][1]) == ("That all is well.", content[1])
    asked = next(event for event in result.events if isinstance(event, ModelRequested))
    assert 12_000 <= asked.estimated_tokens <= 13_000
