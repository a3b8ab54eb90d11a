"""Completion of an agent: typed answers, policies and assertions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError

from ..completion.assertions import Assertions
from ..completion.policy import AssertionPolicy
from ..errors import ConfigError, UsageError, quote_value, truncate
from ..loop.plan import CompletionSpec
from ..progress import Complete, Continue, Decision, Policy, Progress, Unfinished

_MAX_ERRORS = 20
_MAX_ERROR_CHARACTERS = 500
"""Maximum length of one mistake, which may quote a key of any length."""


@dataclass(frozen=True, slots=True)
class Form:
    """Form of an answer that is not a Python type, such as a JSON schema from a file."""

    schema: dict[str, Any]
    """JSON schema that the model is shown."""
    find_errors: Callable[[Any], Sequence[str]]
    """Returns the mistakes in an answer that was read from JSON."""


class Output:
    """Completion policy: the run may end if its answer has the type, and the next policy agrees."""

    def __init__(self, kind: Any, next_policy: Policy | None = None) -> None:
        self._form: Form | None = kind if isinstance(kind, Form) else None
        carried: Any = Any if self._form else kind
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(carried)
            self.schema = self._form.schema if self._form else {} if kind is str else self._adapter.json_schema()
            """JSON schema of the answer. Empty means any text."""
            self._wrapper: TypeAdapter[Any] | None = None
            if self._form is None and self.schema and self.schema.get("type") != "object":
                self._wrapper = TypeAdapter(create_model("Wrapper", result=(carried, ...)))
                self.schema = _wrap_schema(self.schema)
        except PydanticUserError as error:
            reason = str(error).split("\n")[0]
            raise UsageError(f"agent, output: {quote_value(kind)} cannot be read from JSON: {reason}") from error
        self._next_policy = next_policy
        self._is_text = kind is str

    def __call__(self, progress: Progress, /) -> Decision:
        """Return Complete with the value, or Continue with every mistake."""
        if progress.after_calls:
            return self._decide_after_calls(progress)
        checked = self._check(progress.text)
        if isinstance(checked, Continue):
            return checked
        decision = Complete() if self._next_policy is None else self._next_policy(progress)
        if not isinstance(decision, Complete):
            return decision
        if decision.text is not None:
            checked = self._check(decision.text)
        return _merge(decision, checked)

    def _decide_after_calls(self, progress: Progress) -> Decision:
        """Let the next policy decide. The model has not answered yet, so only that policy can have an answer."""
        decision = Unfinished() if self._next_policy is None else self._next_policy(progress)
        if not isinstance(decision, Complete) or decision.text is None:
            return decision
        return _merge(decision, self._check(decision.text))

    def _check(self, text: str) -> Complete | Continue:
        try:
            value = self._parse(text)
        except ValidationError as error:
            return Continue(_format_nudge(_format_errors(error)), ("output",))
        if self._form and (mistakes := self._form.find_errors(value)):
            return Continue(_format_nudge(mistakes), ("output",))
        return Complete(value)

    def _parse(self, text: str) -> Any:
        """Read the answer, or the only fenced block in it, as JSON. Models often add words around the block."""
        if self._is_text:
            return text
        fenced = _fenced_blocks(text)
        found = fenced[0] if len(fenced) == 1 else text
        return self._adapter.validate_json(found) if self._wrapper is None else self._unwrap(self._wrapper, found)

    def _unwrap(self, wrapper: TypeAdapter[Any], text: str) -> Any:
        """Return the value in `{"result": …}`, or the value alone: not every model is held to the schema."""
        try:
            return wrapper.validate_json(text).result
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            if first["loc"] and (first["loc"], first["type"]) != (("result",), "missing"):
                raise
        return self._adapter.validate_json(text)


def _wrap_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with the value as its only field. Providers enforce no other kind of answer."""
    value = {key: part for key, part in schema.items() if key != "$defs"}
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {"type": "object", "properties": {"result": value}, "required": ["result"], **definitions}


def build_completion_spec(source: object, output: Any, tool_names: Sequence[str] | None) -> CompletionSpec:
    """Return the spec of the policy and the typed answer of an agent.

    `source` is a policy, assertions, a mapping of them, the path of a TOML file, or None. `output` is the type of the
    answer, or None for text. `tool_names` is None if not all tools are known yet.
    """
    assertions, policy = _build_policy(source, tool_names)
    asks = policy.asks_next_policy if isinstance(policy, AssertionPolicy) else policy is not None
    if output is None:
        return CompletionSpec(policy=policy, assertions=assertions, asks_after_calls=asks)
    typed = Output(output, policy)
    return CompletionSpec(policy=typed, assertions=assertions, asks_after_calls=asks, output_schema=typed.schema)


def _build_policy(source: object, tool_names: Sequence[str] | None) -> tuple[Assertions | None, Policy | None]:
    if isinstance(source, Assertions | Mapping | str | Path):
        assertions = Assertions.of(cast("Assertions", source))
        return assertions, AssertionPolicy(assertions, available_tools=tool_names)
    if isinstance(source, AssertionPolicy):
        return source.assertions, source
    if inspect.iscoroutinefunction(source) or (source is not None and not callable(source)):
        raise ConfigError("agent, completion", source, "a policy function, assertions, or the path of a TOML file")
    return None, cast("Policy | None", source)


def _merge(decision: Complete, checked: Complete | Continue) -> Decision:
    """Return the decision with the typed value, or what is wrong with the answer."""
    return Complete(checked.output, decision.satisfied, decision.text) if isinstance(checked, Complete) else checked


def _fenced_blocks(text: str) -> list[str]:
    """Return the contents of the fenced blocks, plain or `json`, in one pass over the lines."""
    lines = text.split("\n")
    blocks: list[str] = []
    opened: int | None = None
    for number, line in enumerate(lines):
        if opened is None:
            opened = number if line.rstrip(" \t") in ("```", "```json") else None
        elif number > opened + 1 and line.strip(" \t") == "```":
            blocks.append("\n".join(lines[opened + 1 : number]))
            opened = None
    return blocks


def _format_errors(error: ValidationError) -> list[str]:
    errors = error.errors(include_url=False)
    told = [
        f"{'.'.join(map(str, one['loc'])) or 'the answer'}: {one['msg']}; found {quote_value(one['input'])}"
        for one in errors[:_MAX_ERRORS]
    ]
    return [*told, f"and {len(errors) - len(told):,} more"] if len(errors) > len(told) else told


def _format_nudge(errors: Sequence[str]) -> str:
    return "\n".join(
        [
            "The answer does not have the required form.",
            *[f"- {truncate(mistake, _MAX_ERROR_CHARACTERS)}" for mistake in errors[: _MAX_ERRORS + 1]],
            "Answer again, with nothing but the JSON.",
        ]
    )
