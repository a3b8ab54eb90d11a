"""The spec of an agent, built from its options. Each group is built by the module of its topic."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ..budget.limits import ResolvedLimits
from ..budget.registry import IterationBudgetRegistry
from ..errors import ConfigError, UsageError, format_with_code
from ..loop.plan import AgentSpec, Behaviour, RuleSpec
from ..loop.state import LoopClock
from ..progress import Hook
from ..request import estimate_tokens
from ..rules import RuleSet
from ..settings import Settings
from ..steadiness import Duplicates, Thresholds
from ..tools.builtin import Compaction
from .delegation import build_children_spec
from .model import build_model_spec
from .options import AgentOptions
from .output import build_completion_spec
from .tools import AgentTools

log = logging.getLogger(__name__)


def build_spec(options: AgentOptions, registry: IterationBudgetRegistry) -> AgentSpec:
    """Return everything that is the same for all runs of an agent. The options have been checked."""
    settings = registry.settings
    children = build_children_spec(options.children, registry, options.background_children)
    excerpts = (options.max_result_characters, options.excerpt)
    tools = AgentTools.of(options.tools, children, options.tool_rules, excerpts, options.recall)
    tool_spec = tools.build_spec()
    limits = options.limits.resolve(registry, kind=options.kind, grace=options.grace, with_models=True)
    spec = AgentSpec(
        name=options.name,
        instructions=options.instructions,
        instruction_tokens=estimate_tokens(options.instructions or ""),
        limits=limits,
        limits_snapshot=snapshot_ceilings(limits),
        model=build_model_spec(
            options.model, options.models, options.fallback_models, settings, options.max_output_tokens
        ),
        tools=tool_spec,
        children=children,
        rules=build_rule_spec(options.rules, options.hooks, options.models, settings),
        completion=build_completion_spec(options.completion, options.output, tools.names),
        behaviour=build_behaviour(options, settings),
    )
    return spec.with_tools(tool_spec)  # estimates the base tokens of each model


def build_behaviour(options: AgentOptions, settings: Settings) -> Behaviour:
    """Return the behaviour that the options select."""
    return Behaviour(
        grace=options.grace,
        check_report=options.check_report,
        single_turn=options.single_turn,
        asks_for_extension=options.on_exhausted == "ask",
        duplicates=Duplicates(options.duplicates),
        thresholds=options.repetition or Thresholds.of(settings),
        reflection=options.reflection,
        compact=None if options.compact is None else Compaction(options.compact),
        should_continue=options.should_continue,
    )


def build_rule_spec(
    rules: RuleSet | str | Path | Sequence[str | Path],
    hooks: Sequence[Hook],
    model_names: Collection[str],
    settings: Settings,
) -> RuleSpec:
    """Return the spec of the core rules, the agent's own rules, and its hooks.

    Invalid rule files are logged. Raise UsageError if a rule switches to a model that the agent does not have.
    """
    ruleset = load_rules(rules, settings)
    for problem in (*ruleset.problems, *ruleset.warnings):
        log.warning("%s", format_with_code(problem))
    for name in ruleset.models:
        if name not in model_names:
            raise UsageError(f"a rule switches to the model {name!r}, which Agent(models=...) does not have: add it")
    return RuleSpec(hooks=tuple(hooks), ruleset=ruleset, points=ruleset.points, need_approval=ruleset.asks_person)


def load_rules(source: object, settings: Settings) -> RuleSet:
    """Return the rules in these files, or a loaded rule set, together with the core rules."""
    if isinstance(source, RuleSet):
        return source.with_core(settings)
    return RuleSet.load(*check_rule_paths(source), settings=settings).with_core(settings)


def check_rule_paths(source: object) -> Sequence[str | Path]:
    """Return the paths of rule files. Raise ConfigError for anything else, and for a path that does not exist."""
    paths = [source] if isinstance(source, str | Path) else source
    if not isinstance(paths, Sequence) or not all(
        isinstance(path, str | Path) for path in cast("Sequence[object]", paths)
    ):
        raise ConfigError("agent, rules", source, "a RuleSet, or the paths of rule files")
    files = cast("Sequence[str | Path]", paths)
    for path in files:
        if not Path(path).exists():  # an invalid file is reported; a missing one would guard nothing in silence
            raise ConfigError("agent, rules", str(path), "a file or folder that exists")
    return files


def with_limits(spec: AgentSpec, limits: ResolvedLimits) -> AgentSpec:
    """Return the spec with other limits, and their snapshot."""
    return replace(spec.with_limits(limits), limits_snapshot=snapshot_ceilings(limits))


def snapshot_ceilings(limits: ResolvedLimits) -> Mapping[str, Any]:
    """Return the ceilings as the event `run_started` shows them."""
    with limits.open(LoopClock(0.0)) as opened:
        return opened.snapshot()
