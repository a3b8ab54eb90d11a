"""What a condition costs beside plain `eval` of the same expression, compiled by Python, over plain objects.

Ratios of CPU time in one process, the two taking turns, best of several rounds. Exits with 1 when a target is missed.
The last lines are only printed: what a first look costs, when nothing is in the view yet, and what compiling does.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

from flyball import Limits
from flyball.progress import Point, Progress
from flyball.rules import RuleSet
from flyball.rules.actions import NotifySelf
from flyball.rules.engine import RuleEngine
from flyball.rules.expression import Condition
from flyball.rules.rule import Rule, Trigger
from flyball.rules.template import Template
from flyball.rules.view import View
from flyball.rules.vocabulary import Helper, Vocabulary, build_vocabulary

TIMES, ROUNDS, TARGET = 20_000, 15, 3.0
CONDITIONS = {
    "of the seed": "context.turn.iteration_count > 7",
    "checkpoint": "context.turn.iteration_count % 5 == 0 and context.turn.iteration_count > 0",
    "share": "context.turn.iteration_count / context.turn.max_iterations > 0.7",
    "one of some": "context.result.tool_name in ['search', 'read', 'fetch'] and not context.result.success",
    "two functions": "len(context.history.tools) > 3 or max(context.history.tools) == 'write'",
    "arithmetic": "(context.turn.iteration_count + 2) * 3 - context.turn.max_iterations // 2 < 100",
    "index, ternary": "context.history.tools[0 if context.result.success else -1] == 'read'",
    "helper": "tool_completed('read')",
}
DATA: dict[str, Any] = {
    "context": {
        "turn": {"iteration_count": 8, "max_iterations": 10},
        "history": {"tools": ["read", "search", "read", "write"]},
        "result": {"tool_name": "fetch", "success": True},
    }
}


def tool_completed(view: View, name: str) -> bool:
    return name in DATA["context"]["history"]["tools"]


WORDS = Vocabulary({"context"}, helpers={"tool_completed": Helper(tool_completed)})


def objects(value: Any) -> Any:
    """The data as Python's dots can read it."""
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{key: objects(below) for key, below in cast("dict[str, Any]", value).items()})


def seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(TIMES):
        work()
    return (time.process_time() - began) / TIMES


def side_by_side(expression: str) -> tuple[float, float]:
    """The best time of one evaluation: ours, and by `eval`."""
    condition, view = Condition(expression, WORDS), View(DATA)
    code = compile(expression, "<plain>", "eval")
    names: dict[str, Any] = {**vars(objects(DATA)), "tool_completed": partial(tool_completed, view)}
    assert condition.evaluate(view).value == bool(eval(code, names)), expression
    assert condition.evaluate(view).reason is None, expression
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        best[0] = min(best[0], seconds(lambda: condition.evaluate(view)))
        best[1] = min(best[1], seconds(lambda: eval(code, names)))
    return best[0], best[1]


def main() -> int:
    missed = 0
    for name, expression in CONDITIONS.items():
        ours, plain = side_by_side(expression)
        missed += ours / plain > TARGET
        print(f"{name:16} {1e9 * ours:5.0f} ns  {ours / plain:4.2f}x eval ({1e9 * plain:.0f} ns)  (target {TARGET}x)")
    share, text = CONDITIONS["share"], "Turn {{ context.turn.iteration_count }} of {{ context.turn.max_iterations }}."
    condition, template, view = Condition(share, WORDS), Template(text, WORDS), View(DATA)
    print(f"{'a template':16} {1e9 * seconds(lambda: template.render(view)):5.0f} ns")
    print(f"{'a first look':16} {1e9 * seconds(lambda: condition.evaluate(View(DATA))):5.0f} ns")
    print(f"{'1,000 rules':16} {1e6 * min(seconds_of_a_crowd() for _ in range(20)):5.0f} us on one hook")
    print(f"{'compiling':16} {1e9 * min(seconds_of_one(share) for _ in range(200)):5.0f} ns")
    return 1 if missed else 0


@cache
def crowd() -> tuple[RuleEngine, Progress]:
    """A thousand rules that look at the start of every turn, and none of which fires."""
    words = build_vocabulary()
    rules = tuple(
        Rule(
            id=f"rule-{n}",
            trigger=Trigger.TURN_START,
            action=NotifySelf(Template("Turn {{ context.turn.iteration_count }}.", words)),
            condition=Condition(f"context.turn.iteration_count / context.turn.max_iterations > {n + 1}", words),
        )
        for n in range(1_000)
    )
    return RuleSet(rules).begin(), Progress("run", Limits(turns=10).open(), [], {}, turn=1)


def seconds_of_a_crowd() -> float:
    engine, progress = crowd()
    began = time.process_time()
    assert not engine(Point.TURN_STARTED, progress)
    return time.process_time() - began


def seconds_of_one(expression: str) -> float:
    began = time.perf_counter()
    Condition(expression, WORDS)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
