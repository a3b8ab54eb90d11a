"""Tool results as text for a model, with excerpts of large ones."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema

from ..outcome import Artifact

MAX_CHARACTERS = 12_000
_JSON_TYPES = frozenset({bool, dict, float, int, list, type(None)})
_to_json = SchemaSerializer(core_schema.any_schema(), {"ser_json_inf_nan": "null"}).to_json
"""Takes half the time of `pydantic_core.to_json` with an option."""


def serialize_content(value: Any) -> str:
    """Return a tool's value as text.

    A string is unchanged, everything else becomes JSON.

    Raises:
        TypeError: the value cannot be serialized.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")  # replaces lone surrogates
    if type(value) not in _JSON_TYPES:  # nearly all values have these types, and the check below is slow
        _refuse_unresolved(value)
    try:
        return _to_json(value).decode()
    except (PydanticSerializationError, ValueError, RecursionError) as error:
        raise TypeError(f"the tool returned a {type(value).__name__} that cannot be written as JSON: {error}") from None


def _refuse_unresolved(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # avoids the warning "was never awaited"
    awaited = inspect.isawaitable(value)
    if awaited or isinstance(value, Iterator | AsyncIterator):
        kind = "an awaitable" if awaited else "a generator or another iterator"
        raise TypeError(f"the tool returned {kind}; it must return a value")


def make_excerpt(content: str, artifact_id: str) -> tuple[str, Artifact | None]:
    """Return the content, or an excerpt and an artifact.

    The excerpt is JSON. The artifact is the handle of the whole content.

    >>> shown, artifact = make_excerpt("x" * 20_000, "run:7")
    >>> len(shown) <= 12_000, artifact, json.loads(shown)["characters"]
    (True, Artifact(id='run:7', size=20000), 20000)
    """
    if len(content) <= MAX_CHARACTERS:
        return content, None
    keep, artifact_id = MAX_CHARACTERS - 200, artifact_id[:500]
    text = _frame_excerpt(content[:keep], content, artifact_id)
    while len(text) > MAX_CHARACTERS:
        keep -= max(1, (len(text) - MAX_CHARACTERS) // 6)  # JSON may escape one character as six
        text = _frame_excerpt(content[:keep], content, artifact_id)
    return text, Artifact(artifact_id, len(content))


def _frame_excerpt(part: str, content: str, artifact_id: str) -> str:
    frame = {"excerpt": part, "shown": len(part), "characters": len(content), "artifact": artifact_id}
    return json.dumps(frame, ensure_ascii=False)
