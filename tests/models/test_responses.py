"""OpenAI's Responses API: reasoning and server state between turns, refusals, failures."""

import json
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, TokenPrice, tool
from flyball.errors import ConfigError, Retryable, UsageError
from flyball.models import ResponsesModel
from flyball.request import Finish, Request
from flyball.testing import LoopingProvider, ModelServer, ScriptedModel, assert_honest, call, say, sent, status
from flyball.wire import normalize

HELLO = Request(normalize("Hello", run="r"))


@tool(poll=True)
def read(page: int) -> str:
    """Read a page."""
    return f"page {page}"


def made(server: ModelServer, **options: Any) -> ResponsesModel:
    return ResponsesModel("gpt-5.5", url=f"{server.url}/v1", **options)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_reasoning_goes_back_before_the_call_that_it_led_to(stream: bool) -> None:
    lines = [sent(call("read", page=page), thinking=f"Page {page}.") for page in (1, 2)]
    with ModelServer(*lines, say("So.")) as server:
        result = assert_honest(Agent(model=made(server, stream=stream), tools=[read]).run("Read."))
    assert result.text == "So."
    first, *_, last = (heard.body for heard in server.requests)
    assert (first["store"], first["include"]) == (False, ["reasoning.encrypted_content"])
    kinds = [item.get("type", "message") for item in last["input"]]
    assert kinds == ["message", *["reasoning", "function_call", "function_call_output"] * 2]
    assert last["input"][1] == {
        "id": "rs_0", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Page 1."}],
        "encrypted_content": "c2VhbGVk",
    }  # fmt: skip


def test_reasoning_keeps_its_place_between_two_calls() -> None:
    def made_call(number: int) -> dict[str, Any]:
        item = {"type": "function_call", "call_id": f"c{number}", "name": "read", "arguments": f'{{"page": {number}}}'}
        return {"id": f"fc_{number}", "status": "completed", **item}

    def thought(number: int) -> dict[str, Any]:
        return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "eA=="}

    message: dict[str, Any] = {
        "type": "message", "id": "m", "role": "assistant", "status": "completed", "phase": "commentary",
        "content": [{"type": "output_text", "text": "I read.", "annotations": []}],
    }  # fmt: skip
    output: list[Any] = [thought(1), message, made_call(1), thought(2), made_call(2)]
    body: dict[str, Any] = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": output}
    with ModelServer(status(200, body=body), say("So.")) as server:
        assert_honest(Agent(model=made(server), tools=[read]).run("Read."))
    items = server.requests[1].body["input"]
    assert items[1] == thought(1)
    assert items[2] == {"role": "assistant", "content": "I read.", "phase": "commentary"}
    assert [items[place].get("call_id") or items[place]["id"] for place in (3, 4, 5)] == ["c1", "rs_2", "c2"]
    assert [item["call_id"] for item in items[6:]] == ["c1", "c2"]


def test_a_model_that_does_not_reason_is_not_asked_for_reasoning() -> None:
    for name, asked in {"gpt-4.1": False, "gpt-4o-mini": False, "gpt-5-chat-latest": False, "o3": True}.items():
        assert ("include" in ResponsesModel(name).build_body(HELLO)) is asked
    body = ResponsesModel("o3", body={"include": ["message.output_text.logprobs"], "store": True}).build_body(HELLO)
    assert body["include"] == ["message.output_text.logprobs", "reasoning.encrypted_content"]
    assert ResponsesModel("my-deployment", body={"include": []}).build_body(HELLO)["include"] == []
    assert body["store"] is True


def test_reasoning_that_cannot_go_back_is_left_out() -> None:
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
    messages = normalize(["Hello", item, {"role": "assistant", "content": "Hi."}, "Go on."], run="r")
    body = ResponsesModel("o3").build_body(Request(messages))
    assert [item.get("role") for item in body["input"]] == ["user", "assistant", "user"]
    kept = ResponsesModel("o3", keeps_state=True).build_body(Request(messages))
    assert [item.get("type") for item in kept["input"]] == [None, "reasoning", None, None]


