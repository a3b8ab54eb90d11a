"""The dialect of a local model: tools are told to it in words, and it answers with one JSON object.

Chat templates differ in what they do with tools, and most do nothing. So a conversation is put into messages of a user
and an assistant, which every template knows; and where there are tools, the model is held to a JSON schema of
`{"name": ..., "arguments": ...}`: one of the tools, or `respond`, which is the answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from ..request import MESSAGE_OVERHEAD_TOKENS, Call, Finish, Reply, Request
from ..wire.writer import write_openai

Json = dict[str, Any]

_TEXT_SCHEMA: Json = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
_NAME = re.compile(r'^\s*\{\s*"name"\s*:\s*"([^"]*)"\s*,\s*"arguments"\s*:\s*')
_ANSWER = re.compile(r'^\{\s*"text"\s*:\s*"((?:[^"\\]|\\.)*)')
_UNFINISHED = "unfinished"
"""The name of a call that was cut off in its name."""


def build_messages(request: Request) -> list[Json]:
    """The conversation; what one side says in several messages becomes one, as some templates want it."""
    told: list[tuple[str, str]] = []
    system = "\n\n".join(filter(None, [request.instructions, _describe_tools(request)]))
    if system:
        told.append(("system", system))
    for message in write_openai(request.messages):
        told += _convert_message(message, bool(request.tools))
    told += [("user", notice) for notice in request.notices]
    groups = groupby(told, key=itemgetter(0))
    return [{"role": role, "content": "\n".join(text for _, text in group)} for role, group in groups]


def count_tokens(request: Request) -> int:
    """More tokens than the conversation has. It is the same in every replay: the weights are not asked."""
    told = build_messages(request)
    text = "".join(str(message["content"]) for message in told).encode("utf-8", "replace")
    # Tokenizers of small models make a token of every digit, and of every byte of a script that they do not know.
    alone = sum(byte >= 128 or byte in b"0123456789" for byte in text)
    return (len(text) + alone) // 2 + MESSAGE_OVERHEAD_TOKENS * (len(told) + 2)


def build_schema(request: Request) -> Json | None:
    """The JSON schema of all that the model may say; None where it may say what it likes."""
    if not request.tools:
        return None if request.output_schema is None else _relocate_schema(request.output_schema, "#")
    answer = _choose_answer_name(request.tools)
    known = {str(tool["name"]): cast("Json", tool["parameters"]) for tool in request.tools}
    known[answer] = _TEXT_SCHEMA if request.output_schema is None else dict(request.output_schema)
    return {
        "$defs": {str(n): _relocate_schema(schema, f"#/$defs/{n}") for n, schema in enumerate(known.values())},
        "anyOf": [_build_call_schema(name, f"#/$defs/{n}") for n, name in enumerate(known)],
    }


def parse_reply(request: Request, reply: Reply) -> Reply:
    """What the model meant, where it had to choose."""
    if not request.tools:
        return reply
    found = _NAME.match(reply.text)
    if found is None and not reply.text.lstrip().startswith("{"):  # it was not held to the schema, and just talks
        return reply
    name, rest = (found[1], reply.text[found.end() :]) if found else (_UNFINISHED, reply.text)
    is_whole = reply.finish is not Finish.LENGTH
    rest = rest.rstrip().removesuffix("}").rstrip() if is_whole else rest
    if name == _choose_answer_name(request.tools):
        text = rest if request.output_schema is not None else _extract_text(rest)
        return Reply(text, (), reply.usage, reply.finish, reply.model, reply.provider)
    finish = Finish.CALLS if is_whole else Finish.LENGTH
    return Reply("", (Call("", name, rest),), reply.usage, finish, reply.model, reply.provider)


def _describe_tools(request: Request) -> str:
    """The tools in words, and the answer as one of them: named last, or the smallest models take it at once."""
    if not request.tools:
        return ""
    tools = [
        f"- {tool['name']} {_describe_fields(tool['parameters'])}: {tool['description'] or ''}"
        for tool in request.tools
    ]
    answer = _TEXT_SCHEMA if request.output_schema is None else request.output_schema
    tools.append(
        f"- {_choose_answer_name(request.tools)} {_describe_fields(answer)}: "
        "Give the final answer, when nothing is left to do."
    )
    return "\n".join(
        [
            "You call tools, step by step, until the task is done:",
            *tools,
            "",
            'Each message is one call, as JSON: {"name": ..., "arguments": {...}}',
        ]
    )


def _describe_fields(schema: Mapping[str, Any]) -> str:
    """What a call is given, in few words: what is required is enforced, and titles only repeat the names."""
    if "properties" not in schema or "$defs" in schema:
        return json.dumps(schema, ensure_ascii=False)
    fields = cast("Mapping[str, Mapping[str, Any]]", schema["properties"])
    brief = {name: {key: part for key, part in field.items() if key != "title"} for name, field in fields.items()}
    return json.dumps(brief, ensure_ascii=False)


def _choose_answer_name(tools: Sequence[Mapping[str, Any]]) -> str:
    """What the answer is called: like no tool."""
    name, taken = "respond", {tool["name"] for tool in tools}
    while name in taken:
        name += "_"
    return name


def _convert_message(message: Json, may_call: bool) -> list[tuple[str, str]]:
    """One message of OpenAI's shape in the roles that every template knows.

    Where no tool is offered, calls are told in words: a small model that sees itself calling goes on with that.
    """
    text = _flatten_content(message.get("content"))
    if message["role"] == "tool":
        name = message.get("name") or "the call"
        return [("user", f"Result of {name}: {text}") if may_call else ("assistant", f"{name} gave: {text}")]
    said = [("assistant" if message["role"] == "assistant" else "user", text)] if text else []
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return said + [("assistant", _format_call(call["name"], call["arguments"] or "{}", may_call)) for call in calls]


def _format_call(name: str, arguments: str, may_call: bool) -> str:
    return f'{{"name": "{name}", "arguments": {arguments}}}' if may_call else f"I called {name} with {arguments}."


def _flatten_content(content: object) -> str:
    if not isinstance(content, list):
        return str(content or "")
    parts = cast("list[Json]", content)
    return "\n".join(str(part.get("text") or f"[left out: {part.get('type')}]") for part in parts)


def _build_call_schema(name: str, arguments: str) -> Json:
    fields = {"name": {"const": name}, "arguments": {"$ref": arguments}}
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


def _relocate_schema(schema: Any, root: str) -> Any:
    """A schema at another place of a document: its references point there.

    What would make the whole schema fail, and so hold the model to nothing, is left out: references to elsewhere, and
    patterns that look around. The tool checks its arguments in any case.
    """
    if isinstance(schema, list):
        return [_relocate_schema(part, root) for part in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    fields = dict(cast("Mapping[str, Any]", schema))
    reference = fields.get("$ref")
    if isinstance(reference, str):
        return {"$ref": root + reference[1:]} if reference.startswith("#") else {}
    if isinstance(fields.get("pattern"), str) and "(?" in fields["pattern"]:
        del fields["pattern"]
    return {key: _relocate_schema(value, root) for key, value in fields.items() if key not in ("$id", "$schema")}


def _extract_text(arguments: str) -> str:
    """The text of an answer, also of one that was cut off."""
    found = _ANSWER.match(arguments)
    try:
        return str(json.loads(f'"{found[1]}"', strict=False)) if found else ""
    except ValueError:  # cut off in the middle of an escape
        return found[1] if found else ""
