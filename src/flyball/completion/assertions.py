"""Completion assertions: evidence that a run needs to count as complete.

Write them in Python, as a mapping or as a TOML file, with the key names of Data Machine. Only successful calls count.

>>> assertions = Assertions.of({"required_tool_names": ["commit"], "minimum_successful_tool_counts": {"review": 2}})
>>> assertions.check(Evidence({})).missing
('required tool commit', 'tool review: 0 of 2 successful calls')
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._internal.path import has_equal_value, has_value
from .._internal.table import TableDocument, TableValue
from ..errors import ConfigError, suggest_names, truncate
from ..progress import Evidence
from .outputs import ArtifactOutput, find_packet_types, has_output, parse_artifact_output

TABLE = "completion_assertions"
"""Key of the assertions in a file or mapping that has other keys too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertions:
    """Conditions for the end of a run.

    All groups must hold, and at least one option of `complete_when_any`, if there are any.
    """

    required_tool_names: Sequence[str] = ()
    required_engine_data_keys: Sequence[str] = ()
    """Dotted paths into the run's state that must have a value."""
    minimum_successful_tool_counts: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    complete_when_any: Sequence[CompletionOption] = ()
    forbidden_tool_names: Sequence[str] = ()
    required_output_packet_types: Sequence[str] = ()
    """Types of packets that results must have left. Every successful call leaves a `tool_result`."""
    required_artifact_outputs: Sequence[ArtifactOutput] = ()
    """Typed artifacts that results, or the run's state, must have under `outputs.typed_artifacts`."""
    messages: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Texts for the model while something is missing, by the name of the tool, key or option."""
    hide_mechanics: bool = False
    """True to tell the model only that the task is not complete."""

    def __post_init__(self) -> None:
        document = TableDocument(TABLE)
        values = {name: getattr(self, name) for name in _DEFAULTS}
        set_fields(self, document, _parse_fields(TableValue(document, values)))

    @classmethod
    def of(cls, source: Assertions | Mapping[str, Any] | str | Path) -> Assertions:
        """Parse assertions from a mapping or the path of a TOML file.

        An `Assertions` is returned unchanged. Raises ConfigError listing all problems.
        """
        if isinstance(source, Assertions):
            return source
        if isinstance(source, str | Path):
            document, table = _read_file(Path(source))
        elif isinstance(source, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            document, table = TableDocument(TABLE), source
        else:
            raise ConfigError(TABLE, source, "an Assertions, a mapping, or the path of a TOML file")
        values = _parse_fields(TableValue(document, _unwrap_table(document, table)))
        document.raise_errors()
        return cls(**values)

    def required(self) -> dict[str, Any]:
        """Return the assertions as JSON types, without empty groups.

        The keys are the Data Machine names.
        """
        table: dict[str, Any] = {
            "required_tool_names": list(self.required_tool_names),
            "required_engine_data_keys": list(self.required_engine_data_keys),
            "minimum_successful_tool_counts": dict(self.minimum_successful_tool_counts),
            "complete_when_any": [option.required() for option in self.complete_when_any],
            "forbidden_tool_names": list(self.forbidden_tool_names),
            "required_output_packet_types": list(self.required_output_packet_types),
            "required_artifact_outputs": [output.required() for output in self.required_artifact_outputs],
            "messages": dict(self.messages),
            "hide_mechanics": self.hide_mechanics,
        }
        return {key: value for key, value in table.items() if value}

    @property
    def may_end_early(self) -> bool:
        """True if the run may end as soon as it is complete, before the model stops."""
        return bool(self.complete_when_any)

    @property
    def open_ways(self) -> tuple[CompletionOption, ...]:
        """Options that need no forbidden tool."""
        forbidden = set(self.forbidden_tool_names)
        return tuple(option for option in self.complete_when_any if forbidden.isdisjoint(option.tool_names))

    def unavailable(self, offered: Collection[str]) -> tuple[str, ...]:
        """Return the needed tools that are not `offered`.

        Tools of `complete_when_any` count only if no open option has all its tools.
        """
        needed = [*self.required_tool_names, *self.minimum_successful_tool_counts]
        if not any(set(option.tool_names) <= set(offered) for option in self.open_ways):
            needed += [name for option in self.open_ways for name in option.tool_names]
        return tuple(dict.fromkeys(name for name in needed if name not in offered))

    def check(self, evidence: Evidence) -> Findings:
        """Compare the evidence with the assertions.

        More evidence never makes a satisfied assertion missing, except a call of a forbidden tool.
        """
        details = list(self._evaluate_groups(evidence))
        met_options: list[str] = []
        for option in self.open_ways:
            findings = option.evaluate(evidence)
            details += findings
            if all(finding.is_met for finding in findings):
                met_options.append(option.name)
        # Once one option holds, the open requirements of the others are no longer missing.
        missing = [finding.phrase for finding in details if not finding.is_met and not (finding.option and met_options)]
        forbidden = [f"forbidden tool {name} was called" for name in self.forbidden_tool_names if evidence.count(name)]
        satisfied = [finding.phrase for finding in details if finding.is_met]
        satisfied += [f"outcome {name}" for name in met_options]
        missing += forbidden
        return Findings(
            not missing, tuple(missing), tuple(satisfied), bool(forbidden), tuple(met_options), tuple(details)
        )

    def _evaluate_groups(self, evidence: Evidence) -> Iterator[RequirementFinding]:
        for name in self.required_tool_names:
            model_text = f"a successful call of {name}"
            yield RequirementFinding(f"required tool {name}", evidence.count(name) > 0, name, model_text)
        for key in self.required_engine_data_keys:
            model_text = f"a value for {key}, set by a tool"
            yield RequirementFinding(f"engine data key {key}", has_value(evidence.state, key), key, model_text)
        for name, min_calls in self.minimum_successful_tool_counts.items():
            yield check_call_count(name, evidence.count(name), min_calls, subject=name)
        found = find_packet_types(evidence) if self.required_output_packet_types else ()
        for kind in self.required_output_packet_types:
            yield RequirementFinding(f"output packet {kind}", kind in found, kind, f"a result of the type {kind}")
        for output in self.required_artifact_outputs:
            key, text = output.output_key, f"the artifact {output.output_key}, from a tool"
            yield RequirementFinding(f"artifact output {key}", output.is_met(evidence), key, text)


@dataclass(frozen=True, slots=True)
class CompletionOption:
    """Named outcome that completes a task when all its tool requirements hold."""

    name: str
    tools: Sequence[ToolRequirement]

    def __post_init__(self) -> None:
        document = TableDocument("way")
        set_fields(self, document, _parse_option_fields(TableValue(document, _get_fields(self))))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Tools that the option needs, without duplicates."""
        return tuple(dict.fromkeys(requirement.name for requirement in self.tools))

    def required(self) -> dict[str, Any]:
        """Return the option in JSON types."""
        return {"name": self.name, "tools": [requirement.required() for requirement in self.tools]}

    def evaluate(self, evidence: Evidence) -> list[RequirementFinding]:
        """Check all requirements; identical findings appear once."""
        findings = [finding for requirement in self.tools for finding in requirement.evaluate(evidence, self.name)]
        return list(dict.fromkeys(findings))


