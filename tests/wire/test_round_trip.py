"""Whatever conversation goes through a wire comes out the same; whatever is no conversation is refused, in one way."""

import copy
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flyball.errors import MessageError
from flyball.message import Message, MessageType, Role, check_pairs, repair_pairs
from flyball.wire import normalize, to_anthropic, to_openai

Json = dict[str, Any]
BOUNDED = settings(max_examples=60)

words = st.text(max_size=6)
speech = st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1, max_size=6)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2))
arguments = st.dictionaries(words, values, max_size=2)
names = st.sampled_from(["add", "look_up", "fetch"])
cached = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}])
media = st.sampled_from(["https://x.test/a.png", "data:image/png;base64,aGk="])


def text(said: str, more: Json) -> Json:
    return {"type": "text", "text": said} | more


def image_url(url: str) -> Json:
    return {"type": "image_url", "image_url": {"url": url}}


def image(url: str) -> Json:
    return {"type": "image", "source": {"type": "url", "url": url}}


openai_texts = st.lists(st.builds(text, words, cached), min_size=1, max_size=2)
openai_parts = st.lists(st.builds(text, words, cached) | media.map(image_url), min_size=1, max_size=3)
anthropic_texts = st.lists(st.builds(text, speech, cached), max_size=2)
anthropic_parts = st.lists(st.builds(text, speech, cached) | media.map(image), min_size=1, max_size=3)
thoughts = st.lists(st.just({"type": "thinking", "thinking": "hm", "signature": "s"}), max_size=1)


@st.composite
def openai_batch(draw: st.DrawFn, first: int) -> list[Json]:
    """An assistant's message with calls, and a result for each in any order."""
    calls: list[Json] = []
    for n in range(draw(st.integers(1, 3))):
        written = draw(arguments.map(json.dumps) | st.sampled_from(["", "oops", "[1]"]))
        function = {"name": draw(names), "arguments": written}
        calls.append({"id": f"call_{first}_{n}", "type": "function", "function": function})
    content = draw(st.none() | words | openai_texts)
    results = [{"role": "tool", "tool_call_id": call["id"], "content": draw(words | openai_texts)} for call in calls]
    return [{"role": "assistant", "content": content, "tool_calls": calls}, *draw(st.permutations(results))]


def openai_messages(n: int) -> st.SearchStrategy[list[Json]]:
    """One message, or a batch and its results; `n` makes the call ids differ."""
    said = words | openai_texts
    system = st.fixed_dictionaries({"role": st.sampled_from(["system", "developer"]), "content": said})
    user = st.fixed_dictionaries(
        {"role": st.just("user"), "content": words | openai_parts}, optional={"name": st.just("bob")}
    )
    assistant = st.fixed_dictionaries({"role": st.just("assistant"), "content": said | st.none()})
    return st.one_of(st.lists(system | user | assistant, min_size=1, max_size=1), openai_batch(n))


@st.composite
def anthropic_batch(draw: st.DrawFn, first: int) -> list[Json]:
    """An assistant's message with uses, and a user's message with a result for each and perhaps a text."""
    uses: list[Json] = []
    for n in range(draw(st.integers(1, 3))):
        block = {"type": "tool_use", "id": f"use_{first}_{n}", "name": draw(names), "input": draw(arguments)}
        uses.append(block | draw(cached))
    results: list[Json] = []
    for use in draw(st.permutations(uses)):
        result: Json = {"type": "tool_result", "tool_use_id": use["id"]}
        result |= draw(st.sampled_from([{}, {"is_error": True}, {"is_error": False}]))
        results.append(result | ({"content": draw(speech | anthropic_texts)} if draw(st.booleans()) else {}))
    content = draw(thoughts) + draw(anthropic_texts) + uses
    return [
        {"role": "assistant", "content": content},
        {"role": "user", "content": results + draw(anthropic_texts)},
    ]


def anthropic_messages(n: int) -> st.SearchStrategy[list[Json]]:
    """One message, or a batch and its results; `n` makes the call ids differ."""
    user = st.fixed_dictionaries({"role": st.just("user"), "content": speech | anthropic_parts})
    blocks = st.lists(st.builds(text, speech, cached), min_size=1, max_size=2)
    assistant = st.fixed_dictionaries({"role": st.just("assistant"), "content": speech | blocks})
    return st.one_of(st.lists(user | assistant, min_size=1, max_size=1), anthropic_batch(n))


def flat(batches: tuple[list[Json], ...]) -> list[Json]:
    return [message for batch in batches for message in batch]


openai_conversation = st.tuples(*map(openai_messages, range(3))).map(flat)
anthropic_conversation = st.tuples(*map(anthropic_messages, range(3))).map(flat)


def facts(messages: list[Message]) -> list[tuple[Any, ...]]:
    """What has to survive a crossing: order, texts, ids, names and arguments; system texts first, as Anthropic has."""
    found: list[tuple[Any, ...]] = []
    for message in sorted(messages, key=lambda message: message.role is not Role.SYSTEM):
        payload = message.payload or {}
        if message.type is MessageType.TEXT and message.content.strip():
            found.append(("text", str(message.role), message.content))
        elif message.type is MessageType.TOOL_CALL:
            found.append(("call", payload["call_id"], payload["name"], parsed(payload["arguments"])))
        elif message.type is MessageType.TOOL_RESULT:
            found.append(("result", payload["call_id"], message.content))
    return found


