"""A typed answer: what the model said, read as what was asked for; or what is wrong with it, in words for the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from ..errors import UsageError, quote_value
from ..progress import Complete, Continue, Decision, Policy, Progress

_MOST_MISTAKES = 20


@dataclass(frozen=True, slots=True)
class Form:
    """A form of answers that is no Python type, such as a JSON schema from a file."""

    schema: dict[str, Any]
    """What the model is shown."""
    find_errors: Callable[[Any], Sequence[str]]
    """What is wrong with an answer, read from JSON; nothing where it fits."""


class Output:
    """A completion policy: the run may end when its answer is a value of this type, and another policy agrees."""

    def __init__(self, kind: Any, next_policy: Policy | None = None) -> None:
        self._form: Form | None = kind if isinstance(kind, Form) else None
        carried: Any = Any if self._form else kind
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(carried)
            self.schema = self._form.schema if self._form else {} if kind is str else self._adapter.json_schema()
            """Empty where any text will do."""
        except PydanticUserError as error:
            reason = str(error).split("\n")[0]
            raise UsageError(f"agent, output: {quote_value(kind)} cannot be read from JSON: {reason}") from error
        self._next_policy = next_policy
        self._is_text = kind is str

    def __call__(self, progress: Progress, /) -> Decision:
        """Complete with the value; else the model is told every mistake."""
        try:
            value = self._parse(progress.text)
        except ValidationError as error:
            return Continue(_format_nudge(_format_errors(error)), ("output",))
        if self._form and (mistakes := self._form.find_errors(value)):
            return Continue(_format_nudge(mistakes), ("output",))
        decision = Complete() if self._next_policy is None else self._next_policy(progress)
        return Complete(value, decision.satisfied) if isinstance(decision, Complete) else decision

    def _parse(self, text: str) -> Any:
        """The whole answer as JSON, or, where models wrap it in words, the one fenced block in it."""
        if self._is_text:
            return text
        fenced = _fenced_blocks(text)
        return self._adapter.validate_json(fenced[0] if len(fenced) == 1 else text)


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
        for one in errors[:_MOST_MISTAKES]
    ]
    return [*told, f"and {len(errors) - len(told):,} more"] if len(errors) > len(told) else told


def _format_nudge(errors: Sequence[str]) -> str:
    return "\n".join(
        [
            "The answer does not have the required form.",
            *[f"- {mistake}" for mistake in errors],
            "Answer again, with nothing but the JSON.",
        ]
    )
