"""Completion assertions: what a run must prove before it may call its task done.

They are given in Python, as a mapping or as a TOML file, in the words of Data Machine. Only calls that succeeded count.

>>> asked = Assertions.of({"required_tool_names": ["commit"], "minimum_successful_tool_counts": {"review": 2}})
>>> asked.check(Evidence({})).missing
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
from ..errors import ConfigError, suggest_names
from ..progress import Evidence


@dataclass(frozen=True, slots=True)
class RequirementFinding:
    """One thing that is asked for, and whether it is there."""

    phrase: str
    """Short and stable, for people and programs."""
    is_met: bool
    subject: str
    """The tool or the key; somebody may have given it a message of its own."""
    model_text: str
    """What the model is told while it is missing."""
    option: str = ""


@dataclass(frozen=True, slots=True)
class ToolRequirement:
    """Calls of one tool that must have succeeded, each with these parameters and this output.

    The keys of the parameters, and the output, are dotted paths. Parameters are compared as JSON would be.
    """

    name: str
    min_successful_calls: int = 1
    required_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    required_output: Sequence[str] = ()

    def __post_init__(self) -> None:
        page = TableDocument("proof")
        set_fields(self, page, _parse_requirement_fields(TableValue(page, _get_fields(self))))

    def required(self) -> dict[str, Any]:
        """The same in JSON types; what was left open is left out."""
        table: dict[str, Any] = {"name": self.name}
        if self.min_successful_calls != 1:
            table["min_successful_calls"] = self.min_successful_calls
        if self.required_parameters:
            table["required_parameters"] = TableValue(TableDocument("proof"), self.required_parameters).json()
        if self.required_output:
            table["required_output"] = list(self.required_output)
        return table

    def evaluate(self, evidence: Evidence, option: str) -> Iterator[RequirementFinding]:
        """Whether there are enough calls, and whether enough of those have the output as well."""
        tool, least, wanted = self.name, self.min_successful_calls, self.required_parameters
        calls = [
            one
            for one in evidence.of(tool)
            if all(has_equal_value(one.arguments, path, wanted[path]) for path in wanted)
        ]
        parameters = ", ".join(f"{path}={_format_value(value)}" for path, value in wanted.items())
        what = f"{tool} with {parameters}" if wanted else tool
        yield check_call_count(what, len(calls), least, subject=tool, option=option)
        if self.required_output:
            whole = sum(all(has_value(one.value, path) for path in self.required_output) for one in calls)
            paths = ", ".join(self.required_output)
            phrase, words = f"{option}: output {paths} of {what}", f"{paths} in the result of {what}"
            if least > 1:
                phrase += f": {min(whole, least)} of {least} successful calls"
                words = f"{paths} in {least} results of {what} ({min(whole, least)} so far)"
            yield RequirementFinding(phrase, whole >= least, tool, words, option)


@dataclass(frozen=True, slots=True)
class CompletionOption:
    """One named outcome that completes a task: all its proofs must hold."""

    name: str
    tools: Sequence[ToolRequirement]

    def __post_init__(self) -> None:
        page = TableDocument("way")
        set_fields(self, page, _parse_option_fields(TableValue(page, _get_fields(self))))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools it needs."""
        return tuple(dict.fromkeys(proof.name for proof in self.tools))

    def required(self) -> dict[str, Any]:
        """The same in JSON types."""
        return {"name": self.name, "tools": [proof.required() for proof in self.tools]}

    def evaluate(self, evidence: Evidence) -> list[RequirementFinding]:
        """What each proof finds; the same thing asked for twice is told once."""
        return list(dict.fromkeys(finding for proof in self.tools for finding in proof.evaluate(evidence, self.name)))


def check_call_count(
    description: str, calls: int, min_calls: int, *, subject: str, option: str = ""
) -> RequirementFinding:
    """Whether there are enough calls of a tool."""
    phrase = f"tool {description}: {min(calls, min_calls)} of {min_calls} successful calls"
    words = (
        f"a successful call of {description}"
        if min_calls == 1
        else f"{min_calls} successful calls of {description} ({calls} so far)"
    )
    return RequirementFinding(f"{option}: {phrase}" if option else phrase, calls >= min_calls, subject, words, option)


