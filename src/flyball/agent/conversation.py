"""run_conversation: one conversation with a model, as in Data Machine. It uses an Agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple, Unpack, cast, overload

from .._internal import validation
from .._internal.jsonable import parse_json_value
from .._internal.type_variables import Output
from ..budget.limits import Limits, RunKind
from ..budget.registry import IterationBudgetRegistry
from ..errors import ConfigError, UsageError, suggest_names
from ..models import Model
from ..recorder import Sink
from ..result import Result
from ..runtime import PausedRun
from ..settings import Settings
from ..steadiness import Duplicates
from ..store import Store
from ..tools.source import Tools
from .agent import Agent
from .keywords import SharedKeywords
from .options import AgentOptions
from .validate import Task, get_pause

_COLLABORATORS = ("event_sink", "completion_assertions", "completion_policy", "tool_rules", "engine_data")
_LIKENESS = 0.9
"""Similarity from which a key counts as a misspelt collaborator. A collaborator that is ignored guards nothing."""


class ConversationOptions(SharedKeywords, total=False):
    """Options of `run_conversation`. All are optional.

    To them come those of an Agent (`AgentOptions`). The last three are of its run (`RunOptions`).
    """

    mode: str
    """Purpose, in events and request metadata. It selects the settings `[mode.<mode>]`. Default: "chat"."""
    payload: Mapping[str, Any] | None
    """Data of the caller. `event_sink`, `completion_assertions`, `completion_policy`, `tool_rules` and `engine_data`
    (the initial state) are removed from it. The rest must be JSON, and is copied to every event."""
    max_turns: int | None
    """Maximum number of turns. Default: the setting `max_turns`, or 25. `limits` has all other limits."""
    store: Store
    """Open store. With a `session_id`, later runs continue the conversation."""
    session_id: str
    run_id: str
    wait_seconds: float


_BUILT = frozenset({"model", "tools", "output", "name", "description", "registry", "metadata", "kind"})
"""Options of an Agent that `run_conversation` sets itself, or takes as parameters."""
_COMBINED = frozenset({"limits", "completion", "tool_rules", "sinks", "settings"})
"""Options that are combined with the payload or the mode."""
AGENT_OPTIONS = frozenset(field.name for field in fields(AgentOptions)) - _BUILT
"""Options of an Agent that `run_conversation` takes as options."""
_PASSED_ON = AGENT_OPTIONS - _COMBINED
_RUN_OPTIONS: Mapping[str, str] = {"session_id": "session", "run_id": "run_id", "wait_seconds": "wait_seconds"}
"""Options of the run, with their names in `RunOptions`."""


@overload
def run_conversation(
    messages: Task, tools: Tools, model: Model | str, *, output: type[Output], **options: Unpack[ConversationOptions]
) -> Result[Output]: ...


@overload
def run_conversation(
    messages: Task, tools: Tools, model: Model | str, *, output: Any = None, **options: Unpack[ConversationOptions]
) -> Result: ...


def run_conversation(
    messages: Task, tools: Tools, model: Model | str, *, output: Any = None, **options: Unpack[ConversationOptions]
) -> Result:
    """Run a conversation within the budget `conversation_turns`, and return its result.

    `output` is the type of the answer. Calls that equal an earlier one are rejected by default (`duplicates`). A paused
    conversation continues with `resume_conversation`.
    """
    agent, own = _build_agent(tools, model, output, options)
    return _attach_agent(agent, agent.run(messages, **own))


@overload
async def arun_conversation(
    messages: Task, tools: Tools, model: Model | str, *, output: type[Output], **options: Unpack[ConversationOptions]
) -> Result[Output]: ...


@overload
async def arun_conversation(
    messages: Task, tools: Tools, model: Model | str, *, output: Any = None, **options: Unpack[ConversationOptions]
) -> Result: ...


async def arun_conversation(
    messages: Task, tools: Tools, model: Model | str, *, output: Any = None, **options: Unpack[ConversationOptions]
) -> Result:
    """Run a conversation in the current event loop; see `run_conversation`."""
    agent, own = _build_agent(tools, model, output, options)
    return _attach_agent(agent, await agent.arun(messages, **own))


def resume_conversation(result: Result[Output], answers: Mapping[str, Any] | None = None) -> Result[Output]:
    """Resume a paused conversation, as `agent.resume` resumes a run. No recorded effect is repeated.

    `result` must be the object that `run_conversation` returned in this process; it refers to the model, tools and
    options.
    """
    agent = _get_agent(result)
    return _attach_agent(agent, agent.resume(result, answers))


async def aresume_conversation(result: Result[Output], answers: Mapping[str, Any] | None = None) -> Result[Output]:
    """Resume a paused conversation in the current event loop; see `resume_conversation`."""
    agent = _get_agent(result)
    return _attach_agent(agent, await agent.aresume(result, answers))


def _attach_agent(agent: Agent, result: Result) -> Result:
    """Return the result. A paused one refers to its agent, because the caller does not have it."""
    if isinstance(result.pause, PausedRun):
        result.pause.agent = agent
    return result


def _get_agent(result: Result) -> Agent:
    agent = get_pause(result).agent
    if not isinstance(agent, Agent):
        raise UsageError("this result is from an agent, not from run_conversation: use agent.resume(result, answers)")
    return cast("Agent", agent)


class _Payload(NamedTuple):
    sinks: tuple[Sink, ...]
    completion: Any
    tool_rules: Any
    state: Mapping[str, Any]
    rest: dict[str, Any]


def _build_agent(
    tools: Tools, model: Model | str, output: Any, options: ConversationOptions
) -> tuple[Agent, dict[str, Any]]:
    validation.check_options("run_conversation", options, ConversationOptions.__annotations__)
    if isinstance(options.get("store"), str):  # a store that is opened here would never be closed
        raise ConfigError("run_conversation, store", options.get("store"), "an open store, such as open_store(...)")
    mode = validation.check_text("run_conversation, mode", options.get("mode", "chat"))
    payload = _split_payload(options.get("payload"), mode)
    passed_on: dict[str, Any] = {"duplicates": Duplicates.REJECT}
    passed_on |= {name: value for name, value in options.items() if name in _PASSED_ON}
    agent = Agent(
        **passed_on,
        model=model,
        tools=tools,
        output=output,
        limits=_build_limits(options),
        name=str(payload.rest.get("agent_slug") or "conversation"),
        completion=_pick_one("completion", options.get("completion"), payload.completion),
        tool_rules=_pick_one("tool_rules", options.get("tool_rules"), payload.tool_rules),
        sinks=(*options.get("sinks", ()), *payload.sinks),
        registry=IterationBudgetRegistry(settings=_load_settings(options).for_mode(mode)),
        metadata={**payload.rest, "mode": mode},
        kind=RunKind.CONVERSATION,
    )
    own: dict[str, Any] = {name: options[given] for given, name in _RUN_OPTIONS.items() if given in options}
    return agent, own | {"state": payload.state}


def _build_limits(options: ConversationOptions) -> Limits:
    limits = options.get("limits", Limits())
    max_turns = options.get("max_turns")
    if max_turns is None:
        return limits
    if limits.turns is not Limits().turns:
        raise UsageError("pass max_turns= or limits=Limits(turns=...) to run_conversation, not both")
    return replace(limits, turns=max_turns)


def _load_settings(options: ConversationOptions) -> Settings:
    given = options.get("settings")
    if given is None:
        return Settings.load()
    return given if isinstance(given, Settings) else Settings(given)


def _split_payload(payload: object, mode: str) -> _Payload:
    """Split the payload into collaborators and data. The data reaches events and stores, and must be JSON."""
    where = "run_conversation, payload"
    if payload is not None and not isinstance(payload, Mapping):
        raise ConfigError(where, payload, "a mapping")
    table = cast("Mapping[str, Any]", payload or {})
    rest = parse_json_value(where, {key: value for key, value in table.items() if key not in _COLLABORATORS})
    for key in rest:
        for meant in suggest_names(key, _COLLABORATORS, _LIKENESS)[:1]:
            raise ConfigError(f"{where}.{key}", key, f"the key {meant}, or a name that is less similar to it")
    if rest.get("mode", mode) != mode:
        raise ConfigError(f"{where}.mode", rest["mode"], f"the mode of the conversation, {mode!r}, or no such key")
    sink: Any = table.get("event_sink")
    if sink is not None and not callable(sink):
        raise ConfigError(f"{where}.event_sink", sink, "a function that takes an event")
    if table.get("completion_policy") is not None and table.get("completion_assertions") is not None:
        raise UsageError(f"{where}: pass completion_policy or completion_assertions, not both")
    policy: Any = table.get("completion_policy")
    completion = table.get("completion_assertions") if policy is None else policy
    given: Any = table.get("engine_data")
    state: Mapping[str, Any] = {} if given is None else given
    validation.check_type(f"{where}.engine_data", state, Mapping)
    return _Payload(() if sink is None else (cast("Sink", sink),), completion, table.get("tool_rules"), state, rest)


def _pick_one(name: str, argument: Any, from_payload: Any) -> Any:
    if argument is not None and from_payload is not None:
        raise UsageError(f"pass {name} to run_conversation as an argument or in the payload, not both")
    return from_payload if argument is None else argument
