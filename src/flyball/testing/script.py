"""A driver for tests without event loop, threads or waiting.

The script moves the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Unpack, cast

from .._deprecated import accept_old_keyword
from .._internal import validation
from ..agent.agent import Agent, RunOptions
from ..agent.validate import Task
from ..budget.run_budget import TurnBudget
from ..errors import ConfigError, UsageError, suggest_names
from ..loop import Answer, Decide, Effect
from ..loop.effects import ChildDone, Signal
from ..loop.plan import AgentSpec, Plan
from ..loop.player import LoopPlayer
from ..person import Verdict, parse_answers
from ..recorder import Recorder
from ..result import Result
from ..runtime.child_budget import ChildBudgets
from .script_driver import EffectRunner, ScriptedApprover, ScriptPlan, run_to_end


class ScriptDriver:
    """Driver that runs an agent step by step, in microseconds.

    Model and tools must not really wait. `seconds` is the duration of each tool's calls. `signals` has those that
    arrive with the n-th answer. `verdicts` has the answers to approval questions, in their order.

    `effects` and `answers` are those of the last run. `at` is the time that has passed in it.

    Children advance in the order of their time, or with a `seed` in a random order. `children` has their plans and
    answers, for `replay`.
    """

    @accept_old_keyword("mail", "signals")
    def __init__(
        self,
        agent: Agent,
        *,
        seconds: Mapping[str, float] | None = None,
        signals: Mapping[int, Sequence[Signal]] | None = None,
        verdicts: Sequence[Verdict] = (),
        seed: int | None = None,
    ) -> None:
        validation.check_type("script", agent, Agent)
        _check_script(agent, seconds or {}, signals or {}, verdicts)
        self.agent = agent
        self.effects: list[Effect[Any]] = []
        self.answers: list[Answer[Any]] = []
        self._seconds = {
            tool: validation.parse_duration(f"script, seconds of {tool}", s) for tool, s in (seconds or {}).items()
        }
        self._signals = signals or {}
        self._verdicts = list(verdicts)
        self._child_players: list[tuple[Plan, LoopPlayer]] = []
        self._order = None if seed is None else Random(validation.check_int("script, seed", seed))
        self._runner: EffectRunner | None = None
        self._last_plan: Plan | None = None
        self._shared_budget: TurnBudget | None = None
        self._ended: list[ChildDone] = []
        """Child runs in the background that ended when the last run paused."""

    @property
    def children(self) -> list[tuple[Plan, list[Answer[Any]]]]:
        """Plan of each child of the last run, and the answers that its loop has received."""
        return [(plan, player.answers) for plan, player in self._child_players]

    @property
    def at(self) -> float:
        """Seconds that have passed in the last run."""
        return 0.0 if self._runner is None else self._runner.clock.now()

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Run a task and return its result."""
        plan = self.agent.plan(task, **options)
        plan.has_transcript, self._ended = True, []
        self._last_plan, self._shared_budget = replace(plan, state=dict(plan.state)), options.get("within")
        return self._drive(plan, (), {})

    def resume(self, answers: Mapping[str, Verdict | bool]) -> Result:
        """Resume the last run after its pause, as `agent.resume` does."""
        open_indexes = [n for n, answer in enumerate(self.answers) if answer.value == Verdict(None)]
        if self._last_plan is None or not open_indexes:
            raise UsageError("the last run is not paused, so it cannot be resumed")
        questions = [cast("Decide", self.effects[n]).question for n in open_indexes]
        since_pause = slice(open_indexes[0], None)
        received = [signal for answer in self.answers[since_pause] for signal in answer.signals]
        self._ended = [signal for signal in received if isinstance(signal, ChildDone)]
        earlier_verdicts = {
            effect.question.id: answer.value
            for effect, answer in zip(self.effects[since_pause], self.answers[since_pause], strict=True)
            if isinstance(effect, Decide) and answer.value.approved is not None
        }
        verdicts = {**earlier_verdicts, **parse_answers(answers, {question.id: question for question in questions})}
        plan = replace(self._last_plan, state=dict(self._last_plan.state))
        return self._drive(plan, self.answers[: open_indexes[0]], verdicts)

    def _drive(self, plan: Plan, recorded: Sequence[Answer[Any]], verdicts: Mapping[str, Verdict]) -> Result:
        recorder = _build_recorder(plan, self.agent)
        player = LoopPlayer(plan, recorder)
        self.effects, self.answers, self._child_players = [], [], []
        approver = ScriptedApprover(dict(verdicts), self._verdicts, self.agent.approver)
        script_plan = ScriptPlan(self._seconds, approver, self._order, self._child_players)
        child_budgets = ChildBudgets(
            recorder=recorder,
            shared_budget=self._shared_budget,
            tree_budget=self._shared_budget,
            resolve_child=plan.spec.children.resolve,
        )
        self._runner = runner = EffectRunner(plan, child_budgets, script_plan)
        self._replay(player, recorder, recorded)
        while player.effect is not None:
            self.effects.append(player.effect)
            value = run_to_end(runner.execute_effect(player.effect))
            ended = [*self._ended, *runner.take_signals()]
            self._ended = []
            signals = *self._signals.get(len(self.answers), ()), *ended
            self.answers.append(Answer(value, runner.clock.now(), signals))
            player.send(self.answers[-1])
        runner.close()
        assert player.result is not None, "a loop that has ended has its result"
        return player.result

    def _replay(self, player: LoopPlayer, recorder: Recorder, recorded: Sequence[Answer[Any]]) -> None:
        """Start the loop and send it the answers from before a pause. Sinks have received these events."""

        def matches(n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
            assert self._runner is not None, "a run has its runner"
            self.effects.append(effect)
            self.answers.append(answer)
            self._runner.advance_to(answer.at)
            return True

        sinks = recorder.sinks
        recorder.sinks = () if recorded else sinks
        player.replay(recorded, matches)
        recorder.sinks = sinks

    def replay(self) -> Result:
        """Replay the last run from its answers, without any effect."""
        assert self._last_plan is not None, "there is no run yet"
        return replay(self.agent, replace(self._last_plan, state=dict(self._last_plan.state)), self.answers)


def replay(agent: Agent, plan: Plan, answers: Sequence[Answer[Any]]) -> Result:
    """Replay a run from the answers that its loop received, without any effect.

    The plan must be a new one with the same `run_id` and start time, because the run has used up its own plan.
    """
    player = LoopPlayer(plan, _build_recorder(plan, agent))
    player.replay(answers)
    assert player.result is not None, "the answers end before the run does"
    return player.result


def _check_script(agent: Agent, seconds: Any, signals: Any, verdicts: Any) -> None:
    """Raise ConfigError for a name that the agent does not have.

    A misspelt name would never take effect, and the test might pass because of it.
    """
    spec = agent.plan("Which tools?").spec
    if spec.tools.sources:
        raise ConfigError("script", agent, "an agent without tool sources, which need an event loop")
    tools = _list_tool_names(spec)
    for name in seconds:
        if name not in tools:
            suggestions = suggest_names(name, tools) or tools
            raise ConfigError("script, seconds", name, f"a tool of the agent, such as {' or '.join(suggestions)}")
    validation.check_type("script, signals", signals, Mapping)
    for index, batch in signals.items():
        validation.check_int("script, signals' answer", index)
        if not isinstance(batch, Sequence) or not all(isinstance(signal, Signal) for signal in cast("Any", batch)):
            value = cast("object", batch)
            raise ConfigError(f"script, signals with answer {index}", value, "signals, such as [Cancel()]")
    for verdict in verdicts:
        validation.check_type("script, verdicts", verdict, Verdict)


def _list_tool_names(spec: AgentSpec) -> tuple[str, ...]:
    """Return the tools of an agent and of all its children."""
    return (*spec.tools.names, *(name for child in spec.children.specs for name in _list_tool_names(child.agent_spec)))


def _build_recorder(plan: Plan, agent: Agent) -> Recorder:
    return Recorder(plan.header, agent.sinks, agent.events_kept)