@dataclass(frozen=True, slots=True)
class ToolRequirement:
    """Successful calls of one tool that a run must have made.

    Each call needs the given parameters and output. Parameter keys and output entries are dotted paths; parameters are
    compared as JSON values.
    """

    name: str
    min_successful_calls: int = 1
    required_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    required_output: Sequence[str] = ()

    def __post_init__(self) -> None:
        document = TableDocument("proof")
        set_fields(self, document, _parse_requirement_fields(TableValue(document, _get_fields(self))))

    def required(self) -> dict[str, Any]:
        """Return the requirement in JSON types, without default values."""
        record: dict[str, Any] = {"name": self.name}
        if self.min_successful_calls != 1:
            record["min_successful_calls"] = self.min_successful_calls
        if self.required_parameters:
            record["required_parameters"] = TableValue(TableDocument("proof"), self.required_parameters).json()
        if self.required_output:
            record["required_output"] = list(self.required_output)
        return record

    def evaluate(self, evidence: Evidence, option: str) -> Iterator[RequirementFinding]:
        """Yield findings about the number of calls, and about their output."""
        tool, min_calls, parameters = self.name, self.min_successful_calls, self.required_parameters
        calls = [
            call
            for call in evidence.of(tool)
            if all(has_equal_value(call.arguments, path, parameters[path]) for path in parameters)
        ]
        shown_parameters = ", ".join(f"{path}={_format_value(value)}" for path, value in parameters.items())
        description = f"{tool} with {shown_parameters}" if parameters else tool
        yield check_call_count(description, len(calls), min_calls, subject=tool, option=option)
        if self.required_output:
            calls_with_output = sum(
                all(has_output(call.value, path) for path in self.required_output) for call in calls
            )
            paths = ", ".join(self.required_output)
            phrase, model_text = f"{option}: output {paths} of {description}", f"{paths} in the result of {description}"
            if min_calls > 1:
                phrase += f": {min(calls_with_output, min_calls)} of {min_calls} successful calls"
                model_text = (
                    f"{paths} in {min_calls} results of {description} ({min(calls_with_output, min_calls)} so far)"
                )
            yield RequirementFinding(phrase, calls_with_output >= min_calls, tool, model_text, option)


