"""Server-sent events of a run; the last one carries its record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import anyio

from ..agent.run import Run
from ..event import Event, RunEnded, RunStarted
from ..result import Result, Stop
from .asgi import Problem, Send, encode_headers

_HEADERS = {"content-type": "text/event-stream", "cache-control": "no-store", "x-accel-buffering": "no"}
_PING_S = 15.0
"""Seconds between pings. Proxies often close connections that are silent for longer."""
_OPENING_EVENTS = 2
"""Number of events that show whether the run got its session; they arrive at once."""


async def send_events(run: Run, send: Send) -> None:
    """Send each event as it happens.

    Nothing is sent if the run cannot get its session: that is answered with a status code instead.
    """
    events, opening = aiter(run), list[Event]()
    async for event in events:
        opening.append(event)
        if len(opening) == _OPENING_EVENTS:
            break
    if not opening or (isinstance(opening[-1], RunEnded) and opening[-1].stop == Stop.CONTENDED.value):
        return
    await send({"type": "http.response.start", "status": 200, "headers": encode_headers(_HEADERS)})
    for event in opening:
        await _send_chunk(send, _encode_run_event(event))
    while True:
        event = None
        try:
            with anyio.move_on_after(_PING_S):
                event = await anext(events)
        except StopAsyncIteration:
            return
        await _send_chunk(send, b":\n\n" if event is None else _encode_run_event(event))


async def send_result(result: Result, send: Send) -> None:
    """Send the record as the last event."""
    await _send_chunk(send, _encode_event("result", to_response(result)), more=False)


async def send_problem(problem: Problem, send: Send) -> None:
    """End a started stream with a problem event."""
    record = {"status": problem.status, "code": problem.code, "detail": problem.message}
    await _send_chunk(send, _encode_event("problem", record), more=False)


async def _send_chunk(send: Send, body: bytes, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": more})


def to_response(result: Result) -> dict[str, Any]:
    """Return the record of a run for a client, with its metadata once instead of in each event."""
    return _drop_event_metadata(result).to_dict()


def _drop_event_metadata(result: Result) -> Result:
    children = tuple(map(_drop_event_metadata, result.children))
    return replace(result, events=[_drop_metadata(event) for event in result.events], children=children)


def _drop_metadata(event: Event) -> Event:
    stripped = copy(event)
    stripped.header = replace(event.header, metadata=None)
    return stripped


def _encode_run_event(event: Event) -> bytes:
    """Encode an event. Only the first event of a run has its metadata."""
    return _encode_event(event.kind, (event if isinstance(event, RunStarted) else _drop_metadata(event)).to_dict())


def _encode_event(name: str, record: Mapping[str, Any]) -> bytes:
    # JSON text has no raw line breaks, so one data line is enough.
    return f"event: {name}\ndata: {json.dumps(record, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