def set_fields(record: object, document: TableDocument, values: Mapping[str, Any]) -> None:
    """Give a frozen record its values as they were read, or raise what is wrong with them."""
    document.raise_errors()
    for name, value in values.items():
        object.__setattr__(record, name, value)


def parse_option(entry: TableValue) -> CompletionOption | None:
    """A way, also one written as a table; None where something is wrong with it."""
    before = len(entry.document.errors)
    if isinstance(entry.value, CompletionOption):
        return entry.value
    values = _parse_option_fields(entry)
    return CompletionOption(**values) if len(entry.document.errors) == before else None


def _parse_requirement(entry: TableValue) -> ToolRequirement | None:
    before = len(entry.document.errors)
    if isinstance(entry.value, ToolRequirement):
        return entry.value
    values = _parse_requirement_fields(entry)
    return ToolRequirement(**values) if len(entry.document.errors) == before else None


def _parse_option_fields(entry: TableValue) -> dict[str, Any]:
    given = entry.fields({"name": None, "tools": None}, "a table with the name of an outcome and its tools")
    name = given["name"].name("the name of an outcome")
    tools: list[ToolRequirement] = []
    items = given["tools"].items("tables, each with the name of a tool")
    if given["tools"].value in ((), []):
        given["tools"].add_error("at least one tool")
    for item in items:
        proof = _parse_requirement(item)
        if proof is not None and proof in tools:
            item.add_error("each proof once; for several calls there is min_successful_calls")
        tools += [proof] if proof is not None else []
    return {"name": name, "tools": tuple(tools)}


_REQUIREMENT_DEFAULTS: Mapping[str, object] = {
    "name": None,
    "min_successful_calls": 1,
    "required_parameters": {},
    "required_output": (),
}


def _parse_requirement_fields(entry: TableValue) -> dict[str, Any]:
    given = entry.fields(_REQUIREMENT_DEFAULTS, "a table with the name of a tool")
    parameters = given["required_parameters"].table("a table of parameters")
    for path, parameter in parameters.items():
        TableValue(entry.document, path, parameter.key_path).path()
    return {
        "name": given["name"].name("the name of a tool"),
        "min_successful_calls": given["min_successful_calls"].integer(min_value=1),
        "required_parameters": {path: parameter.json() for path, parameter in parameters.items()},
        "required_output": given["required_output"].paths(),
    }


def _get_fields(record: ToolRequirement | CompletionOption) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _format_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:119]}…"


