"""Prompts for local models: tools are described in words, and calls are JSON objects.

Chat templates differ in how they treat tools, and most ignore them. So a conversation becomes messages of a user and
an assistant, which every template knows. If there are tools, a JSON schema holds the model to
`{"name": ..., "arguments": ...}`. The name is a tool's, or `respond` for the answer.
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
"""Name of a call whose own name was cut off."""


def build_messages(request: Request) -> list[Json]:
    """Return the conversation as messages with alternating roles.

    Consecutive messages of the same role are joined, because some templates require it.
    """
    texts: list[tuple[str, str]] = []
    system = "\n\n".join(filter(None, [request.instructions, _describe_tools(request)]))
    if system:
        texts.append(("system", system))
    for message in write_openai(request.messages):
        texts += _convert_message(message, bool(request.tools))
    texts += [("user", notice) for notice in request.notices]
    groups = groupby(texts, key=itemgetter(0))
    return [{"role": role, "content": "\n".join(text for _, text in group)} for role, group in groups]


def count_tokens(messages: Sequence[Json]) -> int:
    """Return an upper estimate of the tokens of messages.

    The weights are not asked, so that every replay gets the same number.
    """
    text = "".join(str(message["content"]) for message in messages).encode("utf-8", "replace")
    # Tokenizers of small models turn every digit, and every byte of an unknown script, into a token of its own.
    single_byte_tokens = sum(byte >= 128 or byte in b"0123456789" for byte in text)
    return (len(text) + single_byte_tokens) // 2 + MESSAGE_OVERHEAD_TOKENS * (len(messages) + 2)


def build_schema(request: Request) -> Json | None:
    """Return the JSON schema of a reply. None allows any text."""
    if not request.tools:
        return None if request.output_schema is None else _relocate_schema(request.output_schema, "#")
    answer_name = _choose_answer_name(request.tools)
    schemas = {str(tool["name"]): cast("Json", tool["parameters"]) for tool in request.tools}
    schemas[answer_name] = _TEXT_SCHEMA if request.output_schema is None else dict(request.output_schema)
    return {
        "$defs": {str(n): _relocate_schema(schema, f"#/$defs/{n}") for n, schema in enumerate(schemas.values())},
        "anyOf": [_build_call_schema(name, f"#/$defs/{n}") for n, name in enumerate(schemas)],
    }


def parse_reply(request: Request, reply: Reply) -> Reply:
    """Convert the JSON text of a reply into a call or an answer."""
    if not request.tools:
        return reply
    match = _NAME.match(reply.text)
    if match is None and not reply.text.lstrip().startswith("{"):  # no grammar was applied, and the model just talks
        return reply
    name, rest = (match[1], reply.text[match.end() :]) if match else (_UNFINISHED, reply.text)
    is_whole = reply.finish is not Finish.LENGTH
    rest = rest.rstrip().removesuffix("}").rstrip() if is_whole else rest
    if name == _choose_answer_name(request.tools):
        text = rest if request.output_schema is not None else _extract_text(rest)
        return Reply(text, (), reply.usage, reply.finish, reply.model, reply.provider)
    finish = Finish.CALLS if is_whole else Finish.LENGTH
    return Reply("", (Call("", name, rest),), reply.usage, finish, reply.model, reply.provider)


def _describe_tools(request: Request) -> str:
    """Describe the tools in words, and the answer as the last of them.

    If the answer came first, the smallest models would choose it at once.
    """
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
    """Return the parameters of a tool as short JSON.

    The grammar enforces the required ones, and titles only repeat the names.
    """
    if "properties" not in schema or "$defs" in schema:
        return json.dumps(schema, ensure_ascii=False)
    fields = cast("Mapping[str, Mapping[str, Any]]", schema["properties"])
    short_fields = {
        name: {key: part for key, part in field.items() if key != "title"} for name, field in fields.items()
    }
    return json.dumps(short_fields, ensure_ascii=False)


def _choose_answer_name(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return a name for the answer that no tool has."""
    name, taken = "respond", {tool["name"] for tool in tools}
    while name in taken:
        name += "_"
    return name


def _convert_message(message: Json, may_call: bool) -> list[tuple[str, str]]:
    """Convert a message of OpenAI's format into roles that every template knows.

    Without tools, calls are described in words: a small model that sees itself calling would keep calling.
    """
    text = _flatten_content(message.get("content"))
    if message["role"] == "tool":
        name = message.get("name") or "the call"
        return [("user", f"Result of {name}: {text}") if may_call else ("assistant", f"{name} gave: {text}")]
    messages = [("assistant" if message["role"] == "assistant" else "user", text)] if text else []
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return messages + [("assistant", _format_call(call["name"], call["arguments"] or "{}", may_call)) for call in calls]


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
    """Move a schema to `root` of a document, and adapt its references.

    External references and patterns with lookaround are left out. They would make the whole schema fail, and then the
    model is held to nothing. The tool checks its arguments in any case.
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
    """Return the text of an answer, even if it was cut off."""
    match = _ANSWER.match(arguments)
    try:
        return str(json.loads(f'"{match[1]}"', strict=False)) if match else ""
    except ValueError:  # cut off in the middle of an escape
        return match[1] if match else ""
