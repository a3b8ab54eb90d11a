"""Sets of rules, loaded from files, and the core rules of every agent."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from ..errors import ConfigError, ConfigErrors, SettingError, TomlError, suggest_names
from ..progress import Point
from ..settings import Setting, Settings
from .actions import AskPersonAction, UseModelAction
from .engine import RuleEngine, collect_points
from .file import read_rule
from .rule import Rule, Trigger
from .thresholds import Comparison, StartCache, find_comparisons

_CORE_FOLDER = Path(__file__).parent / "core"
_SKIPPABLE_TRIGGERS = (Trigger.TURN_START, Trigger.TOOL_COMPLETE)
"""Triggers of most evaluations. Most of these fire nothing, so they are worth skipping."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of an agent, shared by all its runs.

    `problems` are the errors in their files, and `warnings` are rules that a core rule replaces.
    """

    rules: tuple[Rule, ...] = ()
    problems: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()
    can_ask_person: bool = field(init=False, repr=False, compare=False)
    """True if a rule asks a person, about calls or about the run."""
    _by_trigger: dict[Trigger, list[Rule]] = field(init=False, repr=False, compare=False)
    _compared: dict[Trigger, dict[str, Sequence[Comparison]]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        asks = any(isinstance(rule.action, AskPersonAction) for rule in self._list_enabled())
        object.__setattr__(self, "can_ask_person", asks)
        by_trigger: dict[Trigger, list[Rule]] = {}
        for rule in sorted(self._list_enabled(), key=lambda rule: rule.sort_key):
            by_trigger.setdefault(rule.trigger, []).append(rule)
        object.__setattr__(self, "_by_trigger", by_trigger)
        comparisons = {
            trigger: find_comparisons(by_trigger[trigger]) for trigger in _SKIPPABLE_TRIGGERS if trigger in by_trigger
        }
        skippable = {trigger: parts for trigger, parts in comparisons.items() if parts is not None}
        object.__setattr__(self, "_compared", skippable)

    @classmethod
    def load(cls, *paths: str | Path, strict: bool = False, settings: Settings | None = None) -> RuleSet:
        """Load rules from files and from the `*.toml` files of folders.

        A bad file does not stop the others: its errors go to `problems`. With `strict`, ConfigErrors is raised instead.
        `settings` may override parameters (`[rules.<id>]`) and disable rules that are not core.
        """
        settings = Settings() if settings is None else settings
        rules: dict[str, Rule] = {}
        problems: list[ConfigError] = []
        for path in _iter_files(paths, problems):
            rule = _load_rule(path, settings, problems)
            if rule is None:
                continue
            if rule.id in rules:
                expected = f"a unique id; {rules[rule.id].source} has the same one"
                problems.append(SettingError("rule.id", str(path), rule.id, expected))
                continue
            rules[rule.id] = _apply_enabled(rule, settings, problems)
        if strict and problems:
            raise ConfigErrors(tuple(problems))
        return cls(tuple(sorted(rules.values(), key=lambda rule: rule.sort_key)), tuple(problems))

    @classmethod
    def core(cls, settings: Settings | None = None) -> RuleSet:
        """Return the core rules, which every agent has."""
        # "in" and not startswith: a mode's key is `mode.<name>.rules.…`.
        has_overrides = settings is not None and any("rules." in setting.key for setting in settings)
        return cls.load(_CORE_FOLDER, settings=settings) if has_overrides else _plain_core()

    def with_core(self, settings: Settings | None = None) -> RuleSet:
        """Return these rules and the core rules.

        On equal ids the core rule wins. A warning says so, unless both mean the same.
        """
        core = RuleSet.core(settings)
        core_rules = {rule.id: rule for rule in core.rules}
        warnings = [
            SettingError("rule.id", rule.source, rule.id, "another id; the core rule of this id is used instead")
            for rule in self.rules
            if rule.id in core_rules and not _means_same(rule, core_rules[rule.id])
        ]
        rules = [*core.rules, *[rule for rule in self.rules if rule.id not in core_rules]]
        return RuleSet(
            tuple(sorted(rules, key=lambda rule: rule.sort_key)),
            (*self.problems, *core.problems),
            (*self.warnings, *core.warnings, *warnings),
        )

    def without(self, *ids: str) -> RuleSet:
        """Return these rules without some. Raises ConfigError for core or unknown ids."""
        for rule in self.rules:
            if rule.id in ids and rule.core:
                raise ConfigError("rules, without", rule.id, "a rule that is not a core rule")
        unknown = set(ids) - {rule.id for rule in self.rules}
        if unknown:
            raise ConfigError("rules, without", sorted(unknown), "ids of rules in this set")
        return replace(self, rules=tuple(rule for rule in self.rules if rule.id not in ids))

    @property
    def points(self) -> frozenset[Point]:
        """Points at which at least one rule is evaluated."""
        return collect_points(self._list_enabled())

    @property
    def asks_person(self) -> bool:
        """True if a rule asks a person to approve calls."""
        return Point.CALL_PLANNED in self.points

    @property
    def models(self) -> list[str]:
        """Names of the models that rules switch to."""
        return [rule.action.model for rule in self._list_enabled() if isinstance(rule.action, UseModelAction)]

    def _list_enabled(self) -> list[Rule]:
        return [rule for rule in self.rules if rule.enabled or rule.core]

    def begin(self, start_cache: StartCache | None = None) -> RuleEngine:
        """Return the engine of a new run.

        Runs of one agent with unchanged limits share `start_cache`.
        """
        return RuleEngine(self._by_trigger, self._compared, start_cache)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


@cache
def _plain_core() -> RuleSet:
    """Return the core rules without overrides, loaded once per process."""
    return RuleSet.load(_CORE_FOLDER)


def _means_same(rule: Rule, core_rule: Rule) -> bool:
    """Check whether a rule has the meaning of a core rule, or one of its other forms."""
    if rule.source == core_rule.source or rule.meaning == core_rule.meaning:
        return True
    return any(rule.id == form.id and rule.meaning == form.meaning for form in _load_equivalents())


@cache
def _load_equivalents() -> RuleSet:
    """Return other forms of core rules that count as the same."""
    return RuleSet.load(_CORE_FOLDER / "equivalents")


def list_files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the rule files at these paths: files, and the `*.toml` files of folders."""
    return list(_iter_files(tuple(paths), []))


