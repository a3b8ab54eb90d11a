"""Names that expressions may use. A misspelt name is an error when the rule is loaded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ..errors import ConfigError, RuleError, quote_value, suggest_names
from .operations import FUNCTIONS, SIGNS
from .view import Table, View, freeze

CONSTANTS = {"true": True, "false": False, "none": None}
"""Spellings in addition to Python's True, False and None."""

Tree = dict[str, "Tree"]


@dataclass(frozen=True, slots=True)
class Helper:
    """A custom function that expressions may call.

    It gets the view and then the arguments, which are plain values. It must not change anything or block. It may return
    any value that a view can hold. If it raises, the expression has no value.
    """

    function: Callable[..., object]
    argument_count: int = 1
    """Number of arguments besides the view."""
    choices: Collection[str] = ()
    """Texts allowed as a literal first argument. Empty means any."""
    fields: Collection[str] = ()
    """Fields of its result that may follow a dot. Empty means any."""

    def wrap(self, name: str) -> Callable[..., object]:
        """Return the function for compiled code. It freezes results and raises RuleError."""
        function, result = self.function, f"{name}(…)"

        def call(view: View, *arguments: object) -> object:
            try:
                value = function(view, *arguments)
            except RuleError:
                raise
            except Exception as error:
                raise RuleError(f"{name} failed: {quote_value(error)}") from error
            return freeze(value, result)

        return call


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names that an expression may use besides the built-in functions."""

    names: Collection[str]
    """Allowed first parts of a dotted name."""
    fields: Collection[str] = ()
    """Allowed dotted names; `*` means any field. Anything is allowed below a final `*`, and below a name without listed
    fields."""
    helpers: Mapping[str, Helper] = field(default_factory=dict[str, Helper])
    count_tables: Mapping[tuple[str, ...], tuple[str, ...]] = field(
        default_factory=dict[tuple[str, ...], tuple[str, ...]]
    )
    """Tables that methods of a list use instead, by the dotted name of the list."""
    tree: Tree = field(init=False, repr=False, compare=False)
    namespace: dict[str, Any] = field(init=False, repr=False, compare=False)
    """Functions by name that compiled code can call. It can reach nothing else."""

    def __post_init__(self) -> None:
        tree: Tree = {name: {} for name in self.names}
        for dotted in self.fields:
            branch = tree
            for part in dotted.split("."):
                branch = branch.setdefault(part, {})
        builtins = FUNCTIONS.keys() | CONSTANTS.keys()
        if taken := sorted(tree.keys() & builtins | self.helpers.keys() & (tree.keys() | builtins)):
            raise ConfigError("vocabulary", taken, "names that are not in use")
        functions = {name: function.call for name, function in FUNCTIONS.items()}
        helpers = {name: helper.wrap(name) for name, helper in self.helpers.items()}
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "namespace", {"__builtins__": {}, **SIGNS, **functions, **helpers})

    def suggest_correction(self, path: tuple[str, ...]) -> str | None:
        """Return a correction for a dotted name whose first part is known.

        None if it is right.
        """
        known, is_open = self.tree[path[0]], True
        for depth, part in enumerate(path[1:], 1):
            if not known:
                return None if is_open else f"{'.'.join(path[:depth])}, which has no fields"
            is_open = part not in known
            if is_open and "*" not in known:
                return " or ".join(".".join((*path[:depth], name)) for name in suggest_or_list_names(part, known))
            known = known["*" if is_open else part]
        return None


def suggest_or_list_names(name: str, known: Collection[str]) -> list[str]:
    """Return the known names closest to a name, or all of them."""
    return suggest_names(name, known) or sorted(known)


BUDGETS = (
    "turns", "tool_calls", "reflections", "nudges", "retries", "tokens", "usd", "children", "depth", "seconds",
)  # fmt: skip
"""Budgets of every run. `turns` counts this run only, and `seconds` is its time for work."""
READINGS = ("used", "ceiling", "remaining", "ratio")

_COUNTS = ("total_tool_calls", "total_failures", "tool_count", "failure_count")
_FIELDS = {
    "turn": ("number", "iteration_count", "max_iterations", "tokens", "token_usage", "context_usage"),
    "forecast": ("limit", "turns_left"),
    "run": ("id", "mode", "agent", "metadata.*", "elapsed", "remaining"),
    "history": ("messages", "tools", "failures", "completed.*", "failed.*", *_COUNTS),
    "call": ("tool_name", "arguments.*"),
    "result": ("tool_name", "success", "result.*", "error", "duration_ms", "characters"),
    "event": ("name", "type", "data.*", "payload.*"),
    "state": ("*",),
    "user": ("*",),
    "project": ("*",),
    "budget": tuple(f"{name}.{reading}" for name in BUDGETS for reading in READINGS),
}
FIELDS = tuple(f"context.{part}.{field}" for part, fields in _FIELDS.items() for field in fields)


_COUNT_TABLES = {("context", "history", "failures"): ("context", "history", "failed")}


def build_vocabulary(params: Collection[str] = ()) -> Vocabulary:
    """Return the vocabulary of one rule with these parameters."""
    param_fields = tuple(f"params.{name}" for name in params)
    return Vocabulary({"context", *(["params"] if params else [])}, (*FIELDS, *param_fields), _HELPERS, _COUNT_TABLES)


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
