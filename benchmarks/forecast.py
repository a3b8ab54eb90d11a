"""How far off forecasts are: recorded runs are replayed, and asked at a third, a half and two thirds of their turns.

Runs of several kinds are recorded in a SQLite store, each until a limit ended it. Then each is replayed from its
journal without a model, with a hook that reads `progress.forecast`. Some have expensive or slow turns. Slow calls
move a clock of their own, so the figures do not depend on the machine.

`make forecast` runs it. `make forecast ARGS=--local` adds runs of SmolLM2, which take some minutes. Exits with 1 when a
target is missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flyball import Agent, Limits, TokenPrice, tool
from flyball.budget.forecast import Forecast
from flyball.history.replay import RecordedRun, replay_run
from flyball.models import LocalModel, Model
from flyball.progress import Continue, Decision, Point, Progress
from flyball.request import Call, Finish, Reply, Request, Usage
from flyball.store import Store, open_store
from flyball.testing import ManualClock

RUNS = 12
SHARES = {"a third": 1 / 3, "a half": 1 / 2, "two thirds": 2 / 3}
MAX_OFF = 0.2
"""Median error that is allowed, as a share of all turns of the run."""


CLOCK = ManualClock()


@tool(poll=True)
def look(place: int, ctx_seconds: float = 0.0) -> str:
    """Look at a place."""
    CLOCK.move(ctx_seconds)
    return f"place {place}: " + "a stone " * (place % 7)


@dataclass
class Spender:
    """Stands for a model: each turn uses the tokens, the calls and the time that `spend` returns."""

    spend: Callable[[random.Random, int], tuple[int, int, float]]
    seed: int
    name: str = "spender"
    provider: str | None = None
    price: TokenPrice = field(default_factory=lambda: TokenPrice(input=3, output=15))

    def ready(self) -> str | None:
        """Return None: it can always be asked."""
        return None

    def ask(self, request: Request, tell: object = None, /) -> Reply:
        """Use the tokens of the turn, and ask for its calls."""
        tokens, count, seconds = self.spend(random.Random(f"{self.seed}-{request.turns}"), request.turns)
        if not request.tools:
            return Reply("I looked at places.", usage=Usage(100, 10))
        calls = [Call(f"c{n}", "look", {"place": request.turns + n, "ctx_seconds": seconds}) for n in range(count)]
        output = min(tokens // 10 + 1, request.max_output_tokens or 10**9)
        return Reply("", tuple(calls), Usage(max(1, tokens - output), output), Finish.CALLS)


def steady(dice: random.Random, turn: int) -> tuple[int, int, float]:
    return dice.randint(900, 1_100), 1, 0.0


def growing(dice: random.Random, turn: int) -> tuple[int, int, float]:
    return 500 + turn * dice.randint(80, 120), 1, 0.0


def once(dice: random.Random, turn: int) -> tuple[int, int, float]:
    return dice.randint(900, 1_100) * (15 if turn == 7 else 1), 1, 0.0


def uneven(dice: random.Random, turn: int) -> tuple[int, int, float]:
    return dice.choice([600, 800, 1_000, 1_200, 1_400]) * (5 if dice.random() < 0.12 else 1), 1, 0.0


def busy(dice: random.Random, turn: int) -> tuple[int, int, float]:
    return 300, dice.randint(1, 4), 0.0


def slow(dice: random.Random, turn: int) -> tuple[int, int, float]:
    return 300, 1, dice.uniform(2, 6) * (6 if dice.random() < 0.08 else 1)


KINDS: dict[str, tuple[Callable[[random.Random, int], tuple[int, int, float]], Limits]] = {
    "tokens, steady": (steady, Limits(tokens=60_000, turns=500)),
    "tokens, a conversation that grows": (growing, Limits(tokens=90_000, turns=500)),
    "tokens, one turn costs 15 times as much": (once, Limits(tokens=70_000, turns=500)),
    "tokens, one turn in eight costs five times": (uneven, Limits(tokens=80_000, turns=500)),
    "money, a conversation that grows": (growing, Limits(usd=0.4, turns=500)),
    "tool calls, one to four in a turn": (busy, Limits(tool_calls=80, turns=500)),
    "time, one turn in twelve takes six times": (slow, Limits(seconds=200)),
    "turns": (steady, Limits(turns=40)),
}


def refuse(progress: Progress, /) -> Decision:
    return Continue("That is not all. Go on.")


@dataclass
class Watch:
    """Hook that reads the forecast at the start of each turn."""

    seen: dict[int, Forecast | None] = field(default_factory=dict[int, "Forecast | None"])

    def __call__(self, point: Point, progress: Progress, about: object = None, /) -> None:
        """Note the forecast of a turn."""
        if point is Point.TURN_STARTED:
            self.seen[progress.turn] = progress.forecast


def build_agent(model: Model, limits: Limits, store: Store, watch: Watch | None = None) -> Agent:
    hooks = [] if watch is None else [watch]
    return Agent(model=model, tools=[look], limits=limits, store=store, completion=refuse, hooks=hooks, clock=CLOCK)


@dataclass
class Findings:
    """Errors of the forecasts for one kind of run, by share of the run."""

    turns: list[int] = field(default_factory=list[int])
    off: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in SHARES})
    right: int = 0
    unknown: int = 0

    def add(self, seen: dict[int, Forecast | None], turns: int, limit: str) -> None:
        """Compare the forecasts of a run with its end."""
        self.turns.append(turns)
        for name, share in SHARES.items():
            turn = max(1, round(turns * share))
            forecast = seen.get(turn)
            if forecast is None:
                self.unknown += 1
                continue
            self.off[name].append(forecast.turns_left - (turns - turn))
            self.right += forecast.limit == limit

    def median_off(self, name: str) -> float:
        """Return the median error in turns."""
        return statistics.median(abs(off) for off in self.off[name]) if self.off[name] else float("nan")

    @property
    def worst_share(self) -> float:
        """Largest median error, as a share of all turns."""
        return max(self.median_off(name) for name in SHARES) / statistics.mean(self.turns)


FLAGS = {"tokens": "tokens", "cost_usd": "usd", "tool_calls": "tool_calls", "agent_iterations": "turns"}


def measure(models: list[tuple[Model, Limits]], store: Store) -> Findings:
    """Record the runs of these models, and replay them."""
    findings = Findings()
    for model, limits in models:
        result = build_agent(model, limits, store).run("Look at all places. Never stop.")
        assert result.flags, result.explain()
        flag = result.flags[-1].removeprefix("max_").removesuffix("_reached")
        watch, run_id = Watch(), result.run_id
        rows, events = store.journal.read(run_id), store.runs.events(run_id)
        recorded = RecordedRun(rows, events, result.stop.value, store.transcript)
        report = replay_run(build_agent(model, limits, store, watch), recorded)
        assert report.is_same, report
        findings.add(watch.seen, result.turns, FLAGS.get(flag, flag))
    return findings


def show(kind: str, findings: Findings) -> None:
    print(f"{kind} ({len(findings.turns)} runs of {min(findings.turns)} to {max(findings.turns)} turns)")
    for name in SHARES:
        offs = findings.off[name]
        if offs:
            span = f"{min(offs):+.0f} to {max(offs):+.0f}"
            print(f"  at {name:10}  off by {findings.median_off(name):.0f} turns (median), {span}")
    asked = sum(map(len, findings.off.values()))
    print(f"  the right limit in {findings.right} of {asked}; not known in {findings.unknown}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--local", action="store_true", help="add runs of the local model")
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder, open_store(f"sqlite:///{Path(folder) / 'runs.db'}") as store:
        for kind, (spend, limits) in KINDS.items():
            models: list[tuple[Model, Limits]] = [(Spender(spend, seed), limits) for seed in range(RUNS)]
            findings = measure(models, store)
            show(kind, findings)
            good &= findings.worst_share <= MAX_OFF
        if options.local:
            local = LocalModel("smollm2", max_output_tokens=40, temperature=0.5)
            limits = Limits(tokens=12_000, nudges=20)
            show("SmolLM2, tokens", measure([(local, limits)] * 5, store))
    print("on target" if good else f"MISSED: a median error above {MAX_OFF:.0%} of the turns")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
