"""Envelopes of the Agents API."""

from typing import Any

import pytest

from flyball import MessageError, run_conversation
from flyball.message import check_pairs
from flyball.testing import ScriptedModel, say
from flyball.wire import normalize, to_openai


def envelope(kind: str, role: str, content: Any, **payload: Any) -> dict[str, Any]:
    fields = {"type": kind, "role": role, "content": content, "payload": payload, "metadata": {"x": 1}}
    return {"schema": "agents-api.message", "version": 1, **fields}


def test_texts_and_parts_are_read_like_provider_messages() -> None:
    parts = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {"url": "x"}}]
    messages = normalize([envelope("text", "user", "hi"), envelope("multimodal_part", "user", parts)], run="r")
    assert [(message.type, message.content) for message in messages] == [
        ("text", "hi"),
        ("text", "Look:"),
        ("multimodal_part", ""),
    ]


def test_calls_and_results_without_ids_are_paired_by_tool_in_order() -> None:
    items = [
        envelope("tool_call", "assistant", "", tool_name="add", parameters={"a": 1}),
        envelope("tool_call", "assistant", "", tool_name="add", parameters={"a": 2}),
        envelope("tool_call", "assistant", "", tool_name="look"),
        envelope("tool_result", "user", "seen", tool_name="look", success=True),
        envelope("tool_result", "user", "1", tool_name="add", success=False),
        envelope("tool_result", "tool", "", tool_name="add", tool_data={"sum": 2}),
    ]
    messages = normalize(items, run="r")
    assert check_pairs(messages) == []
    payloads: list[Any] = [message.payload for message in messages]
    assert [payload["call_id"] for payload in payloads[3:]] == ["call-2", "call-0", "call-1"]
    assert [payload["is_error"] for payload in payloads[3:]] == [False, True, False]
    assert (messages[5].content, len(to_openai(messages))) == ('{"sum": 2}', 4)


def test_ids_in_the_payload_are_kept() -> None:
    items = [
        envelope("tool_call", "assistant", "", tool_name="add", tool_call_id="c9"),
        envelope("tool_result", "user", "1", tool_name="add", tool_call_id="c9"),
    ]
    assert [(message.payload or {})["call_id"] for message in normalize(items, run="r")] == ["c9", "c9"]


def test_other_types_keep_their_payload_and_an_error_gets_a_code() -> None:
    items = [envelope("final_result", "assistant", "x", url="u"), envelope("error", "assistant", "no")]
    assert [message.payload for message in normalize(items, run="r")] == [{"url": "u"}, {"code": "error"}]


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({**envelope("text", "user", "x"), "version": 2}, "version"),
        (envelope("song", "user", "x"), "type"),
        (envelope("text", "boss", "x"), "role"),
        (envelope("tool_call", "assistant", ""), "payload.tool_name"),
        (envelope("tool_call", "assistant", "", tool_name="a", parameters=[1]), "payload.parameters"),
        ({**envelope("text", "user", "x"), "payload": "x"}, "payload"),
    ],
)
def test_a_wrong_envelope_is_refused_with_its_field(item: Any, field: str) -> None:
    with pytest.raises(MessageError, match=rf"messages\[0\]\.{field}"):
        normalize([item], run="r")


def test_a_conversation_continues_from_envelopes() -> None:
    model = ScriptedModel(say("Hello again."))
    items = [envelope("text", "user", "hi"), envelope("text", "assistant", "hello"), envelope("text", "user", "again")]
    assert run_conversation(items, [], model, settings={}).text == "Hello again."
    assert [message.content for message in model.requests[0].messages] == ["hi", "hello", "again"]
