"""A set of rules: read from files, with what is wrong in them, and the core rules that every agent has."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ..errors import ConfigError, ConfigErrors, SettingError, suggest_names
from ..progress import Point
from ..settings import Setting, Settings
from .actions import UseModelAction
from .engine import RuleEngine, collect_points
from .file import read_rule
from .rule import Rule, Trigger
from .thresholds import Comparison, StartCache, find_comparisons

_CORE_FOLDER = Path(__file__).parent / "core"
_SKIPPABLE_TRIGGERS = (Trigger.TURN_START, Trigger.TOOL_COMPLETE)
"""When most rules look, and find nothing."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of an agent, which are the same for all its runs; `problems` is what was wrong in their files."""

    rules: tuple[Rule, ...] = ()
    problems: tuple[ConfigError, ...] = ()
    _by_trigger: dict[Trigger, list[Rule]] = field(init=False, repr=False, compare=False)
    _compared: dict[Trigger, dict[str, Sequence[Comparison]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_trigger: dict[Trigger, list[Rule]] = {}
        for rule in sorted(self._list_enabled(), key=lambda rule: rule.sort_key):
            by_trigger.setdefault(rule.trigger, []).append(rule)
        object.__setattr__(self, "_by_trigger", by_trigger)
        looked = {
            trigger: find_comparisons(by_trigger[trigger]) for trigger in _SKIPPABLE_TRIGGERS if trigger in by_trigger
        }
        found = {trigger: parts for trigger, parts in looked.items() if parts is not None}
        object.__setattr__(self, "_compared", found)

    @classmethod
    def load(cls, *paths: str | Path, strict: bool = False, settings: Settings | None = None) -> RuleSet:
        """The rules in files, and in the `*.toml` of folders. One bad file never stops the others; `strict` raises.

        `settings` may override parameters (`[rules.<id>]`) and switch rules off that are not core.
        """
        given = Settings() if settings is None else settings
        rules: dict[str, Rule] = {}
        problems: list[ConfigError] = []
        for path in _iter_files(paths, problems):
            rule = _load_rule(path, given, problems)
            if rule is None:
                continue
            if rule.id in rules:
                expected = f"an id of its own; {rules[rule.id].source} has it"
                problems.append(SettingError("rule.id", str(path), rule.id, expected))
                continue
            rules[rule.id] = _apply_enabled(rule, given, problems)
        if strict and problems:
            raise ConfigErrors(tuple(problems))
        return cls(tuple(sorted(rules.values(), key=lambda rule: rule.sort_key)), tuple(problems))

    @classmethod
    def core(cls, settings: Settings | None = None) -> RuleSet:
        """Those that every agent has."""
        said = settings is not None and any("rules." in setting.key for setting in settings)  # also of one mode
        return cls.load(_CORE_FOLDER, settings=settings) if said else _plain_core()

    def with_core(self, settings: Settings | None = None) -> RuleSet:
        """These and the core rules, whose ids win."""
        core = RuleSet.core(settings)
        ids = {rule.id: rule.source for rule in core.rules}
        shadowing = [rule for rule in self.rules if ids.get(rule.id, rule.source) != rule.source]
        problems = [
            SettingError("rule.id", rule.source, rule.id, "an id that no core rule has; it is ignored")
            for rule in shadowing
        ]
        rules = [*core.rules, *[rule for rule in self.rules if rule.id not in ids]]
        return RuleSet(
            tuple(sorted(rules, key=lambda rule: rule.sort_key)), (*self.problems, *core.problems, *problems)
        )

    def without(self, *ids: str) -> RuleSet:
        """These without some; core rules stay, and that is a ConfigError."""
        for rule in self.rules:
            if rule.id in ids and rule.core:
                raise ConfigError("rules, without", rule.id, "a rule that is not core")
        unknown = set(ids) - {rule.id for rule in self.rules}
        if unknown:
            raise ConfigError("rules, without", sorted(unknown), "ids of these rules")
        return replace(self, rules=tuple(rule for rule in self.rules if rule.id not in ids))

    @property
    def points(self) -> frozenset[Point]:
        """When some rule looks."""
        return collect_points(self._list_enabled())

    @property
    def asks_person(self) -> bool:
        """Whether some rule wants a person to agree to calls."""
        return Point.CALL_PLANNED in self.points

    @property
    def models(self) -> list[str]:
        """The models that some rule wants asked."""
        return [rule.action.model for rule in self._list_enabled() if isinstance(rule.action, UseModelAction)]

    def _list_enabled(self) -> list[Rule]:
        return [rule for rule in self.rules if rule.enabled or rule.core]

    def begin(self, start_cache: StartCache | None = None) -> RuleEngine:
        """The rules at work in a run that starts now; `beginning` is shared by runs that begin alike."""
        return RuleEngine(self._by_trigger, self._compared, start_cache)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


@cache
def _plain_core() -> RuleSet:
    """The core rules without anybody's settings; read once, as they are the same for all agents."""
    return RuleSet.load(_CORE_FOLDER)


def _iter_files(paths: Sequence[str | Path], problems: list[ConfigError]) -> Iterable[Path]:
    for path in map(Path, paths):
        if _is_folder(path):
            found = sorted(path.glob("*.toml"))
            if not found:
                problems.append(ConfigError("rules", str(path), "a folder with *.toml files"))
            yield from found
        else:
            yield path


def _load_rule(path: Path, settings: Settings, problems: list[ConfigError]) -> Rule | None:
    """The rule in a file, if it is right. Settings that are wrong are told, and the rule keeps its own values."""
    try:
        return read_rule(path, _make_overrides(settings, problems))
    except ConfigErrors as found:
        problems += found.errors
    except ConfigError as error:
        problems.append(error)
        return None
    try:
        return read_rule(path)
    except ConfigError:
        return None


def _is_folder(path: Path) -> bool:
    """What cannot even be looked for is no folder; reading it will say what is wrong."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _make_overrides(settings: Settings, problems: list[ConfigError]) -> Callable[[str, str], object]:
    def find_override(rule: str, name: str) -> object:
        setting = _find_setting(settings, f"rules.{rule}.{name}", problems)
        return None if setting is None else _parse_setting(setting)

    return find_override


def _find_setting(settings: Settings, key: str, problems: list[ConfigError]) -> Setting | None:
    try:
        return settings.find(key)
    except SettingError as error:  # a value where a table should be
        if str(error) not in map(str, problems):
            problems.append(error)
        return None


def _parse_setting(setting: Setting) -> object:
    """The value; the environment knows only texts, which are read as a settings file would be."""
    if not isinstance(setting.value, str) or not setting.source.startswith("environment"):
        return setting.value
    try:
        return tomllib.loads(f"value = {setting.value}")["value"]
    except tomllib.TOMLDecodeError:
        return setting.value


def _apply_enabled(rule: Rule, settings: Settings, problems: list[ConfigError]) -> Rule:
    """The rule, off where the settings say so; nobody switches a core rule off."""
    setting = _find_setting(settings, f"rules.{rule.id}.enabled", problems)
    _report_unknown_settings(rule, settings, problems)
    on = None if setting is None else _parse_setting(setting)
    if rule.core:
        if not rule.enabled:
            problems.append(SettingError("rule.enabled", rule.source, False, "true: core rules stay on"))
        if setting is not None and on is not True:
            problems.append(setting.error("no such setting: core rules stay on"))
        return replace(rule, enabled=True)
    if setting is None:
        return rule
    if not isinstance(on, bool):
        problems.append(setting.error("true or false"))
        return rule
    return replace(rule, enabled=on)


def _report_unknown_settings(rule: Rule, settings: Settings, problems: list[ConfigError]) -> None:
    """Tell what is set for a rule that has no such parameter."""
    known = ("enabled", *rule.params)
    for setting in settings:
        mode, found, name = setting.key.partition(f"rules.{rule.id}.")
        if found and name.split(".")[0] not in known and (not mode or mode.startswith("mode.")):
            problems.append(setting.error(f"the key {' or '.join(suggest_names(name, known) or known)}"))
