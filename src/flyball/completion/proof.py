"""Proofs: which successful calls show that a task is done, and the ways in which it may be."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._internal.path import is_at, is_there
from .._internal.table import Entry, Page
from ..evidence import Evidence


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is asked for, and whether it is there."""

    phrase: str
    """Short and stable, for people and programs."""
    held: bool
    about: str
    """The tool or the key; somebody may have given it a message of its own."""
    words: str
    """What the model is told while it is missing."""
    way: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    """Calls of one tool that must have succeeded, each with these parameters and this output.

    The keys of the parameters, and the output, are dotted paths. Parameters are compared as JSON would be.
    """

    name: str
    min_successful_calls: int = 1
    required_parameters: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    required_output: Sequence[str] = ()

    def __post_init__(self) -> None:
        page = Page("proof")
        keep(self, page, _proof_fields(Entry(page, _given(self))))

    def required(self) -> dict[str, Any]:
        """The same in JSON types; what was left open is left out."""
        table: dict[str, Any] = {"name": self.name}
        if self.min_successful_calls != 1:
            table["min_successful_calls"] = self.min_successful_calls
        if self.required_parameters:
            table["required_parameters"] = Entry(Page("proof"), self.required_parameters).json()
        if self.required_output:
            table["required_output"] = list(self.required_output)
        return table

    def look(self, evidence: Evidence, way: str) -> Iterator[Finding]:
        """Whether there are enough calls, and whether enough of those have the output as well."""
        tool, least, wanted = self.name, self.min_successful_calls, self.required_parameters
        calls = [one for one in evidence.of(tool) if all(is_at(one.arguments, path, wanted[path]) for path in wanted)]
        parameters = ", ".join(f"{path}={_brief(value)}" for path, value in wanted.items())
        what = f"{tool} with {parameters}" if wanted else tool
        yield counted(what, len(calls), least, about=tool, way=way)
        if self.required_output:
            whole = sum(all(is_there(one.value, path) for path in self.required_output) for one in calls)
            paths = ", ".join(self.required_output)
            phrase, words = f"{way}: output {paths} of {what}", f"{paths} in the result of {what}"
            if least > 1:
                phrase += f": {min(whole, least)} of {least} successful calls"
                words = f"{paths} in {least} results of {what} ({min(whole, least)} so far)"
            yield Finding(phrase, whole >= least, tool, words, way)


@dataclass(frozen=True, slots=True)
class Way:
    """One named outcome that completes a task: all its proofs must hold."""

    name: str
    tools: Sequence[Proof]

    def __post_init__(self) -> None:
        page = Page("way")
        keep(self, page, _way_fields(Entry(page, _given(self))))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools it needs."""
        return tuple(dict.fromkeys(proof.name for proof in self.tools))

    def required(self) -> dict[str, Any]:
        """The same in JSON types."""
        return {"name": self.name, "tools": [proof.required() for proof in self.tools]}

    def look(self, evidence: Evidence) -> list[Finding]:
        """What each proof finds; the same thing asked for twice is told once."""
        return list(dict.fromkeys(finding for proof in self.tools for finding in proof.look(evidence, self.name)))


def counted(what: str, calls: int, least: int, *, about: str, way: str = "") -> Finding:
    """Whether there are enough calls of a tool."""
    phrase = f"tool {what}: {min(calls, least)} of {least} successful calls"
    words = f"a successful call of {what}" if least == 1 else f"{least} successful calls of {what} ({calls} so far)"
    return Finding(f"{way}: {phrase}" if way else phrase, calls >= least, about, words, way)


def keep(record: object, page: Page, values: Mapping[str, Any]) -> None:
    """Give a frozen record its values as they were read, or raise what is wrong with them."""
    page.finish()
    for name, value in values.items():
        object.__setattr__(record, name, value)


def read_way(entry: Entry) -> Way | None:
    """A way, also one written as a table; None where something is wrong with it."""
    before = len(entry.page.mistakes)
    if isinstance(entry.value, Way):
        return entry.value
    values = _way_fields(entry)
    return Way(**values) if len(entry.page.mistakes) == before else None


def _read_proof(entry: Entry) -> Proof | None:
    before = len(entry.page.mistakes)
    if isinstance(entry.value, Proof):
        return entry.value
    values = _proof_fields(entry)
    return Proof(**values) if len(entry.page.mistakes) == before else None


def _way_fields(entry: Entry) -> dict[str, Any]:
    given = entry.fields({"name": None, "tools": None}, "a table with the name of an outcome and its tools")
    name = given["name"].name("the name of an outcome")
    tools: list[Proof] = []
    items = given["tools"].items("tables, each with the name of a tool")
    if given["tools"].value in ((), []):
        given["tools"].wrong("at least one tool")
    for item in items:
        proof = _read_proof(item)
        if proof is not None and proof in tools:
            item.wrong("each proof once; for several calls there is min_successful_calls")
        tools += [proof] if proof is not None else []
    return {"name": name, "tools": tuple(tools)}


_PROOF: Mapping[str, object] = {
    "name": None,
    "min_successful_calls": 1,
    "required_parameters": {},
    "required_output": (),
}


def _proof_fields(entry: Entry) -> dict[str, Any]:
    given = entry.fields(_PROOF, "a table with the name of a tool")
    parameters = given["required_parameters"].table("a table of parameters")
    for path, parameter in parameters.items():
        Entry(entry.page, path, parameter.place).path()
    return {
        "name": given["name"].name("the name of a tool"),
        "min_successful_calls": given["min_successful_calls"].whole(least=1),
        "required_parameters": {path: parameter.json() for path, parameter in parameters.items()},
        "required_output": given["required_output"].paths(),
    }


def _given(record: Proof | Way) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:119]}…"
