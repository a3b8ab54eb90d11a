"""What an agent is told, made ready; each of these says what is wrong with what it is given."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from .._internal import validation
from ..budget.budget import IterationBudget
from ..budget.limits import Limits, ResolvedLimits, RunKind
from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..completion.assertions import Assertions
from ..completion.policy import AssertionPolicy
from ..errors import ConfigError, UsageError
from ..loop.clock import LoopClock
from ..loop.plan import ModelCard
from ..message import Message, MessageType, Role
from ..models import Model
from ..models.catalog import context_tokens_of, find_price
from ..progress import Policy
from ..result import Result, Stop
from ..rules import RuleSet
from ..runtime import PausedRun
from ..settings import Settings
from ..steadiness import Duplicates, Reflection, Thresholds
from ..wire import normalize

Task = str | Message | Mapping[str, Any] | Sequence[str | Message | Mapping[str, Any]]
"""What a run is about: a text, or a conversation whose last message is the task."""


def check_function(where: str, value: object) -> None:
    """What is called and not awaited: of an `async def` every answer would be a coroutine, and so true."""
    call = getattr(value, "__call__", None)  # noqa: B004
    if not callable(value) or inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call):
        raise ConfigError(where, value, "a function that is not async")


def check_money_limit(money: IterationBudget | None, models: Iterable[tuple[Model, ModelCard]]) -> None:
    """Raise UsageError if there is a money limit and the price of a model is unknown."""
    for model, card in models if money is not None and money.ceiling is not None else ():
        if card.price is None:
            assert money is not None, "there is a limit"
            key = f"{model.provider}:{model.name}" if model.provider else model.name
            raise UsageError(
                f"the limit of {money.unit.show(money.ceiling)} cannot be enforced, because the price of {model.name} "
                "is not known: pass price=TokenPrice(input=..., output=...) to the model, or set input and output in "
                f'[prices."{key}"] of flyball.toml (dollars per million tokens), or pass unpriced="tokens_only" to '
                "ignore the limit for this model"
            )


def build_model_card(where: str, model: Model, settings: Settings, max_output_tokens: int | None) -> ModelCard:
    """What is known of a model, and so what may be asked of it."""
    own = validation.check_optional_int(
        f"{where}'s max_output_tokens", getattr(model, "max_output_tokens", None), min_value=1
    )
    context = validation.check_optional_int(
        f"{where}'s context_tokens", getattr(model, "context_tokens", None), min_value=1
    )
    return ModelCard(
        price=find_price(model, settings),
        max_output_tokens=min((most for most in (own, max_output_tokens) if most is not None), default=None),
        context_tokens=context_tokens_of(model.provider, model.name) if context is None else context,
        count=getattr(model, "count", None),
    )


def snapshot_ceilings(resolved_limits: ResolvedLimits) -> Mapping[str, Any]:
    """The ceilings, as the first event tells them."""
    with resolved_limits.open(LoopClock(0.0)) as opened:
        return opened.snapshot()


def get_pause(result: Result) -> PausedRun:
    """What a paused run goes on from."""
    if not isinstance(result, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("resume", result, "the Result of a paused run")
    if isinstance(result.pause, PausedRun):
        return result.pause
    if result.stop is Stop.PAUSED:
        raise UsageError(
            "a copy of a paused result cannot be resumed: pass the Result that the run returned in this process, "
            "or use a store and resume the run by its id"
        )
    raise UsageError(f"only a paused run can be resumed, and this run is {result.stop.value}: start a new run")


def build_completion(source: object, offered: Sequence[str] | None) -> tuple[Assertions | None, Policy | None]:
    """The assertions, where that is what was given, and the policy that is asked; None where `offered` is not known."""
    if isinstance(source, Assertions | Mapping | str | Path):
        assertions = Assertions.of(cast("Assertions", source))
        return assertions, AssertionPolicy(assertions, available_tools=offered)
    if isinstance(source, AssertionPolicy):
        return source.assertions, source
    if inspect.iscoroutinefunction(source) or (source is not None and not callable(source)):
        raise ConfigError("agent, completion", source, "a policy function, assertions, or the path of a TOML file")
    return None, cast("Policy | None", source)


def normalize_task(task: Task, run_id: str, at: float) -> list[Message]:
    """What a run is about, as messages."""
    if isinstance(task, str) and task.strip():
        return [Message(run_id, 0, at, MessageType.TEXT, Role.USER, task)]
    messages = (
        []
        if isinstance(task, str)
        else normalize([task] if isinstance(task, Message | Mapping) else task, run=run_id, at=at)
    )
    if not messages:
        raise ConfigError("run, task", task, "a non-empty string, or messages that end with the task")
    return messages


def load_rules(source: object, settings: Settings) -> RuleSet:
    """The rules in files, or those that were loaded before, and the core rules."""
    if isinstance(source, RuleSet):
        return source.with_core(settings)
    paths = [source] if isinstance(source, str | Path) else source
    if isinstance(paths, Sequence) and all(isinstance(path, str | Path) for path in cast("Sequence[object]", paths)):
        files = cast("Sequence[str | Path]", paths)
        for path in files:
            if not Path(path).exists():  # a bad file is reported; one that is not there would guard nothing in silence
                raise ConfigError("agent, rules", str(path), "a file or folder that exists")
        return RuleSet.load(*files, settings=settings).with_core(settings)
    raise ConfigError("agent, rules", source, "a RuleSet, or the paths of rule files")


def resolve_model(where: str, model: Any) -> Model:
    """A model, or the one that a text names; a ConfigError for whatever is neither."""
    if isinstance(model, str):
        from ..models.by_name import named  # and with it what a wire needs

        return named(model, where)
    missing = [name for name in ("name", "provider", "price") if not hasattr(model, name)]
    missing += [name for name in ("ready", "ask") if not callable(getattr(model, name, None))]
    if missing or isinstance(model, type):
        expected = "a name such as openai:gpt-5.5, or an object with name, provider, price, ready() and ask()"
        raise ConfigError(where, model, expected)
    if model.price is not None and not callable(getattr(model.price, "cost", None)):
        raise ConfigError(f"{where}'s price", model.price, "a price, such as a TokenPrice, or None")
    return model


def check_agent(options: Mapping[str, Any]) -> None:
    """Look at all that an agent is given, before anything is made of it; a ConfigError names the first mistake."""
    validation.check_type("agent, limits", options["limits"], Limits)
    validation.check_text("agent, name", options["name"])
    validation.check_type("agent, metadata", options["metadata"], Mapping)
    validation.check_optional_int("agent, max_output_tokens", options["max_output_tokens"])
    validation.check_int("agent, events_kept", options["events_kept"])
    validation.parse_enum("agent, kind", options["kind"], RunKind)
    if options["compact"] is not None and not callable(options["compact"]):
        raise ConfigError("agent, compact", options["compact"], "a function that takes messages and returns a string")
    validation.parse_timeout("agent, approver_seconds", options["approver_seconds"])
    if options["approver"] is not None and not callable(options["approver"]):
        raise ConfigError("agent, approver", options["approver"], "a function that takes a Question, sync or async")
    if options["on_exhausted"] not in ("grace", "ask"):
        raise ConfigError("agent, on_exhausted", options["on_exhausted"], "one of grace, ask")
    validation.parse_enum("agent, unpriced", options["unpriced"], Unpriced)
    validation.parse_enum("agent, duplicates", options["duplicates"], Duplicates)
    for name, kind in (("repetition", Thresholds), ("reflection", Reflection)):
        if options[name] is not None:
            validation.check_type(f"agent, {name}", options[name], kind)
    if options["instructions"] is not None:
        validation.check_type("agent, instructions", options["instructions"], str)
    validation.check_type("agent, description", options["description"], str)
    for name in ("tools", "children", "hooks", "sinks"):
        if isinstance(one := options[name], str) or not isinstance(one, Iterable):
            raise ConfigError(f"agent, {name}", one, "a list")
    for name in ("grace", "single_turn"):
        validation.check_type(f"agent, {name}", options[name], bool)
    for name, functions in {
        "should_continue": () if options["should_continue"] is None else (options["should_continue"],),
        "completion": (options["completion"],) if callable(options["completion"]) else (),
        "hooks": options["hooks"],
        "sinks": options["sinks"],
    }.items():
        for one in functions:
            check_function(f"agent, {name}", one)
    if options["registry"] is not None:
        validation.check_type("agent, registry", options["registry"], IterationBudgetRegistry)
        if options["settings"] is not None:
            raise UsageError("pass settings= or registry= to Agent, not both: a registry has its own settings")
