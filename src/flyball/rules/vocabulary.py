"""Which names an expression may use, so that a misspelt one is found before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ..errors import ConfigError, RuleError, quote_value, suggest_names
from .operations import FUNCTIONS, SIGNS
from .view import Table, View, freeze

CONSTANTS = {"true": True, "false": False, "none": None}
"""As well as Python's own."""

Tree = dict[str, "Tree"]


@dataclass(frozen=True, slots=True)
class Helper:
    """A function of the caller's that expressions may call.

    It is given the view, then the arguments, which are plain values. It must not change anything or wait for anything.
    It may return what a view may hold, and may raise: the expression can then not be worked out.
    """

    function: Callable[..., object]
    argument_count: int = 1
    """How many arguments an expression gives it."""
    choices: Collection[str] = ()
    """What a text that is written as its first argument may be; empty: anything."""
    fields: Collection[str] = ()
    """What may stand behind a dot after its call; empty: anything."""

    def wrap(self, name: str) -> Callable[..., object]:
        """The function as the code of an expression calls it: what it returns is plain, and what it raises is told."""
        function, result = self.function, f"{name}(…)"

        def call(view: View, *arguments: object) -> object:
            try:
                found = function(view, *arguments)
            except RuleError:
                raise
            except Exception as error:
                raise RuleError(f"{name} failed: {quote_value(error)}") from error
            return freeze(found, result)

        return call


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The names that an expression may use; those of the functions that it always may are not listed here."""

    names: Collection[str]
    """What a dotted name may begin with."""
    fields: Collection[str] = ()
    """Dotted names, `*` for any field. Below a last `*` anything goes, and below a name of which no field is listed."""
    helpers: Mapping[str, Helper] = field(default_factory=dict[str, Helper])
    tree: Tree = field(init=False, repr=False, compare=False)
    namespace: dict[str, Any] = field(init=False, repr=False, compare=False)
    """All that the code of an expression can call, by name; it cannot reach anything else."""

    def __post_init__(self) -> None:
        tree: Tree = {name: {} for name in self.names}
        for dotted in self.fields:
            below = tree
            for part in dotted.split("."):
                below = below.setdefault(part, {})
        ours = FUNCTIONS.keys() | CONSTANTS.keys()
        if taken := sorted(tree.keys() & ours | self.helpers.keys() & (tree.keys() | ours)):
            raise ConfigError("vocabulary", taken, "names that are not taken")
        functions = {name: function.call for name, function in FUNCTIONS.items()}
        helpers = {name: helper.wrap(name) for name, helper in self.helpers.items()}
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "namespace", {"__builtins__": {}, **SIGNS, **functions, **helpers})

    def suggest_correction(self, path: tuple[str, ...]) -> str | None:
        """What should have been written for a dotted name that begins well; None: it is right as it is."""
        known, anything = self.tree[path[0]], True
        for place, part in enumerate(path[1:], 1):
            if not known:
                return None if anything else f"{'.'.join(path[:place])}, which has no fields"
            anything = part not in known
            if anything and "*" not in known:
                return " or ".join(".".join((*path[:place], name)) for name in suggest_or_list_names(part, known))
            known = known["*" if anything else part]
        return None


def suggest_or_list_names(name: str, known: Collection[str]) -> list[str]:
    """The nearest of the known names, or all of them."""
    return suggest_names(name, known) or sorted(known)


BUDGETS = (
    "turns", "tool_calls", "reflections", "nudges", "retries", "tokens", "usd", "children", "depth", "seconds",
)  # fmt: skip
"""What every run counts; `turns` is always the run's own, and `seconds` is its time for work."""
READINGS = ("used", "ceiling", "remaining", "ratio")

_FIELDS = {
    "turn": ("number", "iteration_count", "max_iterations", "token_usage", "context_usage"),
    "run": ("id", "mode", "agent", "metadata.*", "elapsed", "remaining"),
    "history": ("messages", "tools", "failures", "completed.*", "failed.*", "total_tool_calls", "total_failures"),
    "call": ("tool_name", "arguments.*"),
    "result": ("tool_name", "success", "result.*", "error", "duration_ms", "characters"),
    "event": ("name", "data.*"),
    "state": ("*",),
    "user": ("*",),
    "project": ("*",),
    "budget": tuple(f"{name}.{reading}" for name in BUDGETS for reading in READINGS),
}
FIELDS = tuple(f"context.{part}.{field}" for part, fields in _FIELDS.items() for field in fields)


def build_vocabulary(params: Collection[str] = ()) -> Vocabulary:
    """The names that the expressions of one rule may use; `params` are its own."""
    own = tuple(f"params.{name}" for name in params)
    return Vocabulary({"context", *(["params"] if params else [])}, (*FIELDS, *own), _HELPERS)


def _tool_completed(view: View, name: str) -> bool:
    return _read_count(view, "context.history.completed", name) > 0


def _tool_failed(view: View, name: str) -> bool:
    return _read_count(view, "context.history.failed", name) > 0


def _failure_count(view: View, name: str) -> int:
    return _read_count(view, "context.history.failed", name)


def _read_count(view: View, table: str, name: str) -> int:
    counts = cast("Table", view[table])
    return cast("int", counts[name]) if name in counts else 0


def _context_above(view: View, share: Any) -> bool:
    return cast("float", view["context.turn.context_usage"]) > share


def _messages_above(view: View, count: Any) -> bool:
    return len(cast("list[object]", view["context.history.messages"])) > count


def _budget(view: View, name: str) -> object:
    return cast("Table", view["context.budget"])[name]


_HELPERS = {
    "tool_completed": Helper(_tool_completed),
    "tool_failed": Helper(_tool_failed),
    "failure_count": Helper(_failure_count),
    "context_above_threshold": Helper(_context_above),
    "message_count_above": Helper(_messages_above),
    "budget": Helper(_budget, choices=BUDGETS, fields=READINGS),
}
