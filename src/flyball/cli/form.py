"""The form of an answer: a JSON schema that a user has in a file."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..agent.output import Form

_MOST_MISTAKES = 10
_LONGEST = 1_000
"""Characters of one mistake: it may quote the whole answer."""


def form_of(path: Path) -> Form:
    """The form of answers that fit the JSON schema in a file; a ConfigError where that is none."""
    from ..agent.output import Form
    from ..tools.schema_check import SchemaCheck, TooComplex, Uncheckable

    schema = _read(path)
    validators: Any = importlib.import_module("jsonschema.validators")
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except validators.exceptions.SchemaError as error:
        raise ConfigError(f"run, {path}", error.message, "a JSON schema") from error
    check = SchemaCheck(schema)

    def mistakes(value: Any) -> Sequence[str]:
        try:
            return check.problems(value, lambda one: [f"{one.json_path}: {one.message}"[:_LONGEST]], _MOST_MISTAKES)
        except TooComplex as error:
            return [f"the answer cannot be checked: {error}"]
        except Uncheckable as error:
            raise ConfigError(f"run, {path}", str(error), "a JSON schema that can be checked") from error

    return Form(schema, mistakes)


def _read(path: Path) -> dict[str, Any]:
    try:
        schema: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"run, {path}", error.strerror or str(error), "the file of a JSON schema") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"run, {path}", f"no JSON ({error})", "a JSON schema") from error
    if not isinstance(schema, dict):
        raise ConfigError(f"run, {path}", type(schema).__name__, "a JSON schema, which is an object")
    return cast("dict[str, Any]", schema)