def test_reasoning_that_nothing_of_its_reply_follows_is_left_out() -> None:
    lone: list[Any] = [
        {"type": "reasoning", "id": f"rs_{n}", "summary": [], "encrypted_content": "eA=="} for n in (1, 2)
    ]
    result = {"type": "function_call_output", "call_id": "c1", "output": "page 1"}
    called = {"type": "function_call", "call_id": "c1", "name": "read", "arguments": "{}"}
    for conversation, kinds in (
        (["Hello", *lone, "Go on."], [None, None]),
        (["Hello", *lone, called, result], [None, "reasoning", "reasoning", "function_call", "function_call_output"]),
        (["Hello", called, lone[0], result, lone[1]], [None, "function_call", "function_call_output"]),
    ):
        body = ResponsesModel("o3").build_body(Request(normalize(conversation, run="r")))
        assert [item.get("type") for item in body["input"]] == kinds
        with LoopingProvider() as server:
            anyio.run(made(server).ask, Request(normalize(conversation, run="r")))
        assert server.refused == []


class TestState:
    @pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
    def test_a_request_carries_only_what_is_new(self, stream: bool) -> None:
        lines = [sent(call("read", page=page), thinking="Hm.") for page in (1, 2)]
        with ModelServer(*lines, say("So.")) as server:
            model = made(server, keeps_state=True, stream=stream)
            result = assert_honest(Agent(model=model, tools=[read], instructions="Be brief.").run("Read."))
        assert result.text == "So."
        bodies = [heard.body for heard in server.requests]
        assert [body.get("previous_response_id") for body in bodies] == [None, "resp_0", "resp_1"]
        assert [len(body["input"]) for body in bodies] == [1, 1, 1]
        assert bodies[2]["input"][0]["type"] == "function_call_output"
        kept = {(body["store"], body["instructions"], "include" in body) for body in bodies}
        assert kept == {(True, "Be brief.", False)}

    def test_a_lost_state_is_replaced_by_the_whole_conversation(self) -> None:
        lost = status(400, "Previous response with id 'resp_0' not found.", code="previous_response_not_found")
        with ModelServer(call("read", page=1), lost, say("So.")) as server:
            result = assert_honest(Agent(model=made(server, keeps_state=True), tools=[read]).run("Read."))
        assert (result.text, result.requests, result.turns) == ("So.", 3, 2)
        bodies = [heard.body for heard in server.requests]
        assert [body.get("previous_response_id") for body in bodies] == [None, "resp_0", None]
        assert [item.get("type") for item in bodies[2]["input"]] == [None, "function_call", "function_call_output"]

    def test_a_conversation_that_was_changed_is_sent_whole(self) -> None:
        with ModelServer(call("read", page=1), say("So.")) as server:
            result = Agent(model=made(server, keeps_state=True), tools=[read]).run("Read.")
            kept = list(result.messages)
            changed = [message for message in kept if message.n]
            model = made(server, keeps_state=True)
            assert model.build_body(Request(kept))["previous_response_id"] == "resp_1"
            whole = model.build_body(Request(changed))
        assert "previous_response_id" not in whole
        assert len(whole["input"]) == len([message for message in changed if message.type != "multimodal_part"])

    def test_another_model_is_not_told_of_the_state(self) -> None:
        with ModelServer(call("read", page=1), say("So.")) as server:
            result = Agent(model=made(server, keeps_state=True), tools=[read]).run("Read.")
        other = ScriptedModel(say("Yes."))
        assert Agent(model=other).run(result.messages).text == "Yes."
        assert "resp_1" not in str(ResponsesModel("o3").build_body(Request(result.messages)))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_refusal_and_a_filter_are_failures_of_their_own(stream: bool) -> None:
    for ending, words in (("refusal", "I can't help."), ("content_filter", "content_filter")):
        with ModelServer(say("I can't help.").ending(ending)) as server:
            result = assert_honest(Agent(model=made(server, stream=stream)).run("Go."))
        assert (result.stop, result.finish, result.requests) == ("failed", ending, 1)
        assert result.error is not None
        assert (result.error["code"], words in result.error["message"]) == (ending, True)


