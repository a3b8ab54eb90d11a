"""Limits per model: patterns of model names, each with budgets of its own for tokens and money."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError, SettingError, suggest_names
from ..settings import Setting, Settings
from ..unit import Unit
from .budget import IterationBudget

if TYPE_CHECKING:
    from .limits import Limits  # cycle: its type only; a Limits has the limits per model

TABLE = "by_model"
"""Table of the settings: `[by_model."gpt-*"]`."""
FIELDS: Mapping[str, tuple[str, Unit]] = {
    "tokens": ("max_tokens", Unit.COUNT),
    "usd": ("max_usd", Unit.USD),
    "context_tokens": ("max_context_tokens", Unit.COUNT),
}
"""Limits that a model can have, with their key in the settings and their unit."""
_NAMES = {"tokens": "tokens_of_", "usd": "cost_usd_of_"}
"""Start of the names of the budgets."""


def matches_model(pattern: str, provider: str | None, name: str) -> bool:
    """Check whether a pattern such as `gpt-*` or `openai:*` is for a model.

    >>> matches_model("gpt-*", "openai", "gpt-5.5"), matches_model("openai:*", "openai", "gpt-5.5")
    (True, True)
    """
    return fnmatchcase(name, pattern) or fnmatchcase(f"{provider}:{name}", pattern)


def split_key(key: str) -> tuple[str, str] | None:
    """Return the limit and the pattern of a budget such as `tokens.gpt-*`. None for any other budget.

    >>> split_key("tokens.gpt-4.1*"), split_key("tokens"), split_key("calls.search")
    (('tokens', 'gpt-4.1*'), None, None)
    """
    kind, _, pattern = key.partition(".")
    return (kind, pattern) if pattern and kind in _NAMES else None


def list_model_keys(keys: Iterable[str]) -> list[str]:
    """Return the keys of budgets per model. Most runs have none, so the usual keys cost one test each."""
    return [key for key in keys if "." in key and split_key(key) is not None]


def build_model_budget(key: str, ceiling: int | None) -> IterationBudget | None:
    """Return the unused budget of a key such as `usd.gpt-*`. None if the key is another one."""
    split = split_key(key)
    return None if split is None else IterationBudget(_NAMES[split[0]] + split[1], ceiling, unit=FIELDS[split[0]][1])


def check_model_limits(by_model: object, kind: type[Limits]) -> None:
    """Raise ConfigError unless this maps patterns to limits that a model can have."""
    if not isinstance(by_model, Mapping):
        raise ConfigError("limits, by_model", by_model, 'a mapping such as {"gpt-*": Limits(tokens=50_000)}')
    empty = kind()
    for pattern, limits in cast("Mapping[object, object]", by_model).items():
        if not isinstance(pattern, str) or not pattern.strip():
            raise ConfigError("limits, by_model", pattern, "the pattern of a model's name, such as gpt-*")
        if not isinstance(limits, kind):
            raise ConfigError(f"limits, by_model {pattern!r}", limits, "a Limits")
        for name in kind.__dataclass_fields__:
            value = getattr(limits, name)
            if name not in (*FIELDS, "reserve") and value != getattr(empty, name):
                raise ConfigError(f"limits, by_model {pattern!r}, {name}", value, f"only {', '.join(FIELDS)}")


def iter_model_settings(settings: Settings) -> Iterator[tuple[str, str, Setting, int | float]]:
    """Yield pattern, limit, setting and amount, in internal units, of each limit per model. Raise SettingError."""
    tables = settings.at(TABLE)
    for pattern in () if tables is None else _read_table(tables):
        table = settings.at(TABLE, pattern)
        assert table is not None, "it is in the table"
        keys = {key: (field, unit) for field, (key, unit) in FIELDS.items()}
        for key in _read_table(table):
            setting = settings.at(TABLE, pattern, key)
            assert setting is not None, "it is in the table"
            if key not in keys:
                names = suggest_names(key, keys)[:1] or [*keys]
                raise SettingError(setting.key, setting.source, key, f"the key {' or '.join(names)}")
            field, unit = keys[key]
            try:
                amount = unit.parse(setting.value)
            except ValueError:
                amount = None
            if amount is None or amount < 0:
                raise setting.error(f"{unit.expected}, at least 0")
            yield pattern, field, setting, amount


def _read_table(setting: Setting) -> Mapping[str, Any]:
    value = setting.value
    if not isinstance(value, Mapping):
        raise setting.error("a table of models, or of their limits")
    return cast("Mapping[str, Any]", value)
