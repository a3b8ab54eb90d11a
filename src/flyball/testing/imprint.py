"""What a recording keeps of a request: enough to know it again and to say what differs, without its texts.

What is left of the budgets, the run's name and the time are not in it, so a run that is played again finds its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..errors import shown
from ..message import Message, MessageType
from ..request import Request
from .censor import PLAIN, Censor

_SHORTEST_NAME = 8
"""The name of a run shorter than this could be a word of any text."""


@dataclass(frozen=True, slots=True)
class Imprint:
    """A request, its texts as digests. What is not there is an empty text."""

    purpose: str
    instructions: str = ""
    output_schema: str = ""
    tools: dict[str, str] = field(default_factory=dict[str, str])
    notices: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()

    @classmethod
    def of(cls, request: Request, censor: Censor = PLAIN) -> Imprint:
        """That of a request; it is the same with its secrets and with *** in their place."""

        def digest(value: object) -> str:
            return _digest(censor.clean(value))

        return cls(
            purpose=request.purpose.value,
            instructions=digest(request.instructions),
            output_schema=digest(request.output_schema),
            tools={censor.text(str(tool.get("name"))): digest(tool) for tool in request.tools},
            notices=tuple(digest(notice) for notice in request.notices),
            messages=tuple(
                f"{censor.text(_label(one))} {digest(_said(one, request.run_id))}" for one in request.messages
            ),
        )

    def to_dict(self, before: Imprint | None) -> dict[str, Any]:
        """The same in JSON types; of the messages only those that are not as in the request before."""
        same = 0 if before is None else _same(self.messages, before.messages)
        written: dict[str, Any] = {"purpose": self.purpose}
        for name in ("instructions", "output_schema", "tools", "notices"):
            if value := getattr(self, name):
                written[name] = value
        return {**written, "messages_as_before": same, "messages": self.messages[same:]}

    @classmethod
    def from_dict(cls, data: dict[str, Any], before: Imprint | None) -> Imprint:
        """Read what `to_dict` wrote."""
        same = data["messages_as_before"]
        return cls(
            purpose=data["purpose"],
            instructions=data.get("instructions", ""),
            output_schema=data.get("output_schema", ""),
            tools=data.get("tools", {}),
            notices=tuple(data.get("notices", ())),
            messages=(*(before.messages[:same] if before else ()), *data["messages"]),
        )

    def differences(self, request: Request, censor: Censor = PLAIN) -> list[str]:
        """What is different in a request, in words; empty where it is the one that was recorded."""
        found = Imprint.of(request, censor)
        if found == self:
            return []
        told: list[str] = []
        if found.purpose != self.purpose:
            told.append(f"it is for a {found.purpose}, recorded was one for a {self.purpose}")
        if found.instructions != self.instructions:
            told.append(f"the instructions are now {shown(request.instructions)}")
        if found.output_schema != self.output_schema:
            told.append("the schema of the output is another")
        if found.notices != self.notices:
            told.append(f"the notices are now {shown(request.notices)}")
        return told + self._of_tools(found) + self._of_messages(found, request.messages)

    def _of_tools(self, found: Imprint) -> list[str]:
        told = [f"the tool {name} is new" for name in found.tools if name not in self.tools]
        told += [f"the tool {name} is missing" for name in self.tools if name not in found.tools]
        known = [name for name in found.tools if name in self.tools]
        return told + [
            f"the tool {name} is described otherwise" for name in known if found.tools[name] != self.tools[name]
        ]

    def _of_messages(self, found: Imprint, messages: Sequence[Message]) -> list[str]:
        n = _same(found.messages, self.messages)
        if n == len(found.messages) == len(self.messages):
            return []
        if n == len(found.messages):
            return [f"there are {n} messages, recorded were {len(self.messages)}"]
        now = f"message {n + 1} is now {_label(messages[n])} {shown(_text(messages[n]))}"
        if n == len(self.messages):
            return [f"{now}, recorded were {n} messages"]
        return [f"{now}, recorded was {self.messages[n].rpartition(' ')[0]} of other words"]


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """How many are the same at the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _label(message: Message) -> str:
    name = (message.payload or {}).get("name")
    if message.type in (MessageType.TOOL_CALL, MessageType.TOOL_RESULT):
        return f"a {'call' if message.type is MessageType.TOOL_CALL else 'result'} of {name}"
    return f"a {message.type.value} by the {message.role.value}"


def _text(message: Message) -> object:
    return message.content or (message.payload or {}).get("arguments", message.payload)


def _said(message: Message, run_id: str) -> list[object]:
    content = message.content  # an excerpt of a large result names its run
    if len(run_id) >= _SHORTEST_NAME:
        content = content.replace(run_id, "run")
    return [content, message.payload]


def _digest(value: object) -> str:
    if value is None or value == "":
        return ""
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