@dataclass(frozen=True, slots=True)
class Findings:
    """Result of checking a run's evidence against its assertions."""

    complete: bool
    missing: tuple[str, ...]
    satisfied: tuple[str, ...]
    impossible: bool
    """True if a forbidden tool was called, so the run can no longer complete."""
    met_options: tuple[str, ...]
    """Names of the `complete_when_any` options that hold."""
    details: tuple[RequirementFinding, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RequirementFinding:
    """Single requirement, and whether the evidence meets it."""

    phrase: str
    """Short, stable description for people and programs."""
    is_met: bool
    subject: str
    """Tool or key that `Assertions.messages` may have a text for."""
    model_text: str
    """Description for the model while the requirement is missing."""
    option: str = ""


def check_call_count(
    description: str, calls: int, min_calls: int, *, subject: str, option: str = ""
) -> RequirementFinding:
    """Check whether a tool has enough successful calls."""
    phrase = f"tool {description}: {min(calls, min_calls)} of {min_calls} successful calls"
    model_text = (
        f"a successful call of {description}"
        if min_calls == 1
        else f"{min_calls} successful calls of {description} ({calls} so far)"
    )
    if option:
        phrase = f"{option}: {phrase}"
    return RequirementFinding(phrase, calls >= min_calls, subject, model_text, option)


def _format_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return truncate(text, 120)


_DEFAULTS: Mapping[str, object] = {
    "required_tool_names": (),
    "required_engine_data_keys": (),
    "minimum_successful_tool_counts": {},
    "complete_when_any": (),
    "forbidden_tool_names": (),
    "required_output_packet_types": (),
    "required_artifact_outputs": (),
    "messages": {},
    "hide_mechanics": False,
}


_REQUIREMENT_DEFAULTS: Mapping[str, object] = {
    "name": None,
    "min_successful_calls": 1,
    "required_parameters": {},
    "required_output": (),
}


def _read_file(path: Path) -> tuple[TableDocument, Mapping[str, Any]]:
    from .._internal.toml import TomlDocument  # imports tomllib, needed only to read a file

    document = TomlDocument.read(path)
    return TableDocument(TABLE, document, str(path), (TABLE,) if TABLE in document.data else ()), document.data


def _unwrap_table(document: TableDocument, source: Mapping[str, Any]) -> object:
    """Return the table under the assertions key, or the mapping itself."""
    if TABLE not in source:
        misspelt = [key for key in source if suggest_names(str(key), (TABLE, *_DEFAULTS))[:1] == [TABLE]]
        for key in misspelt:
            _value_beside(document, key).add_error(f"the key {TABLE}")
        return {key: value for key, value in source.items() if key not in misspelt}
    # A file may hold tables of other programs, so only likely misspellings are errors there.
    for key in source:
        if key != TABLE and (document.toml is None or suggest_names(key, (TABLE, *_DEFAULTS))):
            _value_beside(document, key).add_error(f"no other key next to {TABLE}")
    return source[TABLE]


def _value_beside(document: TableDocument, key: str) -> TableValue:
    return TableValue(TableDocument(str(key), document.toml, document.file, (key,), document.errors), key)


def _parse_fields(entry: TableValue) -> dict[str, Any]:
    """Parse the fields of an Assertions; problems are added to the document's errors."""
    fields = entry.fields(_DEFAULTS, "a table of assertions")
    tool_names = "names of tools"
    each_once = "each tool once; use minimum_successful_tool_counts to require several calls"
    counts = fields["minimum_successful_tool_counts"].table("a table of tools and how often each must succeed")
    for tool, count in counts.items():
        TableValue(entry.document, tool, count.key_path).name("the name of a tool")
    messages = fields["messages"].table("a table of messages")
    values: dict[str, Any] = {
        "required_tool_names": fields["required_tool_names"].names(tool_names, each_once),
        "required_engine_data_keys": fields["required_engine_data_keys"].paths(),
        "minimum_successful_tool_counts": {name: count.integer(min_value=1) for name, count in counts.items()},
        "complete_when_any": _parse_options(fields["complete_when_any"]),
        "forbidden_tool_names": fields["forbidden_tool_names"].names(tool_names),
        "required_output_packet_types": fields["required_output_packet_types"].names("types of packets"),
        "required_artifact_outputs": _parse_artifact_outputs(fields["required_artifact_outputs"]),
        "messages": {name: message.text("a message for the model") for name, message in messages.items()},
        "hide_mechanics": fields["hide_mechanics"].flag(),
    }
    if not entry.document.errors:
        _check_consistency(entry, fields, values)
    return values


def _check_consistency(entry: TableValue, fields: Mapping[str, TableValue], values: Mapping[str, Any]) -> None:
    """Add errors for well-formed assertions that contradict each other."""
    options: tuple[CompletionOption, ...] = values["complete_when_any"]
    groups = ("required_tool_names", "minimum_successful_tool_counts")
    if not any(values[name] for name in _DEFAULTS if name not in ("messages", "hide_mechanics")):
        TableValue(entry.document, {name: value for name, value in values.items() if value}).add_error(
            "at least one assertion"
        )
        return
    for item in fields["forbidden_tool_names"].items("names of tools"):
        for group in groups:
            if item.value in values[group]:
                item.add_error(f"a tool that {group} does not require")
    forbidden = set(values["forbidden_tool_names"])
    if options and all(forbidden & set(option.tool_names) for option in options):
        fields["forbidden_tool_names"].add_error("at least one outcome in complete_when_any without a forbidden tool")
    known = [name for group in (*groups, "required_engine_data_keys") for name in values[group]]
    known += [name for option in options for name in (option.name, *option.tool_names)]
    known += [*values["required_output_packet_types"], *(one.output_key for one in values["required_artifact_outputs"])]
    for name, message in fields["messages"].table("a table of messages").items():
        if name not in known:
            suggestions = suggest_names(name, known)[:1] or dict.fromkeys(known)
            TableValue(entry.document, name, message.key_path).add_error(
                f"a name that the assertions require: {' or '.join(suggestions)}"
            )
    if values["messages"] and values["hide_mechanics"]:
        fields["messages"].add_error("no messages, because hide_mechanics hides them")


def _parse_artifact_outputs(entry: TableValue) -> tuple[ArtifactOutput, ...]:
    outputs: list[ArtifactOutput] = []
    for item in entry.items("names of outputs, or tables with an output_key"):
        if isinstance(item.value, ArtifactOutput):
            outputs.append(item.value)
        elif (values := parse_artifact_output(item)) is not None and not entry.document.errors:
            outputs.append(ArtifactOutput(**values))
    return tuple(outputs)


def _parse_options(entry: TableValue) -> tuple[CompletionOption, ...]:
    options: dict[str, CompletionOption] = {}
    for item in entry.items("tables, each with the name of an outcome and its tools"):
        option = parse_option(item)
        if option is not None and option.name in options:
            item.child("name", option.name).add_error("a name that no other outcome has")
        elif option is not None:
            options[option.name] = option
    return tuple(options.values())


def parse_option(entry: TableValue) -> CompletionOption | None:
    """Parse an option or its table; None if it has errors."""
    error_count = len(entry.document.errors)
    if isinstance(entry.value, CompletionOption):
        return entry.value
    values = _parse_option_fields(entry)
    return CompletionOption(**values) if len(entry.document.errors) == error_count else None


def _parse_option_fields(entry: TableValue) -> dict[str, Any]:
    fields = entry.fields({"name": None, "tools": None}, "a table with the name of an outcome and its tools")
    name = fields["name"].name("the name of an outcome")
    tools: list[ToolRequirement] = []
    items = fields["tools"].items("tables, each with the name of a tool")
    if fields["tools"].value in ((), []):
        fields["tools"].add_error("at least one tool")
    for item in items:
        requirement = _parse_requirement(item)
        if requirement is not None and requirement in tools:
            item.add_error("each requirement once; use min_successful_calls to require several calls")
        tools += [requirement] if requirement is not None else []
    return {"name": name, "tools": tuple(tools)}


def _parse_requirement(entry: TableValue) -> ToolRequirement | None:
    error_count = len(entry.document.errors)
    if isinstance(entry.value, ToolRequirement):
        return entry.value
    values = _parse_requirement_fields(entry)
    return ToolRequirement(**values) if len(entry.document.errors) == error_count else None


def _parse_requirement_fields(entry: TableValue) -> dict[str, Any]:
    fields = entry.fields(_REQUIREMENT_DEFAULTS, "a table with the name of a tool")
    parameters = fields["required_parameters"].table("a table of parameters")
    for path, parameter in parameters.items():
        TableValue(entry.document, path, parameter.key_path).path()
    return {
        "name": fields["name"].name("the name of a tool"),
        "min_successful_calls": fields["min_successful_calls"].integer(min_value=1),
        "required_parameters": {path: parameter.json() for path, parameter in parameters.items()},
        "required_output": fields["required_output"].paths(),
    }


def _get_fields(record: ToolRequirement | CompletionOption) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def set_fields(record: object, document: TableDocument, values: Mapping[str, Any]) -> None:
    """Set the parsed values on a frozen record, or raise the parse errors."""
    document.raise_errors()
    for name, value in values.items():
        object.__setattr__(record, name, value)
