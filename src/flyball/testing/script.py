"""A driver for tests: no event loop, no threads, no waiting. Time passes when a script says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Unpack, cast

from .._internal import validation
from ..agent.agent import Agent, RunOptions
from ..agent.validate import Task
from ..budget.run_budget import TurnBudget
from ..errors import ConfigError, suggest_names
from ..loop import Answer, Decide, Effect, Flow, converse
from ..loop.effects import Signal
from ..loop.plan import AgentSpec, Plan
from ..person import Verdict, parse_answers
from ..recorder import Recorder
from ..result import Result
from ..runtime.child_budget import ChildBudgets
from .script_driver import EffectRunner, ScriptedApprover, ScriptPlan, run_to_end


class ScriptDriver:
    """Drives the runs of an agent step by step, in microseconds. Model and tools must not really wait.

    `seconds` says how long a call of a tool takes, `mail` what comes in with the n-th answer, `verdicts` what a person
    says to the n-th question. `effects` and `answers` are those of the last run, `at` is how far its time went.

    Children go on in the order of their time, or, with a `seed`, in an order of its own; `children` are their plans and
    answers, for `replay`.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        seconds: Mapping[str, float] | None = None,
        mail: Mapping[int, Sequence[Signal]] | None = None,
        verdicts: Sequence[Verdict] = (),
        seed: int | None = None,
    ) -> None:
        validation.check_type("script", agent, Agent)
        _check_script(agent, seconds or {}, mail or {}, verdicts)
        self.agent = agent
        self.effects: list[Effect[Any]] = []
        self.answers: list[Answer[Any]] = []
        self._seconds = {
            tool: validation.parse_duration(f"script, seconds of {tool}", s) for tool, s in (seconds or {}).items()
        }
        self._signals = mail or {}
        self._verdicts = list(verdicts)
        self.children: list[tuple[Plan, list[Answer[Any]]]] = []
        self._order = None if seed is None else Random(validation.check_int("script, seed", seed))
        self._runner: EffectRunner | None = None
        self._last_plan: Plan | None = None
        self._shared_budget: TurnBudget | None = None

    @property
    def at(self) -> float:
        """The seconds that have passed in the last run."""
        return 0.0 if self._runner is None else self._runner.clock.now()

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Do a task, and give its result."""
        plan = self.agent.plan(task, **options)
        plan.has_transcript = True
        self._last_plan, self._shared_budget = replace(plan, state=dict(plan.state)), options.get("within")
        return self._drive(plan, (), {})

    def resume(self, answers: Mapping[str, Verdict | bool]) -> Result:
        """Go on with the last run where it paused, as `agent.resume` does."""
        open_ones = [n for n, answer in enumerate(self.answers) if answer.value == Verdict(None)]
        if self._last_plan is None or not open_ones:
            raise ConfigError("script, resume", "a run that did not pause", "one that waits for a person")
        asked = [cast("Decide", self.effects[n]).question for n in open_ones]
        behind = slice(open_ones[0], None)
        said = {
            effect.question.id: answer.value
            for effect, answer in zip(self.effects[behind], self.answers[behind], strict=True)
            if isinstance(effect, Decide) and answer.value.approved is not None
        }
        verdicts = {**said, **parse_answers(answers, {question.id: question for question in asked})}
        plan = replace(self._last_plan, state=dict(self._last_plan.state))
        return self._drive(plan, self.answers[: open_ones[0]], verdicts)

    def _drive(self, plan: Plan, recorded: Sequence[Answer[Any]], verdicts: Mapping[str, Verdict]) -> Result:
        recorder, loop_answers = _build_recorder(plan, self.agent), list[Answer[Any]]()
        sinks, recorder.sinks = recorder.sinks, ()
        self.effects, self.answers = [], loop_answers
        self.children = []
        decided = ScriptedApprover(dict(verdicts), self._verdicts, self.agent.approver)
        plot = ScriptPlan(self._seconds, decided, self._order, self.children)
        kin = ChildBudgets(
            recorder=recorder,
            shared_budget=self._shared_budget,
            tree_budget=self._shared_budget,
            resolve_child=plan.spec.resolve_child,
        )
        self._runner = steps = EffectRunner(plan, kin, plot)
        loop, effect = converse(plan, recorder), None
        while True:
            if len(loop_answers) == len(recorded):
                recorder.sinks = sinks
            try:
                effect = next(loop) if effect is None else loop.send(loop_answers[-1])
            except StopIteration as end:
                steps.close()
                return end.value
            self.effects.append(effect)
            n = len(loop_answers)
            loop_answers.append(
                steps.replay_answer(recorded[n]) if n < len(recorded) else self._answer_effect(steps, effect, n)
            )

    def _answer_effect(self, runner: EffectRunner, effect: Effect[Any], n: int) -> Answer[Any]:
        return Answer(run_to_end(runner.execute_effect(effect)), runner.clock.now(), self._signals.get(n, ()))

    def replay(self) -> Result:
        """Play the last run again from its answers: nothing is asked, nothing is done, and all comes to the same."""
        assert self._last_plan is not None, "there was no run yet"
        return replay(self.agent, replace(self._last_plan, state=dict(self._last_plan.state)), self.answers)


def _check_script(agent: Agent, seconds: Any, signals: Any, verdicts: Any) -> None:
    """What a test wants to happen, and misspelt, would never happen; and the test might pass for it."""
    shared = agent.plan("Which tools?").spec
    if shared.sources:
        raise ConfigError("script", agent, "an agent without sources of tools: they are opened in an event loop")
    tools = _list_tool_names(shared)
    for name in seconds:
        if name not in tools:
            near = suggest_names(name, tools) or tools
            raise ConfigError("script, seconds", name, f"a tool of the agent, such as {' or '.join(near)}")
    validation.check_type("script, mail", signals, Mapping)
    for at, letters in signals.items():
        validation.check_int("script, mail's answer", at)
        if not isinstance(letters, Sequence) or not all(isinstance(one, Signal) for one in cast("Any", letters)):
            found = cast("object", letters)
            raise ConfigError(f"script, mail with answer {at}", found, "letters, such as [Cancel()]")
    for verdict in verdicts:
        validation.check_type("script, verdicts", verdict, Verdict)


def _list_tool_names(spec: AgentSpec) -> tuple[str, ...]:
    """The tools of an agent and of all agents below it."""
    return (*spec.tool_names, *(name for child in spec.children for name in _list_tool_names(child.agent_spec)))


def replay(agent: Agent, plan: Plan, answers: Sequence[Answer[Any]]) -> Result:
    """Play a run again from what its loop was told; nothing is asked and nothing is done.

    The plan is another than the run's, which was used up, but for the same `run_id` and started at the same time.
    """
    loop: Flow[Result] = converse(plan, _build_recorder(plan, agent))
    for answer in (None, *answers):
        try:
            loop.send(cast("Answer[Any]", answer))
        except StopIteration as end:
            return end.value
    raise AssertionError("the answers end before the run does")


def _build_recorder(plan: Plan, agent: Agent) -> Recorder:
    return Recorder(plan.header, agent.sinks, agent.events_kept)
