"""A driver for tests: no event loop, no threads, no waiting. Time passes when a script says so."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapreplace
from typing import Any, Unpack, cast

from .. import check
from ..agent import Agent, RunOptions
from ..brief import Task
from ..drive.lender import Lender
from ..envelope import TurnBudget
from ..errors import ConfigError, ModelError, nearest
from ..event import Delta, Header, ToolReported
from ..loop import Act, Answer, Ask, Decide, Effect, Flow, Grant, Wait, converse
from ..loop.effect import Letter
from ..loop.plan import Plan
from ..models import Model
from ..models.script import ScriptedModel
from ..outcome import Outcome
from ..person import Approver, Question, Verdict, answers_of, verdict_of
from ..recorder import Recorder
from ..request import Finish, ModelFailure, Reply, Request
from ..result import Result
from ..tools.act import ToolAct
from ..tools.performer import Performer
from ..worker import WorkerPool
from .clock import ManualClock


class Script:
    """Drives the runs of an agent step by step, in microseconds. Model and tools must not really wait.

    `seconds` says how long a call of a tool takes, `mail` what comes in with the n-th answer, `verdicts` what a person
    says to the n-th question. `effects` and `answers` are those of the last run, `at` is how far its time went.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        seconds: Mapping[str, float] | None = None,
        mail: Mapping[int, Sequence[Letter]] | None = None,
        verdicts: Sequence[Verdict] = (),
    ) -> None:
        check.kind("script", agent, Agent)
        _check_plot(agent, seconds or {}, mail or {}, verdicts)
        self.agent = agent
        self.effects: list[Effect[Any]] = []
        self.answers: list[Answer[Any]] = []
        self._seconds = {tool: check.duration(f"script, seconds of {tool}", s) for tool, s in (seconds or {}).items()}
        self._mail = mail or {}
        self._verdicts = list(verdicts)
        self._steps: _Steps | None = None
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
        lender = None if self._within is None else Lender(self._within)
        decided = _Decided(dict(verdicts), self._verdicts, self.agent.approver)
        self._steps = steps = _Steps(plan, recorder, self._seconds, decided, lender)
        loop, effect = converse(plan, recorder), None
        while True:
            if len(loop_answers) == len(played):
                recorder.sinks = sinks
            try:
                effect = next(loop) if effect is None else loop.send(loop_answers[-1])
            except StopIteration as end:
                if lender is not None:
                    lender.close()
                return end.value
            self.effects.append(effect)
            n = len(loop_answers)
            loop_answers.append(steps.again(played[n]) if n < len(played) else self._answer(steps, effect, n))

    def _answer(self, steps: _Steps, effect: Effect[Any], n: int) -> Answer[Any]:
        return Answer(steps.done(effect), steps.clock.now(), self._mail.get(n, ()))

    def replay(self) -> Result:
        """Play the last run again from its answers: nothing is asked, nothing is done, and all comes to the same."""
        assert self._again is not None, "there was no run yet"
        return replay(self.agent, replace(self._again, state=dict(self._again.state)), self.answers)


def _check_plot(agent: Agent, seconds: Any, mail: Any, verdicts: Any) -> None:
    """What a test wants to happen, and misspelt, would never happen; and the test might pass for it."""
    shared = agent.plan("Which tools?").shared
    if shared.sources:
        raise ConfigError("script", agent, "an agent without sources of tools: they are opened in an event loop")
    tools = shared.tool_names
    for name in seconds:
        if name not in tools:
            near = nearest(name, tools) or tools
            raise ConfigError("script, seconds", name, f"a tool of the agent, such as {' or '.join(near)}")
    check.kind("script, mail", mail, Mapping)
    for at, letters in mail.items():
        check.whole("script, mail's answer", at)
        if not isinstance(letters, Sequence) or not all(isinstance(one, Letter) for one in cast("Any", letters)):
            found = cast("object", letters)
            raise ConfigError(f"script, mail with answer {at}", found, "letters, such as [Cancel()]")
    for verdict in verdicts:
        check.kind("script, verdicts", verdict, Verdict)


class _Decided:
    """What is answered to questions: by their id, in their order, or by the agent's approver."""

    def __init__(self, answers: dict[str, Verdict], verdicts: list[Verdict], approver: Approver | None) -> None:
        self._answers = answers
        self._verdicts = verdicts
        self._approver = approver

    def __call__(self, question: Question) -> Verdict:
        if question.id in self._answers:
            return self._answers.pop(question.id)
        if self._verdicts:
            return self._verdicts.pop(0)
        if self._approver is None:
            return Verdict(None)
        try:
            said: Any = self._approver(question)
            return verdict_of(_finished(said, "an approver") if inspect.iscoroutine(said) else said)
        except Exception as error:
            return Verdict(False, f"nobody could be asked ({type(error).__name__})")


