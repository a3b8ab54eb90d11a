"""Usage of stored runs: turns, tokens, money and time, for lists and totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .._internal.json_reader import JsonReader
from .unfinished import build_partial_record

if TYPE_CHECKING:
    from ..store import Entry, Store

GROUPS = ("agent", "model", "day")
"""Properties by which usage can be summed up."""


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Usage of one model in one run."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    """Dollars. None if the price is not known, or the run has not ended."""


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Usage of one run, without its children."""

    turns: int
    seconds: float
    """Seconds until the end, or until the last stored event."""
    tokens: int
    usd: float | None
    """Dollars. None if the price of no model is known, or an agent's run has not ended."""
    is_partly_unknown: bool
    """True if models without a known price were used as well, or a program has not ended."""


def read_run_usage(store: Store, entry: Entry) -> RunUsage:
    """Return the usage of a run. If it has not ended, it is counted from its events."""
    data = _read_record(store, entry)
    is_ended = bool(data.get("stop"))
    costs, usage = data.nested("cost_usd"), data.nested("usage")
    total = sum(costs.number(model) for model in costs)
    is_unknown = bool(data.text_list("unpriced")) or not is_ended
    tokens = usage.integer("input") + usage.integer("output")
    is_free = not is_unknown or (is_ended and not tokens)
    usd = total if total or is_free else None
    return RunUsage(data.integer("turns"), data.number("seconds"), tokens, usd, is_unknown and not is_free)


def _read_record(store: Store, entry: Entry) -> JsonReader:
    """Return the record of a run; a partial one if it has not ended."""
    full = store.runs.get(entry.run_id) or entry
    if full.finish is not None and full.finish.record is not None:
        return JsonReader(full.finish.record)
    return JsonReader(build_partial_record(store.runs.events(entry.run_id), (), entry.start.metadata))


@dataclass(slots=True)
class UsageGroup:
    """Sum of the usage of several runs."""

    runs: set[str] = field(default_factory=set[str])
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    """Number of requests whose cost is not known."""

    def add(self, run_id: str, usage: ModelUsage) -> None:
        """Add the usage of one model in one run."""
        self.runs.add(run_id)
        self.requests += usage.requests
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        if usage.usd is None:
            self.unpriced += usage.requests
        else:
            self.usd += usage.usd


def group_usage(
    store: Store, entries: Iterable[Entry], by: Sequence[str]
) -> tuple[dict[tuple[str, ...], UsageGroup], UsageGroup]:
    """Sum up the usage of runs by these properties, in order of the keys; also return the total."""
    groups, total = dict[tuple[str, ...], UsageGroup](), UsageGroup()
    for entry in entries:
        for model, usage in read_model_usage(store, entry).items():
            values = {"agent": entry.start.agent, "model": model, "day": _format_day(entry.start.at)}
            groups.setdefault(tuple(values[name] for name in by), UsageGroup()).add(entry.run_id, usage)
            total.add(entry.run_id, usage)
    return dict(sorted(groups.items())), total


def read_model_usage(store: Store, entry: Entry) -> Mapping[str, ModelUsage]:
    """Return the usage of a run by model. A run without a request has none."""
    record = _read_record(store, entry)
    costs, unpriced = record.nested("cost_usd"), record.text_list("unpriced")
    totals = dict[str, list[int]]()
    for model, tokens_in, tokens_out in _iter_requests(store, entry):
        total = totals.setdefault(model, [0, 0, 0])
        for n, amount in enumerate((1, tokens_in, tokens_out)):
            total[n] += amount
    return {
        model: ModelUsage(*total, usd=None if model in unpriced or model not in costs else costs.number(model))
        for model, total in totals.items()
    }


def _iter_requests(store: Store, entry: Entry) -> Iterator[tuple[str, int, int]]:
    """Yield the model and the reported tokens of each request."""
    model = ""
    for event in map(JsonReader, store.runs.events(entry.run_id)):
        match event.text("event"):
            case "model_requested":
                model = event.text("model")
            case "model_replied":
                yield model, event.integer("input_tokens"), event.integer("output_tokens")
            case _:
                pass


def _format_day(timestamp: float) -> str:
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d}"