def _iter_files(paths: Sequence[str | Path], problems: list[ConfigError]) -> Iterable[Path]:
    for path in map(Path, paths):
        if _is_folder(path):
            files = sorted(path.glob("*.toml"))
            if not files:
                problems.append(ConfigError("rules", str(path), "a folder with *.toml files"))
            yield from (file for file in files if _is_inside(file, path, problems))
        else:
            yield path


def _is_inside(file: Path, folder: Path, problems: list[ConfigError]) -> bool:
    """Check that a file is no link out of its folder.

    An error in a rule quotes its line, and the author of a folder must not choose files of others to be quoted.
    """
    if folder == _CORE_FOLDER:  # part of this package, which an installer may have linked
        return True
    try:
        is_inside = file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a loop of links
        is_inside = False
    if not is_inside:
        reason = "a link out of the folder of rules, which is not followed; copy the file, or name it as a rule itself"
        problems.append(TomlError(str(file), reason=reason))
    return is_inside


def _load_rule(path: Path, settings: Settings, problems: list[ConfigError]) -> Rule | None:
    """Return the rule of a file, or None if it is invalid.

    If only the settings are wrong, they are reported and the rule keeps its own values.
    """
    try:
        return read_rule(path, _make_overrides(settings, problems))
    except ConfigErrors as group:
        problems += group.errors
    except ConfigError as error:
        problems.append(error)
        return None
    try:
        return read_rule(path)
    except ConfigError:
        return None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # reading it as a file will report the reason
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
    """Return the value.

    A text from the environment is parsed as in a settings file.
    """
    if not isinstance(setting.value, str) or not setting.source.startswith("environment"):
        return setting.value
    try:
        return tomllib.loads(f"value = {setting.value}")["value"]
    except tomllib.TOMLDecodeError:
        return setting.value


def _apply_enabled(rule: Rule, settings: Settings, problems: list[ConfigError]) -> Rule:
    """Return the rule, enabled or disabled by the settings.

    Core rules stay on.
    """
    setting = _find_setting(settings, f"rules.{rule.id}.enabled", problems)
    _report_unknown_settings(rule, settings, problems)
    enabled = None if setting is None else _parse_setting(setting)
    if rule.core:
        if not rule.enabled:
            problems.append(
                SettingError("rule.enabled", rule.source, False, "true, because core rules cannot be disabled")
            )
        if setting is not None and enabled is not True:
            problems.append(setting.error("no such setting, because core rules cannot be disabled"))
        return replace(rule, enabled=True)
    if setting is None:
        return rule
    if not isinstance(enabled, bool):
        problems.append(setting.error("true or false"))
        return rule
    return replace(rule, enabled=enabled)


def _report_unknown_settings(rule: Rule, settings: Settings, problems: list[ConfigError]) -> None:
    """Add a problem for each setting that the rule has no parameter for."""
    known = ("enabled", *rule.params)
    for setting in settings:
        mode, separator, name = setting.key.partition(f"rules.{rule.id}.")
        if separator and name.split(".")[0] not in known and (not mode or mode.startswith("mode.")):
            problems.append(setting.error(f"the key {' or '.join(suggest_names(name, known) or known)}"))