class _Steps:
    """Does the effects of one run."""

    def __init__(
        self,
        plan: Plan,
        recorder: Recorder,
        seconds: Mapping[str, float],
        decided: _Decided,
        lender: Lender | None,
    ) -> None:
        self.clock = ManualClock(wall=plan.started_at)
        self._models = {"": cast("Model", plan.shared.model), **cast("dict[str, Model]", plan.shared.models)}
        self._recorder = recorder
        self._seconds = seconds
        self._decided = decided
        self._lender = lender
        self._performer = Performer(
            workers=WorkerPool(),
            clock=self.clock,
            run_id=plan.run_id,
            state=plan.state,
            metadata=plan.metadata,
            watcher=self,
        )

    def again(self, answer: Answer[Any]) -> Answer[Any]:
        """An answer of before; its time has passed."""
        self._pass_until(answer.at)
        return answer

    def done(self, effect: Effect[Any]) -> Any:
        match effect:
            case Ask(request, deadline):
                try:
                    return self._asked(request, deadline)
                except (Exception, SystemExit) as error:
                    return ModelFailure.of(error)
            case Act(acts, deadline):
                return self._made(cast("Sequence[ToolAct]", acts), deadline)
            case Wait(until):
                self._pass_until(until)
            case Decide(question):
                return self._decided(question)
            case Grant() if self._lender is not None:
                return self._lender.grant(effect)
            case _:
                pass
        return None

    def _asked(self, request: Request, deadline: float) -> Reply:
        model, began = self._models[request.model], self.clock.now()
        if not isinstance(model, ScriptedModel):
            answer: Any = model.ask(request, self._tell)
            reply = _finished(answer, "a model") if inspect.iscoroutine(answer) else answer
            if isinstance(reply, Reply):
                return reply
            raise ModelError(f"the model gave a {type(reply).__name__}; expected a Reply")
        line, place = model.take(request)
        said: list[str] = []
        for after, piece in line.told():
            if began + after < deadline:
                self._pass_until(began + after)
                said.append(piece)
                self._tell(piece)
        if began + line.after_s >= deadline:
            self._pass_until(deadline)
            return Reply("".join(said), finish=Finish.CUT)
        self._pass_until(began + line.after_s)
        return model.reply(line, place)

    def _made(self, acts: Sequence[ToolAct], deadline: float) -> list[Outcome | None]:
        """Make calls side by side: each begins when one of so many places is free."""
        clock = self.clock
        free = [clock.now()] * self._performer.parallel
        for act in acts:
            ended = self._made_one(act, free[0], deadline)
            heapreplace(free, ended)
        self._pass_until(max(free))
        return [act.outcome for act in acts]

    def _made_one(self, act: ToolAct, now: float, deadline: float) -> float:
        act.begin(now, deadline)
        ends = now + self._seconds.get(act.tool.name, 0.0)
        if ends >= act.until:
            act.time_out(act.until)
            return act.until
        try:
            value = self._performer.bound(act)()
            if act.tool.is_async:
                value = _finished(value, "an async tool")
            act.succeed(value, ends, self._performer.run_id)
        except BaseException as error:
            act.fail(error, ends)
        return ends

    def _pass_until(self, at: float) -> None:
        self.clock.move(max(0.0, at - self.clock.now()))
        self._recorder.at = self.clock.now()

    def _tell(self, text: str) -> None:
        self._recorder.emit(Delta, text)

    def reported(self, act: ToolAct, text: str) -> None:
        """A tool tells how far it is."""
        self._recorder.emit(ToolReported, act.call.id, act.tool.name, text)

    def started(self, act: ToolAct) -> None:
        """The loop tells that."""

    def ended(self, act: ToolAct) -> None:
        """The loop tells that."""

    def late(self, act: ToolAct) -> None:
        """Nothing is late here."""


def replay(agent: Agent, plan: Plan, answers: Sequence[Answer[Any]]) -> Result:
    """Play a run again from what its loop was told; nothing is asked and nothing is done.

    The plan is another than the run's, which was used up, but for the same `run_id` and started at the same time.
    """
    loop: Flow[Result] = converse(plan, _recorder(plan, agent))
    next(loop)
    for answer in answers:
        try:
            loop.send(answer)
        except StopIteration as end:
            return end.value
    raise AssertionError("the answers end before the run does")


def _recorder(plan: Plan, agent: Agent) -> Recorder:
    header = Header(plan.run_id, plan.session_id, plan.started_at, plan.metadata)
    return Recorder(header, agent.sinks, agent.events_kept)


def _finished(coroutine: Any, who: str) -> Any:
    """What a coroutine gives that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError(f"{who} that waits cannot be driven by a script")
