"""Tool results as text for a model, with excerpts of large ones."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

from pydantic_core import PydanticSerializationError, SchemaSerializer, core_schema

from .._internal.functions import is_async
from ..errors import ConfigError
from ..outcome import Artifact

MAX_CHARACTERS, MIN_CHARACTERS = 12_000, 500
"""Default and least number of characters of a result that a model sees."""
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


Excerpt = Callable[[str, int], str]
"""Returns the part of a result that the model sees, given the whole text and the maximum number of characters."""


def check_excerpt(where: str, excerpt: object) -> None:
    """Raise ConfigError unless the value is a sync function. The coroutine of an async one would be no text."""
    if not callable(excerpt) or is_async(excerpt):
        raise ConfigError(where, excerpt, "a function of a text and a number that is not async")


def make_excerpt(
    content: str, artifact_id: str, max_characters: int = MAX_CHARACTERS, excerpt: Excerpt | None = None
) -> tuple[str, Artifact | None]:
    """Return the content, or an excerpt and an artifact.

    The excerpt is JSON, or what the function `excerpt` returns. If that raises, or returns no text that fits, the usual
    excerpt is used. The artifact is the handle of the whole content.

    >>> shown, artifact = make_excerpt("x" * 20_000, "run:7")
    >>> len(shown) <= 12_000, artifact, json.loads(shown)["characters"]
    (True, Artifact(id='run:7', size=20000), 20000)
    """
    if len(content) <= max_characters:
        return content, None
    artifact_id = artifact_id[:500]
    artifact = Artifact(artifact_id, len(content))
    own = None if excerpt is None else _call_excerpt(excerpt, content, max_characters)
    if own is not None:
        return own, artifact
    keep = max(0, max_characters - 200)
    text = _frame_excerpt(content[:keep], content, artifact_id)
    while len(text) > max_characters and keep:
        keep = max(0, keep - max(1, (len(text) - max_characters) // 6))  # JSON may escape one character as six
        text = _frame_excerpt(content[:keep], content, artifact_id)
    return text, artifact


def _call_excerpt(excerpt: Excerpt, content: str, max_characters: int) -> str | None:
    """Return the excerpt of a user's function, or None if it fails or does not fit."""
    try:
        text = cast("object", excerpt(content, max_characters))
    except (Exception, SystemExit):
        return None
    if not isinstance(text, str) or len(text) > max_characters:
        return None
    return text.encode("utf-8", "replace").decode("utf-8")


def _frame_excerpt(part: str, content: str, artifact_id: str) -> str:
    frame = {"excerpt": part, "shown": len(part), "characters": len(content), "artifact": artifact_id}
    return json.dumps(frame, ensure_ascii=False)
