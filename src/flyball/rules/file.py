"""Parser of one rule file. It reports all errors together, each with its line."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from .._internal.toml import TomlDocument
from ..errors import ConfigErrors, TomlError, suggest_names
from .actions import ACTIONS, Action, Deny
from .expression import Condition
from .reader import RuleReader
from .rule import Fire, Rule, Trial, Trigger, Value
from .vocabulary import build_vocabulary

MAX_BYTES = 200_000
_TABLE_NAMES = ("rule", "condition", "action", "params", "test")
_RULE_KEYS = (
    "id", "trigger", "name", "description", "version", "priority", "enabled", "core", "fire", "cooldown_turns", "event",
)  # fmt: skip
_KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

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


class RuleFile(RuleReader):
    """Reader of the tables of one rule."""

    def __init__(self, document: TomlDocument, source: str, overrides: Overrides | None = None) -> None:
        super().__init__(document, source)
        self._overrides = overrides

    def parse_rule(self) -> Rule:
        """Return the rule. Raises ConfigErrors with everything that is wrong."""
        data = self.document.data
        self.check_keys((), data, _TABLE_NAMES)
        head = self.read_table("rule", required=True)
        self.check_keys(("rule",), head, _RULE_KEYS)
        id_ = self._read_id(head)
        trigger = self.read_member(("rule", "trigger"), head, Trigger, None)
        params = self._read_params(id_ or "")
        self.vocabulary = build_vocabulary(params)
        condition = self._read_condition()
        action = self._read_action(trigger)
        tests = self._read_tests()
        fields = self._read_header(head, trigger)
        if self.errors:
            raise ConfigErrors(tuple(self.errors))
        return Rule(
            id=id_ or "",
            trigger=cast("Trigger", trigger),
            action=cast("Action", action),
            condition=condition,
            params=params,
            tests=tests,
            source=self.source,
            **fields,
        )

    def _read_id(self, head: Mapping[str, Any]) -> str | None:
        id_ = self.read_text(("rule", "id"), head, required=True)
        if id_ is not None and not _KEBAB.fullmatch(id_):
            self.add_error(("rule", "id"), id_, "lowercase letters, digits and single hyphens, such as my-rule")
        return id_

    def _read_header(self, head: Mapping[str, Any], trigger: Trigger | None) -> dict[str, Any]:
        event = self.read_text(("rule", "event"), head)
        if event is not None and trigger is not Trigger.EVENT:
            self.add_error(("rule", "event"), event, f'no such key, or trigger = "{Trigger.EVENT.value}"')
        return {
            "name": self.read_text(("rule", "name"), head) or "",
            "description": self.read_text(("rule", "description"), head) or "",
            "version": self.read_text(("rule", "version"), head) or "",
            "priority": self.read_int(("rule", "priority"), head, 100, 1, 1_000),
            "enabled": self.read_bool(("rule", "enabled"), head, True),
            "core": self.read_bool(("rule", "core"), head, False),
            "fire": self.read_member(("rule", "fire"), head, Fire, Fire.ALWAYS),
            "cooldown_turns": self.read_int(("rule", "cooldown_turns"), head, 0, 0, 1_000),
            "event": event,
        }

    def _read_params(self, rule: str) -> dict[str, Value]:
        params: dict[str, Value] = {}
        for name, default in self.read_table("params").items():
            place = ("params", name)
            if not _NAME.fullmatch(name):
                self.add_error(place, name, "a name of letters, digits and _")
            elif not isinstance(default, bool | int | float | str):
                self.add_error(place, default, "a number, a string, true or false")
            else:
                params[name] = default
                self._apply_override(rule, name, default, params)
        return params

    def _apply_override(self, rule: str, name: str, default: Value, params: dict[str, Value]) -> None:
        override = None if self._overrides is None else self._overrides(rule, name)
        if override is None:
            return
        kind = type(default)
        if kind is float and type(override) is int:
            override = float(override)
        if type(override) is kind:
            params[name] = override
        else:
            self.add_error(
                ("params", name), override, f"a {kind.__name__} in the settings, as in the rule ({default!r})"
            )

    def _read_condition(self) -> Condition | None:
        table = self.read_table("condition")
        self.check_keys(("condition",), table, ("expression",))
        text = self.read_text(("condition", "expression"), table, required="condition" in self.document.data)
        if text is None:
            return None
        return self.compile_value(("condition", "expression"), lambda where: Condition(text, self.vocabulary, where))

    def _read_action(self, trigger: Trigger | None) -> Action | None:
        table = self.read_table("action", required=True)
        kind = self.read_text(("action", "type"), table, required="action" in self.document.data)
        if kind is None:
            return None
        if kind not in ACTIONS:
            near = suggest_names(kind, ACTIONS) or sorted(ACTIONS)
            self.add_error(("action", "type"), kind, f"an action: {' or '.join(near)}")
            return None
        action = ACTIONS[kind]
        self.check_keys(("action",), table, ("type", *action.keys))
        if kind == Deny.type and trigger not in (Trigger.TOOL_CALL, None):
            self.add_error(("action", "type"), kind, f'another action, or trigger = "{Trigger.TOOL_CALL.value}"')
        return action.read(self, table)

    def _read_tests(self) -> tuple[Trial, ...]:
        tests = self.document.data.get("test", [])
        if not isinstance(tests, list):
            self.add_error(("test",), tests, "tables [[test]]")
            return ()
        return tuple(self._read_test(n, entry) for n, entry in enumerate(cast("list[Any]", tests)))

    def _read_test(self, n: int, entry: Any) -> Trial:
        if not isinstance(entry, dict):
            self.add_error(("test", n), entry, "a table [[test]]")
        table = cast("dict[str, Any]", entry if isinstance(entry, dict) else {})
        if table.get("fires") is False and "message" in table:
            self.add_error(
                ("test", n, "message"), table["message"], "no message, because the test expects the rule not to fire"
            )
        self.check_keys(("test", n), table, ("context", "fires", "message"))
        context = table.get("context", {})
        if not isinstance(context, dict):
            self.add_error(("test", n, "context"), context, "a table with the data that the rule sees")
            context = {}
        return Trial(
            context=cast("dict[str, Any]", context),
            fires=self.read_bool(("test", n, "fires"), table, True),
            message=self.read_text(("test", n, "message"), table),
            line=self.document.line("test", n),
        )
