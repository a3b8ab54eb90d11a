"""Parser of one rule file. It reports all errors together, each with its line."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from .._internal.table import TableDocument, TableValue
from .._internal.toml import TomlDocument
from ..errors import ConfigErrors, TomlError, suggest_names
from .actions import ACTIONS, Action, Deny
from .expression import Condition
from .reader import RuleTable
from .rule import Fire, Rule, Trial, Trigger, Value
from .vocabulary import build_vocabulary

MAX_BYTES = 200_000
_TABLE_NAMES = ("rule", "condition", "action", "params", "test")
_RULE_KEYS = (
    "id", "trigger", "name", "description", "version", "priority", "enabled", "core", "fire", "cooldown_turns", "event",
    "plugin_id",
)  # fmt: skip
_KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SCRIPT_HELP = """an expression, because scripts are not run; for more than an expression can say, write a hook:
    from flyball.progress import Notice, Point

    def check(point, progress, about=None):
        if point is Point.TURN_STARTED and progress.turn > 7:
            return [Notice("Finish soon.")]
        return []

    Agent(..., hooks=[check])"""

Overrides = Callable[[str, str], object]
"""Returns the setting for a parameter, by rule id and parameter name. None means not set."""


def read_rule(path: Path, overrides: Overrides | None = None) -> Rule:
    """Read a rule from a file.

    Raises ConfigErrors with everything that is wrong with it, or TomlError if it is not TOML.
    """
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise TomlError(str(path), reason=f"cannot read the file: {reason}") from error
    if not stat.S_ISREG(status.st_mode):
        raise TomlError(str(path), reason="not a regular file")
    size = status.st_size
    if size > MAX_BYTES:
        raise TomlError(str(path), reason=f"the file has {size:,} bytes; a rule may have at most {MAX_BYTES:,}")
    return RuleFile(TomlDocument.read(path), str(path), overrides).parse_rule()


class RuleFile:
    """Reader of the tables of one rule.

    A wrong value is replaced by a harmless one, so that one pass finds all errors.
    """

    def __init__(self, toml: TomlDocument, source: str, overrides: Overrides | None = None) -> None:
        self._toml = toml
        self._source = source
        self._overrides = overrides
        self._document = TableDocument("", toml, source)
        self._vocabulary = build_vocabulary()
        self._root = RuleTable(TableValue(self._document, toml.data), "tables", self._vocabulary)

    def parse_rule(self) -> Rule:
        """Return the rule. Raises ConfigErrors with everything that is wrong."""
        self._root.check_keys(_TABLE_NAMES)
        head = self._read_table("rule", required=True)
        head.check_keys(_RULE_KEYS)
        id_ = self._read_id(head.get("id"))
        trigger = head.get("trigger").member(Trigger)
        params = self._read_params(id_)
        self._vocabulary = build_vocabulary(params)
        condition = self._read_condition()
        action = self._read_action(trigger)
        tests = self._read_tests()
        fields = self._read_header(head, id_, trigger)
        if self._document.errors:
            raise ConfigErrors(tuple(self._document.errors))
        return Rule(
            id=id_,
            trigger=cast("Trigger", trigger),
            action=cast("Action", action),
            condition=condition,
            params=params,
            tests=tests,
            source=self._source,
            **fields,
        )

    def _read_table(self, name: str, *, required: bool = False) -> RuleTable:
        return RuleTable(self._root.get(name), f"a table [{name}]", self._vocabulary, required=required)

    def _read_id(self, value: TableValue) -> str:
        id_ = value.text()
        if id_ and not _KEBAB.fullmatch(id_):
            value.add_error("lowercase letters, digits and single hyphens, such as my-rule")
        return id_

    def _read_header(self, head: RuleTable, id_: str, trigger: Trigger | None) -> dict[str, Any]:
        event = head.get("event").optional_text()
        if event is not None and trigger is not Trigger.EVENT:
            head.get("event").add_error(f'no such key, or trigger = "{Trigger.EVENT.value}"')
        head.get("plugin_id").optional_text()  # files for Vlt-Bridge may have it; state belongs to the run here
        return {
            "name": head.get("name").optional_text() or id_,
            "description": head.get("description").optional_text() or "",
            "version": head.get("version").optional_text() or "1.0.0",
            "priority": head.get("priority", 100).integer(min_value=1, max_value=1_000),
            "enabled": head.get("enabled", True).flag(),
            "core": head.get("core", False).flag(),
            "fire": head.get("fire", Fire.ALWAYS).member(Fire),
            "cooldown_turns": head.get("cooldown_turns", 0).integer(min_value=0, max_value=1_000),
            "event": event,
        }

    def _read_params(self, rule: str) -> dict[str, Value]:
        params: dict[str, Value] = {}
        table = self._read_table("params")
        for name, entry in table.entries.items():
            default = entry.value
            if not _NAME.fullmatch(name):
                table.source.child(name, name).add_error("a name of letters, digits and _")
            elif not isinstance(default, bool | int | float | str):
                entry.add_error("a number, a string, true or false")
            else:
                params[name] = self._override(rule, name, default)
        return params

    def _override(self, rule: str, name: str, default: Value) -> Value:
        override = None if self._overrides is None else self._overrides(rule, name)
        kind = type(default)
        if kind is float and type(override) is int:
            override = float(override)
        if override is None or type(override) is kind:
            return default if override is None else override
        entry = TableValue(self._document, override, ("params", name))
        entry.add_error(f"a {kind.__name__} in the settings, as in the rule ({default!r})")
        return default

    def _read_condition(self) -> Condition | None:
        table = self._read_table("condition")
        if "script" in table:
            table.get("script").add_error(_SCRIPT_HELP)
            return None
        table.check_keys(("expression",))
        text = table.get("expression").text() if "condition" in self._root else ""
        return table.compile("expression", lambda where: Condition(text, self._vocabulary, where)) if text else None

    def _read_action(self, trigger: Trigger | None) -> Action | None:
        table = self._read_table("action", required=True)
        type_ = table.get("type")
        kind = type_.text() if "action" in self._root else ""
        if not kind:
            return None
        if kind not in ACTIONS:
            near = suggest_names(kind, ACTIONS) or sorted(ACTIONS)
            type_.add_error(f"an action: {' or '.join(near)}")
            return None
        action = ACTIONS[kind]
        table.check_keys(("type", *action.keys))
        if kind == Deny.type and trigger not in (Trigger.TOOL_CALL, None):
            type_.add_error(f'another action, or trigger = "{Trigger.TOOL_CALL.value}"')
        return action.read(table)

    def _read_tests(self) -> tuple[Trial, ...]:
        tests = self._root.get("test", [])
        if not isinstance(tests.value, list):
            tests.add_error("tables [[test]]")
            return ()
        return tuple(self._read_test(entry) for entry in tests.items("tables"))

    def _read_test(self, entry: TableValue) -> Trial:
        table = RuleTable(entry, "a table [[test]]", self._vocabulary)
        if table.get("fires").value is False and "message" in table:
            table.get("message").add_error("no message, because the test expects the rule not to fire")
        table.check_keys(("context", "fires", "message"))
        context = table.get("context", {}).table("a table with the data that the rule sees")
        return Trial(
            context={name: value.value for name, value in context.items()},
            fires=table.get("fires", True).flag(),
            message=table.get("message").optional_text(),
            line=self._toml.line(*entry.key_path),
        )