def test_a_failed_response_is_an_error_and_some_may_pass() -> None:
    for code, expected in {"server_error": True, "rate_limit_exceeded": True, "invalid_prompt": False}.items():
        failed: dict[str, Any] = {
            "id": "resp_1",
            "status": "failed",
            "error": {"code": code, "message": "No."},
            "output": [],
        }
        event = f'data: {{"type": "response.failed", "response": {str(failed).replace(chr(39), chr(34))}}}\n\n'
        stream = status(200, body=event, headers={"content-type": "text/event-stream"})
        for line, streamed in ((stream, True), (status(200, body=failed), False)):
            with ModelServer(line) as server, pytest.raises(Exception, match="No") as caught:
                anyio.run(made(server, stream=streamed).ask, HELLO)
            assert isinstance(caught.value, Retryable) is expected


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("code", ["misalignment_policy_violation", "bio_policy", "content_filter"])
def test_an_error_of_the_filter_is_a_failure_of_its_own(code: str, stream: bool) -> None:
    failed: dict[str, Any] = {"id": "r", "status": "failed", "error": {"code": code, "message": "Blocked."}}
    event = f"data: {json.dumps({'type': 'response.failed', 'response': failed})}\n\n"
    late = status(
        200, body=event if stream else failed, headers={"content-type": "text/event-stream"} if stream else {}
    )
    for line in (late, status(400, "Blocked.", code=code)):
        with ModelServer(line) as server:
            result = assert_honest(Agent(model=made(server, stream=stream)).run("Go."))
        assert (result.stop, result.finish, result.requests) == ("failed", "content_filter", 1)
        assert result.error is not None
        assert (result.error["code"], "Blocked." in result.error["message"]) == ("content_filter", True)


def test_fields_that_state_depends_on_are_refused() -> None:
    for field in ("previous_response_id", "conversation", "background", "input", "max_output_tokens"):
        with pytest.raises(UsageError, match=field):
            ResponsesModel("m", body={field: "x"})
    with pytest.raises(ValueError, match="keeps_state"):
        ResponsesModel("m", keeps_state="yes")  # pyright: ignore[reportArgumentType]


def test_the_price_is_that_of_the_service_tier() -> None:
    with ModelServer.looping(say("So.")) as server:
        costs: list[float] = []
        for tier in ("default", "priority"):
            model = made(server, provider="openai", body={"service_tier": tier})
            result = Agent(model=model, limits=Limits(usd=1)).run("Go.")
            costs.append(result.to_dict()["cost_usd"]["gpt-5.5"])
    assert 0 < costs[0] < costs[1]


@pytest.mark.parametrize(
    ("limits", "flag"),
    [
        *((Limits(tokens=tokens), "max_tokens_reached") for tokens in (320, 328, 336)),
        *((Limits(usd=dollars), "max_cost_usd_reached") for dollars in (0.001, 0.004, 0.01)),
        *(
            (Limits(by_model={"gpt-*": Limits(usd=dollars)}), "max_cost_usd_of_gpt-*_reached")
            for dollars in (0.001, 0.004)
        ),
    ],
)
def test_a_reply_shorter_than_the_provider_accepts_is_refused_by_the_budget(limits: Limits, flag: str) -> None:
    with LoopingProvider(output_tokens=5) as server:
        model = made(server, price=TokenPrice(input=1, output=100))
        result = assert_honest(Agent(model=model, tools=[read], limits=limits).run("Read."))
    assert (result.stop, result.flags, server.refused) == ("budget", (flag,), [])
    assert all(request.body["max_output_tokens"] >= 16 for request in server.requests)


def test_a_maximum_below_what_the_provider_accepts_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="at least 16"):
        Agent(model=ResponsesModel("gpt-5.5", max_output_tokens=15)).run("Go.")
    with pytest.raises(ConfigError, match="at least 16"):
        Agent(model=ResponsesModel("gpt-5.5"), max_output_tokens=15).run("Go.")


def test_a_finish_is_told_by_the_status() -> None:
    with ModelServer(say("Once").ending("length"), call("read", page=1)) as server:
        model = made(server)
        found = [anyio.run(model.ask, HELLO).finish for _ in range(2)]
    assert found == [Finish.LENGTH, Finish.CALLS]
