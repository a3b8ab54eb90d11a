"""Denied calls taken out of replies of any shape, and streams that further replies continue."""

import json
import random
from typing import Any

import pytest

from flyball.gateway.call_filter import CallFilter, CallHolder
from flyball.gateway.continuation import Continuation
from flyball.request import Call, Finish, Reply, Usage
from flyball.wire import ANTHROPIC, CHAT, GEMINI, RESPONSES, ReplyDraft, StreamReader, Wire
from flyball.wire.stream import ReadEvent

WIRES = [CHAT, RESPONSES, ANTHROPIC, GEMINI]
IDS = [wire.name for wire in WIRES]


def build_draft(chance: random.Random, number: int) -> ReplyDraft:
    """Return a reply with text, reasoning and calls, each there or not."""
    calls = tuple(
        Call(f"call-{number}-{place}", chance.choice(("add", "delete")), {"a": chance.randint(0, 9)})
        for place in range(chance.randint(0, 4))
    )
    text = chance.choice(("", f"Text {number}. "))
    if not text and not calls:
        text = "Nothing. "
    reply = Reply(text, calls, Usage(20, 10), Finish.CALLS if calls else Finish.STOP)
    return ReplyDraft(reply, id=str(number), thinking=chance.choice(("", "A thought.")))


def read_events(wire: Wire, draft: ReplyDraft) -> list[ReadEvent]:
    reader = StreamReader(wire.create_parser())
    raw = b"".join(event.encode() for event in wire.iter_events(draft))
    return [*reader.feed(raw), *reader.close()]


def parse(wire: Wire, events: list[ReadEvent]) -> Reply:
    """Return the reply in these events, as a client reads it."""
    reader = StreamReader(wire.create_parser())
    for event in events:
        name = f"event: {event.name}\n" if event.name else ""
        reader.feed(event.raw or f"{name}data: {json.dumps(event.json)}\n\n".encode())
    assert (reader.flaw, reader.error) == (None, None)
    return reader.parser.build_reply()


def describe(calls: Any) -> list[tuple[str, str, Any]]:
    read = [json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments for call in calls]
    return [(call.id, call.name, arguments) for call, arguments in zip(calls, read, strict=True)]


@pytest.mark.parametrize("wire", WIRES, ids=IDS)
def test_the_other_calls_and_the_text_of_any_reply_stay_as_they_are(wire: Wire) -> None:
    for seed in range(100):
        chance = random.Random(seed)
        draft = build_draft(chance, seed)
        places = {place for place in range(len(draft.calls)) if chance.random() < 0.5}
        kept = [call for place, call in enumerate(draft.calls) if place not in places]
        holder, call_filter = CallHolder(wire), CallFilter(wire, places)
        passed = holder.take(read_events(wire, draft))
        assert not parse(wire, passed).calls
        assert holder.has_call == bool(draft.calls)
        held = [edited for event in holder.held if (edited := call_filter.edit_event(event)) is not None]
        whole = wire.parse_reply(CallFilter(wire, places).edit_reply(wire.write_reply(draft)))
        for reply in (parse(wire, [*passed, *held]), whole):
            assert (reply.text, describe(reply.calls)) == (draft.text, describe(kept)), seed
            assert reply.usage == Usage(20, 10)


@pytest.mark.parametrize("wire", WIRES, ids=IDS)
def test_a_stream_is_continued_with_any_number_of_replies(wire: Wire) -> None:
    for seed in range(100):
        chance = random.Random(seed)
        drafts = [build_draft(chance, number) for number in range(chance.randint(1, 4))]
        continuation, sent = Continuation(wire), list[ReadEvent]()
        for number, draft in enumerate(drafts):
            if number:
                continuation.begin_reply()
            events = read_events(wire, draft)
            if number < len(drafts) - 1:  # its calls are denied
                events = CallHolder(wire).take(events) if draft.calls else drop_end(wire, events)
            joined = [continuation.join(event) if number else event for event in events]
            for event in filter(None, joined):
                continuation.note(event)
                sent.append(event)
        reply = parse(wire, sent)
        assert reply.text == "".join(draft.text for draft in drafts), seed
        assert describe(reply.calls) == describe(drafts[-1].calls), seed
        ids = {event.json.get("id") for event in sent if event.json} if wire is CHAT else set[Any]()
        assert len(ids) <= 1


def drop_end(wire: Wire, events: list[ReadEvent]) -> list[ReadEvent]:
    """Return the events of a reply without calls up to its end, as if a call followed."""
    ends = {"message_delta", "message_stop", "response.completed"}
    kept: list[ReadEvent] = []
    for event in events:
        data = event.json or {}
        finished = any(choice.get("finish_reason") for choice in data.get("choices", ()))
        if not data or finished or data.get("type") in ends or data.get("choices") == []:
            continue
        kept.append(event)
    return kept[:-1] if wire is GEMINI else kept
