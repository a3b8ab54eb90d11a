"""Last request of a conversation: the same body with a request for a report, and without calls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ..governor.report_request import write_report_request
from ..request import Call, Finish, Reply, Usage
from ..wire.bodies import Json, WireRequest, get_dict
from ..wire.schema_fit import fit_schema
from .inbound import CHOICE_KEYS, Inbound, thinks

_FINAL_NAME = re.compile(r"final_result\w*|final_answer|StructuredOutput|attempt_completion")
_FINAL_DESCRIPTION = re.compile(r"(The )?final response which ends this conversation", re.IGNORECASE)


def find_final_tool(tools: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Mapping[str, Any] | None:
    """Return the tool that carries the answer of the program, or None."""
    for tool in tools:
        name, description = str(tool["name"]), str(tool.get("description") or "")
        if name in names or _FINAL_NAME.fullmatch(name) or _FINAL_DESCRIPTION.match(description):
            return tool
    return None


def build_last_request(
    inbound: Inbound, request: WireRequest, final_tools: Sequence[str], reason: str
) -> tuple[WireRequest, str]:
    """Return the last request, and a hint for the user, which may be empty.

    The tools stay, because without them the provider's prompt cache is lost, and some providers refuse a history with
    calls.
    """
    final = find_final_tool(request.tools, final_tools)
    is_forced = final is not None and not thinks(inbound.body)
    hint = ""
    if request.tools and final is None and request.tool_choice not in (None, "auto", "none"):
        hint = "the program demands a tool call in each reply; name the tool that carries its answer with --final-tool"
    instruction = write_report_request(
        reason,
        final_tool=None if final is None else str(final["name"]),
        has_schema=bool(request.output_schema),
        has_tools=bool(request.tools) or request.tool_choice is not None,  # tools may stand in the input
    )
    choice = str(final["name"]) if final is not None and is_forced else None if final is not None else "none"
    return (
        replace(
            request,
            notices=(*request.notices, instruction),
            tool_choice=choice,
            parallel_calls=None,
        ),
        hint,
    )


def ask_for_one_reply(body: Json) -> Json:
    """Return the body of a last request without a wish for several replies: one report is enough."""
    kept = {key: value for key, value in body.items() if key not in CHOICE_KEYS}
    for name in ("generationConfig", "generation_config"):
        if name in kept:
            kept[name] = {key: value for key, value in get_dict(kept, name).items() if key not in CHOICE_KEYS}
    return kept


def check_last_reply(inbound: Inbound, reply: Reply, final_tools: Sequence[str], otherwise: str) -> Reply | None:
    """Return the reply to hand on instead of this one; None if it is fine.

    Some servers call in spite of `none`, and a call would continue the loop.
    """
    final = find_final_tool(inbound.request.tools, final_tools)
    if not reply.calls and (reply.text.strip() or final is not None):
        return None
    if final is not None and all(call.name == final["name"] for call in reply.calls[:1]) and len(reply.calls) == 1:
        return None
    text = reply.text if reply.text.strip() else otherwise
    return replace(build_made_reply(inbound, text, final_tools), usage=reply.usage)


def build_made_reply(inbound: Inbound, text: str, final_tools: Sequence[str]) -> Reply:
    """Return a synthetic final reply in the form that the program expects: text, its schema, or its final tool."""
    request, usage = inbound.request, Usage()
    final = find_final_tool(request.tools, final_tools)
    if final is not None:
        arguments: Any = fit_schema({"type": "object", **(final.get("parameters") or {})}, text)
        call = Call("call_flyball", str(final["name"]), cast("dict[str, Any]", arguments))
        return Reply("", (call,), usage, Finish.CALLS)
    if request.output_schema:
        import json

        return Reply(json.dumps(fit_schema(request.output_schema, text)), (), usage)
    return Reply(text, (), usage)
