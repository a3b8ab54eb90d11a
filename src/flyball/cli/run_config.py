"""Configuration of a run from command-line options, and the agent built from it."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..budget.limits import Limits
from ..budget.remedy import COMMAND_OPTIONS
from ..errors import ConfigError, ConfigErrors, UsageError, quote_value, suggest_names
from ..person import Approver
from ..settings import Settings

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..agent.output import Form
    from ..models import Model
    from ..progress import Hook
    from ..recorder import Sink
    from ..store import Store

_MAX_ERRORS = 10
_MAX_ERROR_CHARS = 1_000
"""Maximum characters per error, which may quote the whole answer."""
_NO_MODEL = (
    "no model given: use --model openai:NAME (or anthropic:NAME, google:NAME, http://HOST:PORT/v1#NAME, local:smollm2, "
    "script:PATH.toml), set FLYBALL_MODEL, or `model` in flyball.toml"
)
_TOOLS = "--tools", "a tool, a function"
_CHILDREN = "--children", "an Agent, a Child"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Options of `flyball run`."""

    model: str | None = None
    is_project_model: bool = False
    """True if `model` was in a project file when the run was first started."""
    fallback_models: Sequence[str] = ()
    toolbox: Sequence[str] = ()
    pass_env: Sequence[str] = ()
    tools: Sequence[str] = ()
    children: Sequence[str] = ()
    mcp: Sequence[str] = ()
    limits: dict[str, Any] = field(default_factory=dict[str, Any])
    rules: Sequence[Path] = ()
    completion: Path | None = None
    system: str | None = None
    schema: Path | None = None
    yes: bool = False

    def build_agent(
        self,
        hooks: Sequence[Hook] = (),
        approver: Approver | None = None,
        sinks: Sequence[Sink] = (),
        store: Store | None = None,
        start_metadata: Mapping[str, Any] | None = None,
    ) -> Agent:
        """Build the agent.

        Raises `FlyballError` or `OSError` if an option cannot be used.
        """
        from ..agent.agent import Agent

        agent = Agent(
            model=self._build_model(),
            fallback_models=self._build_fallback_models(),
            tools=self._build_tools(),
            children=[child for reference in self.children for child in _import_objects(reference, _CHILDREN)],
            limits=Limits(**self.limits),
            rules=[*self.rules],
            completion=self.completion,
            instructions=self.system,
            output=None if self.schema is None else load_output_form(self.schema),
            approver=approver,
            approver_seconds=None,
            hooks=hooks,
            sinks=sinks,
            store=store,
            start_metadata=start_metadata or {},
        )
        if agent.ruleset.problems:  # never run without a rule that the user relies on
            raise ConfigErrors(agent.ruleset.problems)
        return agent

    def list_clamps(self) -> list[str]:
        """Return a sentence for each limit that is not as an option or a setting wants it."""
        clamped: list[str] = []
        for name, limit in Limits(**self.limits).explain().items():
            if limit.is_clamped and limit.is_requested:
                show, unit = limit.spec.unit.show, limit.spec.unit
                source = COMMAND_OPTIONS.get(name, limit.source) if name in self.limits else limit.source
                clamped.append(
                    f"{name} is limited to {show(limit.value)}, not {show(limit.requested)} as {source} says: "
                    f"allowed is {limit.bounds.show(unit)}"
                )
        return clamped

    @property
    def model_name(self) -> str:
        """Model from the option or, if absent, from the settings."""
        return self.find_model()[0]

    def find_model(self) -> tuple[str, bool]:
        """Return the name of the model, and whether it is from a project file."""
        if self.model:
            return self.model, self.is_project_model
        setting = Settings.load().find("model")
        if setting is None:
            raise UsageError(_NO_MODEL)
        if not isinstance(setting.value, str):
            raise setting.error("the name of a model, such as openai:NAME")
        return setting.value, setting.is_from_project

    def _build_model(self) -> Model:
        """Build the model. FLYBALL_API_KEY is not sent to an address from a project file."""
        from ..models import named

        name, is_from_project = self.find_model()
        return named(name, "--model" if self.model else "model", sends_url_key=not is_from_project)

    def _build_fallback_models(self) -> list[Model]:
        from ..models import named

        return [named(name, "--fallback-model") for name in self.fallback_models]

    def _build_tools(self) -> list[Any]:
        tools: list[Any] = []
        if self.toolbox:
            from ..toolbox import by_name

            tools += by_name(",".join(self.toolbox), approve=not self.yes, pass_env=self.pass_env)
        for reference in self.tools:
            tools += _import_objects(reference, _TOOLS)
        for server in self.mcp:
            from ..tools import mcp

            tools.append(mcp(server))
        return tools


def _import_objects(reference: str, kind: tuple[str, str]) -> list[Any]:
    """Import the object or list of objects that `module:attribute` names.

    Modules in the current folder can be imported too.
    """
    option, kinds = kind
    where = f"{option} {reference}"
    module_name, colon, name = reference.partition(":")
    if not (module_name and colon and name):
        raise ConfigError(f"run, {option}", reference, f"MODULE:NAME, where NAME is {kinds}, or a list of them")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a user's module can raise anything on import
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{where}: importing {module_name} failed with {reason}") from error
    if not hasattr(module, name):
        suggestions = suggest_names(name, [attribute for attribute in vars(module) if not attribute.startswith("_")])
        hint = f"did you mean {suggestions[0]}?" if suggestions else f"name {kinds}, or a list of them"
        raise UsageError(f"{where}: the module {module_name} has no {quote_value(name)}; {hint}")
    value: object = getattr(module, name)
    return list(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else [value]


def load_output_form(path: Path) -> Form:
    """Load the JSON schema that answers must fit.

    Raises `ConfigError` if the file has no valid schema.
    """
    from ..agent.output import Form
    from ..tools.schema_check import SchemaCheck, TooComplex, Uncheckable

    schema = _read_schema(path)
    validators: Any = importlib.import_module("jsonschema.validators")
    validator = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        validator.check_schema(schema)
    except validators.exceptions.SchemaError as error:
        raise UsageError(f"{path} is not a JSON schema: {error.message}") from error
    check = SchemaCheck(schema)

    def find_errors(value: Any) -> Sequence[str]:
        try:
            return check.problems(
                value, lambda error: [f"{error.json_path}: {error.message}"[:_MAX_ERROR_CHARS]], _MAX_ERRORS
            )
        except TooComplex as error:
            return [f"the answer cannot be checked: {error}"]
        except Uncheckable as error:
            raise UsageError(f"{path} cannot be used as a schema: {error}") from error

    return Form(schema, find_errors)


def _read_schema(path: Path) -> dict[str, Any]:
    try:
        schema: object = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the JSON schema {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the JSON schema {path} is not valid JSON: {error}") from error
    if not isinstance(schema, dict):
        raise ConfigError(f"run, {path}", schema, "a JSON schema, which is an object")
    return cast("dict[str, Any]", schema)