TABLE = "completion_assertions"
"""The key they stand under, where they do not stand alone."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What the evidence of a run says about its assertions."""

    complete: bool
    missing: tuple[str, ...]
    satisfied: tuple[str, ...]
    impossible: bool
    """A forbidden tool was called: whatever the run does now, it cannot become complete."""
    met_options: tuple[str, ...]
    """The ways of complete_when_any that hold."""
    details: tuple[RequirementFinding, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assertions:
    """What must hold at the end of a run: all groups, and of complete_when_any one way."""

    required_tool_names: Sequence[str] = ()
    required_engine_data_keys: Sequence[str] = ()
    """Dotted paths into the run's state."""
    minimum_successful_tool_counts: Mapping[str, int] = field(default_factory=dict[str, int], hash=False)
    complete_when_any: Sequence[CompletionOption] = ()
    forbidden_tool_names: Sequence[str] = ()
    messages: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """What the model is told while something is missing, by the name of the tool, the key or the way."""
    hide_mechanics: bool = False
    """Tell the model only that the task is not complete."""

    def __post_init__(self) -> None:
        page = TableDocument(TABLE)
        set_fields(self, page, _parse_fields(TableValue(page, {name: getattr(self, name) for name in _DEFAULTS})))

    @classmethod
    def of(cls, source: Assertions | Mapping[str, Any] | str | Path) -> Assertions:
        """Assertions as they are, those that a mapping tells, or those in the TOML file of that path."""
        if isinstance(source, Assertions):
            return source
        if isinstance(source, str | Path):
            page, table = _read_file(Path(source))
        elif isinstance(source, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            page, table = TableDocument(TABLE), source
        else:
            raise ConfigError(TABLE, source, "an Assertions, a mapping, or the path of a TOML file")
        values = _parse_fields(TableValue(page, _unwrap_table(page, table)))
        page.raise_errors()
        return cls(**values)

    def required(self) -> dict[str, Any]:
        """Return the assertions as JSON types, under their Data Machine names; what was not set is left out."""
        table: dict[str, Any] = {
            "required_tool_names": list(self.required_tool_names),
            "required_engine_data_keys": list(self.required_engine_data_keys),
            "minimum_successful_tool_counts": dict(self.minimum_successful_tool_counts),
            "complete_when_any": [way.required() for way in self.complete_when_any],
            "forbidden_tool_names": list(self.forbidden_tool_names),
            "messages": dict(self.messages),
            "hide_mechanics": self.hide_mechanics,
        }
        return {key: value for key, value in table.items() if value}

    @property
    def may_end_early(self) -> bool:
        """Whether a run may end as soon as it is complete, though its model has not ended."""
        return bool(self.complete_when_any)

    @property
    def open_ways(self) -> tuple[CompletionOption, ...]:
        """The ways that no forbidden tool bars."""
        forbidden = set(self.forbidden_tool_names)
        return tuple(way for way in self.complete_when_any if forbidden.isdisjoint(way.tool_names))

    def unavailable(self, offered: Collection[str]) -> tuple[str, ...]:
        """The tools that are not offered, and without which no run can complete."""
        needed = [*self.required_tool_names, *self.minimum_successful_tool_counts]
        if not any(set(way.tool_names) <= set(offered) for way in self.open_ways):
            needed += [name for way in self.open_ways for name in way.tool_names]
        return tuple(dict.fromkeys(name for name in needed if name not in offered))

    def check(self, evidence: Evidence) -> Findings:
        """What holds and what is missing. More evidence takes nothing away, unless it is of a forbidden tool."""
        details = list(self._evaluate_groups(evidence))
        held: list[str] = []
        for way in self.open_ways:
            found = way.evaluate(evidence)
            details += found
            held += [way.name] if all(one.is_met for one in found) else []
        called = [f"forbidden tool {name} was called" for name in self.forbidden_tool_names if evidence.count(name)]
        missing = [one.phrase for one in details if not one.is_met and not (one.option and held)] + called
        satisfied = [one.phrase for one in details if one.is_met] + [f"outcome {name}" for name in held]
        return Findings(not missing, tuple(missing), tuple(satisfied), bool(called), tuple(held), tuple(details))

    def _evaluate_groups(self, evidence: Evidence) -> Iterator[RequirementFinding]:
        for name in self.required_tool_names:
            words = f"a successful call of {name}"
            yield RequirementFinding(f"required tool {name}", evidence.count(name) > 0, name, words)
        for key in self.required_engine_data_keys:
            words = f"a value for {key}, set by a tool"
            yield RequirementFinding(f"engine data key {key}", has_value(evidence.state, key), key, words)
        for name, least in self.minimum_successful_tool_counts.items():
            yield check_call_count(name, evidence.count(name), least, subject=name)


_DEFAULTS: Mapping[str, object] = {
    "required_tool_names": (),
    "required_engine_data_keys": (),
    "minimum_successful_tool_counts": {},
    "complete_when_any": (),
    "forbidden_tool_names": (),
    "messages": {},
    "hide_mechanics": False,
}


def _read_file(path: Path) -> tuple[TableDocument, Mapping[str, Any]]:
    from .._internal.toml import TomlDocument  # and with it tomllib: only where there is a file to read

    document = TomlDocument.read(path)
    return TableDocument(TABLE, document, str(path), (TABLE,) if TABLE in document.data else ()), document.data


def _unwrap_table(document: TableDocument, source: Mapping[str, Any]) -> object:
    """What stands under the key of assertions, or the mapping itself. A file may have more in it, for others."""
    if TABLE not in source:
        meant = [key for key in source if suggest_names(str(key), (TABLE, *_DEFAULTS))[:1] == [TABLE]]
        for key in meant:
            _value_beside(document, key).add_error(f"the key {TABLE}")
        return {key: value for key, value in source.items() if key not in meant}
    for key in source:
        if key != TABLE and (document.toml is None or suggest_names(key, (TABLE, *_DEFAULTS))):
            _value_beside(document, key).add_error(f"no such key beside {TABLE}")
    return source[TABLE]


def _value_beside(document: TableDocument, key: str) -> TableValue:
    return TableValue(TableDocument(str(key), document.toml, document.file, (key,), document.errors), key)


def _parse_fields(entry: TableValue) -> dict[str, Any]:
    """The fields of an Assertions as they are kept; what is wrong with them is noted."""
    given = entry.fields(_DEFAULTS, "a table of assertions")
    tools = "names of tools"
    several = "each tool once; for several calls there is minimum_successful_tool_counts"
    counts = given["minimum_successful_tool_counts"].table("a table of tools and how often each must succeed")
    for tool, count in counts.items():
        TableValue(entry.document, tool, count.key_path).name("the name of a tool")
    messages = given["messages"].table("a table of messages")
    values: dict[str, Any] = {
        "required_tool_names": given["required_tool_names"].names(tools, several),
        "required_engine_data_keys": given["required_engine_data_keys"].paths(),
        "minimum_successful_tool_counts": {name: count.integer(min_value=1) for name, count in counts.items()},
        "complete_when_any": _parse_options(given["complete_when_any"]),
        "forbidden_tool_names": given["forbidden_tool_names"].names(tools),
        "messages": {name: message.text("a message for the model") for name, message in messages.items()},
        "hide_mechanics": given["hide_mechanics"].flag(),
    }
    if not entry.document.errors:
        _check_consistency(entry, given, values)
    return values


def _parse_options(entry: TableValue) -> tuple[CompletionOption, ...]:
    ways: dict[str, CompletionOption] = {}
    for item in entry.items("tables, each with the name of an outcome and its tools"):
        way = parse_option(item)
        if way is not None and way.name in ways:
            item.child("name", way.name).add_error("a name that no other outcome has")
        elif way is not None:
            ways[way.name] = way
    return tuple(ways.values())


def _check_consistency(entry: TableValue, given: Mapping[str, TableValue], values: Mapping[str, Any]) -> None:
    """Whether assertions that are well formed make sense together."""
    ways: tuple[CompletionOption, ...] = values["complete_when_any"]
    groups = ("required_tool_names", "minimum_successful_tool_counts")
    if not any(values[name] for name in _DEFAULTS if name not in ("messages", "hide_mechanics")):
        TableValue(entry.document, {name: value for name, value in values.items() if value}).add_error(
            "at least one assertion"
        )
        return
    for item in given["forbidden_tool_names"].items("names of tools"):
        for group in groups:
            if item.value in values[group]:
                item.add_error(f"a tool that {group} does not ask for")
    forbidden = set(values["forbidden_tool_names"])
    if ways and all(forbidden & set(way.tool_names) for way in ways):
        given["forbidden_tool_names"].add_error("one outcome of complete_when_any that needs none of them")
    known = [name for group in (*groups, "required_engine_data_keys") for name in values[group]]
    known += [name for way in ways for name in (way.name, *way.tool_names)]
    for name, message in given["messages"].table("a table of messages").items():
        if name not in known:
            meant = suggest_names(name, known)[:1] or dict.fromkeys(known)
            TableValue(entry.document, name, message.key_path).add_error(
                f"the name of what is asked for: {' or '.join(meant)}"
            )
    if values["messages"] and values["hide_mechanics"]:
        given["messages"].add_error("no messages, as hide_mechanics would never show them")