def parsed(given: str | Json) -> Json:
    if not isinstance(given, str):
        return given
    return {} if given == "" else {"_raw": given} if given in ("oops", "[1]") else json.loads(given)


@BOUNDED
@given(openai_conversation)
def test_openai_conversations_come_back_as_they_were(conversation: list[Json]) -> None:
    before = copy.deepcopy(conversation)
    messages = normalize(conversation, run="r")
    assert to_openai(messages) == conversation == before
    assert normalize(to_openai(messages), run="r") == messages
    assert check_pairs(messages) == []


@BOUNDED
@given(anthropic_conversation)
def test_anthropic_conversations_come_back_as_they_were(conversation: list[Json]) -> None:
    before = copy.deepcopy(conversation)
    messages = normalize(conversation, run="r")
    assert to_anthropic(messages) == (None, conversation)
    assert normalize(to_anthropic(messages)[1], run="r") == messages
    assert conversation == before
    assert check_pairs(messages) == []


@BOUNDED
@given(openai_conversation)
def test_crossing_from_openai_to_anthropic_keeps_the_facts(conversation: list[Json]) -> None:
    messages = normalize(conversation, run="r")
    system, crossed = to_anthropic(messages)
    said = [message.content for message in messages if message.role is Role.SYSTEM and message.content.strip()]
    assert (system or "") == "\n\n".join(said)
    again = normalize(crossed, run="r")
    assert facts(again) == [fact for fact in facts(messages) if fact[:2] != ("text", "system")]
    assert check_pairs(again) == []


@BOUNDED
@given(anthropic_conversation)
def test_crossing_from_anthropic_to_openai_keeps_the_facts(conversation: list[Json]) -> None:
    messages = normalize(conversation, run="r")
    again = normalize(to_openai(messages), run="r")
    assert facts(again) == facts(messages)
    assert check_pairs(again) == []


@BOUNDED
@given(openai_conversation | anthropic_conversation)
def test_envelopes_of_any_conversation_survive_json_and_being_read_again(conversation: list[Json]) -> None:
    messages = normalize(conversation, run="r", at=1.5)
    written = json.loads(json.dumps([message.to_dict() for message in messages]))
    assert normalize(written, run="other") == normalize(messages, run="other") == messages


class Odd:
    """Something that no JSON has."""


odd = st.sampled_from([Odd(), b"x", {1, 2}, float("nan"), 1j, {3: 4}, ("a", "b"), range(2)])
KEYS = """
    role content tool_calls tool_call_id type text id name input tool_use_id is_error function arguments schema source
    version created_at payload metadata group call_id part parts shape wire message refusal
"""
TELLING = """
    user assistant tool system developer text tool_use tool_result image image_url thinking function tool_call openai
    multimodal_part anthropic flyball.message message r:0 1970-01-01T00:00:00Z
"""
keys, telling = st.sampled_from(KEYS.split()), st.sampled_from(TELLING.split())
junk: st.SearchStrategy[Any] = st.recursive(
    scalars | odd | telling,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys | words, inner, max_size=4),
    max_leaves=12,
)
ids = st.sampled_from(["a", "b", ""])
blocks = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "image", "image_url", "thinking"]), "text": words},
    optional={"id": ids, "name": ids, "input": arguments, "tool_use_id": ids, "content": words | st.lists(junk)},
)
calls: st.SearchStrategy[Any] = st.fixed_dictionaries(
    {"id": ids, "function": st.fixed_dictionaries({"name": ids, "arguments": words | junk})}
)
near = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": words | st.lists(blocks | junk, max_size=3)},
    optional={"refusal": junk},
) | st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "tool"]), "content": st.none() | words},
    optional={"tool_calls": st.lists(calls | junk, max_size=2), "tool_call_id": ids},
)
envelopes = st.fixed_dictionaries(
    {
        "schema": st.just("flyball.message"),
        "version": st.just(1),
        "id": st.just("r:0"),
        "created_at": st.just("1970-01-01T00:00:00Z"),
        "type": st.sampled_from(MessageType),
        "role": st.sampled_from(Role),
        "content": words,
    },
    optional={
        "payload": st.dictionaries(keys, junk, max_size=3)
        | st.just({"call_id": "a", "name": "f", "arguments": "{}", "part": {"type": "text"}, "shape": "openai"}),
        "metadata": st.none() | st.fixed_dictionaries({"wire": junk}),
        "group": st.none() | st.integers(0, 2),
    },
)


@settings(max_examples=100)
@given(junk | st.lists(junk | near | envelopes, max_size=4))
def test_junk_is_read_or_refused_and_what_is_read_can_be_written_and_repaired(messages: Any) -> None:
    made: list[Message] = []
    refusal = None
    try:
        made = normalize(messages, run="r")
    except MessageError as error:
        refusal = str(error)
    assert refusal is None or refusal.startswith("messages[")
    assert [Message.from_dict(json.loads(json.dumps(each.to_dict(), allow_nan=False))) for each in made] == made
    repaired = repair_pairs(made)
    assert check_pairs(repaired) == []
    for written in (to_openai(repaired), to_anthropic(repaired)):
        json.dumps(written, allow_nan=False)
