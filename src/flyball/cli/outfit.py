"""The outfit: an agent made of what stands on the command line, each mistake told in one line."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from ..errors import ConfigError, nearest
from ..limits import Limits
from ..person import Approver
from ..recorder import Sink
from ..settings import Settings

if TYPE_CHECKING:
    from ..agent import Agent
    from ..progress import Hook

_NO_MODEL = (
    "--model with openai:NAME, anthropic:NAME, http://HOST:PORT/v1#NAME, local:smollm2 or script:PATH.toml; "
    "or FLYBALL_MODEL, or model in flyball.toml"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outfit:
    """What was asked for."""

    model: str | None = None
    toolbox: Sequence[str] = ()
    tools: Sequence[str] = ()
    mcp: Sequence[str] = ()
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    rules: Sequence[Path] = ()
    completion: Path | None = None
    system: str | None = None
    schema: Path | None = None
    yes: bool = False

    def agent(self, sinks: Sequence[Sink], hooks: Sequence[Hook], approver: Approver | None) -> Agent:
        """The agent; a ConfigError tells what cannot be."""
        from ..agent import Agent

        return Agent(
            model=self._model(),
            tools=self._tools(),
            limits=Limits(**self.limits),
            rules=[*self.rules],
            completion=self.completion,
            instructions=self.system,
            output=None if self.schema is None else _form(self.schema),
            approver=approver,
            approver_seconds=None,
            sinks=sinks,
            hooks=hooks,
        )

    def _model(self) -> str:
        told = Settings.load().at("model")
        named = self.model or (told.value if told is not None else None)
        if not isinstance(named, str):
            found = "nothing" if named is None else named
            raise ConfigError("run, model", found, _NO_MODEL)
        return named

    def _tools(self) -> list[Any]:
        tools: list[Any] = []
        if self.toolbox:
            from ..toolbox import by_name

            tools += by_name(",".join(self.toolbox), approve=not self.yes)
        for reference in self.tools:
            tools += _imported(reference)
        for server in self.mcp:
            from ..tools import mcp

            tools.append(mcp(server))
        return tools


def _imported(reference: str) -> list[Any]:
    """What `module:attribute` names: a tool, a function, or several of them; modules of this folder count too."""
    where, expected = f"--tools {reference}", "MODULE:NAME, where NAME is a tool, a function, or a list of them"
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise ConfigError("run, --tools", reference, expected)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module does when it is loaded
        raise ConfigError(where, f"{type(error).__name__}: {error}", "a module that can be imported here") from error
    if not hasattr(module, name):
        near = nearest(name, [one for one in vars(module) if not one.startswith("_")])
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(where, f"no {name} in {module_name}", expected + hint)
    found: object = getattr(module, name)
    return list(cast("Sequence[Any]", found)) if isinstance(found, list | tuple) else [found]


def _form(path: Path) -> Any:
    """A type whose values fit the JSON schema in a file."""
    try:
        schema: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"run, {path}", error.strerror or str(error), "the file of a JSON schema") from error
    except ValueError as error:
        raise ConfigError(f"run, {path}", f"no JSON ({error})", "a JSON schema") from error
    if not isinstance(schema, dict):
        raise ConfigError(f"run, {path}", type(schema).__name__, "a JSON schema, which is an object")
    return Annotated[Any, _Form(str(path), cast("dict[str, Any]", schema))]


class _Form:
    """Tells pydantic to check a value against a JSON schema of the user's."""

    def __init__(self, where: str, schema: dict[str, Any]) -> None:
        validators: Any = importlib.import_module("jsonschema.validators")
        kind = validators.validator_for(schema, default=validators.Draft202012Validator)
        try:
            kind.check_schema(schema)
        except validators.exceptions.SchemaError as error:
            raise ConfigError(f"run, {where}", error.message, "a JSON schema") from error
        self._schema = schema
        self._checker: Any = kind(schema)

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self._checked, core_schema.any_schema())

    def __get_pydantic_json_schema__(self, core: Any, handler: Any) -> dict[str, Any]:
        return self._schema

    def _checked(self, value: Any) -> Any:
        wrong = [f"{error.json_path}: {error.message}" for error in self._checker.iter_errors(value)]
        if wrong:
            raise ValueError("; ".join(wrong[:10]))
        return value
