"""Outputs that tools leave behind: fields of results, typed packets and typed artifacts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from .._internal.path import has_equal_value, has_value
from .._internal.table import TableDocument, TableValue
from ..progress import Evidence

TOOL_RESULT = "tool_result"
"""Packet type of every successful call."""
_ENVELOPES = ("", "data.", "result.")
"""Places of the output in a result: the result itself, or what it wraps."""
_ARTIFACTS = "outputs.typed_artifacts"
_DEFAULTS: Mapping[str, object] = {"output_key": None, "schema": "", "artifact": ""}


@dataclass(frozen=True, slots=True)
class ArtifactOutput:
    """Typed artifact that a tool must have left, in its result or in the run's state."""

    output_key: str
    schema: str = ""
    """Schema of the artifact. Empty means any."""
    artifact: str = ""
    """Type of the artifact. Empty means any."""

    def __post_init__(self) -> None:
        document = TableDocument("artifact output")
        values = {name: getattr(self, name) for name in _DEFAULTS}
        parsed = parse_artifact_output(TableValue(document, values))
        document.raise_errors()
        for name, value in (parsed or {}).items():
            object.__setattr__(self, name, value)

    def required(self) -> dict[str, Any]:
        """Return the requirement in JSON types, without default values."""
        return {name: getattr(self, name) for name in _DEFAULTS if getattr(self, name)}

    def is_met(self, evidence: Evidence) -> bool:
        """Check whether the state or a successful result has the artifact under `outputs.typed_artifacts`."""
        return any(
            self._is_in(source, f"{envelope}{_ARTIFACTS}.{self.output_key}")
            for source in (evidence.state, *(call.value for call in evidence.all()))
            for envelope in _ENVELOPES
        )

    def _is_in(self, source: object, path: str) -> bool:
        wanted = {"schema": self.schema, "artifact": self.artifact}
        return has_value(source, path) and all(
            has_equal_value(source, f"{path}.{name}", value) for name, value in wanted.items() if value
        )


def parse_artifact_output(entry: TableValue) -> dict[str, Any] | None:
    """Parse a table, or the name of an output; None if it has errors."""
    if isinstance(entry.value, str):
        return {"output_key": entry.path()}
    errors = len(entry.document.errors)
    fields = entry.fields(_DEFAULTS, "the name of an output, or a table with its output_key, schema and artifact")
    values = {
        "output_key": fields["output_key"].path(),
        **{name: fields[name].name("a name") if fields[name].value != "" else "" for name in ("schema", "artifact")},
    }
    return values if len(entry.document.errors) == errors else None


def has_output(value: object, path: str) -> bool:
    """Check whether a result has a value at a path: in itself, in its `data` or in its `result`."""
    return any(has_value(value, f"{envelope}{path}") for envelope in _ENVELOPES)


def find_packet_types(evidence: Evidence) -> set[str]:
    """Return the types of the packets that successful calls have left.

    A packet is a mapping with a `type`: a result, what it wraps as `data` or `result`, or an entry of their `packets`.
    """
    types: set[str] = set()
    for call in evidence.all():
        types.add(TOOL_RESULT)
        types.update(kind for packet in _iter_packets(call.value) if isinstance(kind := packet.get("type"), str))
    return types


def _iter_packets(value: object) -> Iterator[Mapping[Any, Any]]:
    if not isinstance(value, Mapping):
        return
    table = cast("Mapping[Any, Any]", value)
    for wrapped in (table, table.get("data"), table.get("result")):
        if isinstance(wrapped, Mapping):
            inner = cast("Mapping[Any, Any]", wrapped)
            yield inner
            packets = inner.get("packets")
            listed = cast("Sequence[Any]", packets) if isinstance(packets, list | tuple) else ()
            yield from (cast("Mapping[Any, Any]", packet) for packet in listed if isinstance(packet, Mapping))
