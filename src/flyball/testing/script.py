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
from ..errors import ConfigError, nearest
from ..loop import Answer, Decide, Effect, Flow, converse
from ..loop.effects import Signal
from ..loop.plan import AgentSpec, Plan
from ..person import Verdict, answers_of
from ..recorder import Recorder
from ..result import Result
from ..runtime.child_budget import ChildBudgets
from .script_driver import Decided, ScriptPlan, Steps, whole


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
        validation.kind("script", agent, Agent)
        _check_plot(agent, seconds or {}, mail or {}, verdicts)
        self.agent = agent
        self.effects: list[Effect[Any]] = []
        self.answers: list[Answer[Any]] = []
        self._seconds = {
            tool: validation.duration(f"script, seconds of {tool}", s) for tool, s in (seconds or {}).items()
        }
        self._mail = mail or {}
        self._verdicts = list(verdicts)
        self.children: list[tuple[Plan, list[Answer[Any]]]] = []
        self._order = None if seed is None else Random(validation.whole("script, seed", seed))
        self._steps: Steps | None = None
        self._again: Plan | None = None
        self._within: TurnBudget | None = None

    @property
    def at(self) -> float:
        """The seconds that have passed in the last run."""
        return 0.0 if self._steps is None else self._steps.clock.now()

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Do a task, and give its result."""
        plan = self.agent.plan(task, **options)
        plan.keeps = True
        self._again, self._within = replace(plan, state=dict(plan.state)), options.get("within")
        return self._driven(plan, (), {})

    def resume(self, answers: Mapping[str, Verdict | bool]) -> Result:
        """Go on with the last run where it paused, as `agent.resume` does."""
        open_ones = [n for n, answer in enumerate(self.answers) if answer.value == Verdict(None)]
        if self._again is None or not open_ones:
            raise ConfigError("script, resume", "a run that did not pause", "one that waits for a person")
        asked = [cast("Decide", self.effects[n]).question for n in open_ones]
        behind = slice(open_ones[0], None)
        said = {
            effect.question.id: answer.value
            for effect, answer in zip(self.effects[behind], self.answers[behind], strict=True)
            if isinstance(effect, Decide) and answer.value.approved is not None
        }
        verdicts = {**said, **answers_of(answers, {question.id: question for question in asked})}
        plan = replace(self._again, state=dict(self._again.state))
        return self._driven(plan, self.answers[: open_ones[0]], verdicts)

    def _driven(self, plan: Plan, played: Sequence[Answer[Any]], verdicts: Mapping[str, Verdict]) -> Result:
        recorder, loop_answers = _recorder(plan, self.agent), list[Answer[Any]]()
        sinks, recorder.sinks = recorder.sinks, ()
        self.effects, self.answers = [], loop_answers
        self.children = []
        decided = Decided(dict(verdicts), self._verdicts, self.agent.approver)
        plot = ScriptPlan(self._seconds, decided, self._order, self.children)
        kin = ChildBudgets(recorder=recorder, within=self._within, ceiling=self._within, hire=plan.shared.hire)
        self._steps = steps = Steps(plan, kin, plot)
        loop, effect = converse(plan, recorder), None
        while True:
            if len(loop_answers) == len(played):
                recorder.sinks = sinks
            try:
                effect = next(loop) if effect is None else loop.send(loop_answers[-1])
            except StopIteration as end:
                steps.close()
                return end.value
            self.effects.append(effect)
            n = len(loop_answers)
            loop_answers.append(steps.again(played[n]) if n < len(played) else self._answer(steps, effect, n))

    def _answer(self, steps: Steps, effect: Effect[Any], n: int) -> Answer[Any]:
        return Answer(whole(steps.doing(effect)), steps.clock.now(), self._mail.get(n, ()))

    def replay(self) -> Result:
        """Play the last run again from its answers: nothing is asked, nothing is done, and all comes to the same."""
        assert self._again is not None, "there was no run yet"
        return replay(self.agent, replace(self._again, state=dict(self._again.state)), self.answers)


def _check_plot(agent: Agent, seconds: Any, mail: Any, verdicts: Any) -> None:
    """What a test wants to happen, and misspelt, would never happen; and the test might pass for it."""
    shared = agent.plan("Which tools?").shared
    if shared.sources:
        raise ConfigError("script", agent, "an agent without sources of tools: they are opened in an event loop")
    tools = _tools(shared)
    for name in seconds:
        if name not in tools:
            near = nearest(name, tools) or tools
            raise ConfigError("script, seconds", name, f"a tool of the agent, such as {' or '.join(near)}")
    validation.kind("script, mail", mail, Mapping)
    for at, letters in mail.items():
        validation.whole("script, mail's answer", at)
        if not isinstance(letters, Sequence) or not all(isinstance(one, Signal) for one in cast("Any", letters)):
            found = cast("object", letters)
            raise ConfigError(f"script, mail with answer {at}", found, "letters, such as [Cancel()]")
    for verdict in verdicts:
        validation.kind("script, verdicts", verdict, Verdict)


def _tools(shared: AgentSpec) -> tuple[str, ...]:
    """The tools of an agent and of all agents below it."""
    return (*shared.tool_names, *(name for edge in shared.children for name in _tools(edge.terrain)))


def replay(agent: Agent, plan: Plan, answers: Sequence[Answer[Any]]) -> Result:
    """Play a run again from what its loop was told; nothing is asked and nothing is done.

    The plan is another than the run's, which was used up, but for the same `run_id` and started at the same time.
    """
    loop: Flow[Result] = converse(plan, _recorder(plan, agent))
    for answer in (None, *answers):
        try:
            loop.send(cast("Answer[Any]", answer))
        except StopIteration as end:
            return end.value
    raise AssertionError("the answers end before the run does")


def _recorder(plan: Plan, agent: Agent) -> Recorder:
    return Recorder(plan.header, agent.sinks, agent.events_kept)
