"""A driver for tests: no event loop, no threads, no waiting. Time passes when a script says so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack, cast

from ..agent import Agent, RunOptions, Task
from ..errors import ContextTooLong, FlyballError, Retryable
from ..event import Header
from ..loop import Act, Answer, Ask, Decide, Effect, Flow, Wait, converse
from ..loop.effect import Letter, Verdict
from ..loop.plan import Plan
from ..outcome import Outcome
from ..recorder import Recorder
from ..request import FailureKind, Finish, ModelFailure, Reply
from ..result import Result
from ..tools.act import ToolAct
from .model import ScriptedModel


class Script:
    """Drives the runs of an agent whose model is scripted, step by step, in microseconds.

    `seconds` says how long a call of a tool takes, `mail` what comes in with the n-th answer, `verdicts` what a person
    says to the n-th question. `effects` and `answers` are those of the last run.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        seconds: Mapping[str, float] | None = None,
        mail: Mapping[int, Sequence[Letter]] | None = None,
        verdicts: Sequence[Verdict] = (),
    ) -> None:
        self.agent = agent
        self.effects: list[Effect[Any]] = []
        self.answers: list[Answer[Any]] = []
        self.at = 0.0
        self._seconds = seconds or {}
        self._mail = mail or {}
        self._verdicts = list(verdicts)

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Do a task, and give its result."""
        plan = self.agent.plan(task, **options)
        plan.keeps = True
        self.effects, self.answers, self.at = [], [], 0.0
        loop = converse(plan, _recorder(plan, self.agent))
        effect = next(loop)
        while True:
            self.effects.append(effect)
            value = self._done(effect)
            answer = Answer(value, self.at, self._mail.get(len(self.answers), ()))
            self.answers.append(answer)
            try:
                effect = loop.send(answer)
            except StopIteration as end:
                return end.value

    def _done(self, effect: Effect[Any]) -> Any:
        match effect:
            case Ask():
                return self._asked(effect)
            case Act():
                return [self._made(act, effect.deadline) for act in cast("Sequence[ToolAct]", effect.acts)]
            case Wait(until):
                self.at = max(self.at, until)
                return None
            case Decide():
                return self._verdicts.pop(0) if self._verdicts else Verdict(None)
            case _:
                return None

    def _asked(self, effect: Ask) -> Reply | ModelFailure:
        model = cast("ScriptedModel", self.agent.model)
        try:
            line, place = model.take(effect.request)
            if self.at + line.after_s >= effect.deadline:
                self.at = effect.deadline
                return Reply(line.text[: len(line.text) // 2], finish=Finish.CUT)
            self.at += line.after_s
            return line.reply(place * 100)
        except Exception as error:
            kind = FailureKind.FINAL
            kind = FailureKind.RETRYABLE if isinstance(error, Retryable) else kind
            kind = FailureKind.CONTEXT if isinstance(error, ContextTooLong) else kind
            code = error.code if isinstance(error, FlyballError) else "exception"
            after = error.after if isinstance(error, Retryable) else None
            return ModelFailure(kind, type(error).__name__, code, str(error), after)

    def _made(self, act: ToolAct, deadline: float) -> Outcome | None:
        act.begin(self.at, deadline)
        took = self._seconds.get(act.tool.name, 0.0)
        if self.at + took >= act.until:
            self.at = act.until
            act.time_out(self.at)
            return act.outcome
        self.at += took
        try:
            value = act.tool.bound(act.values)()
            act.succeed(_finished(value) if act.tool.is_async else value, self.at, "run")
        except Exception as error:
            act.fail(error, self.at)
        return act.outcome


def replay(agent: Agent, plan: Plan, answers: Sequence[Answer[Any]]) -> Result:
    """Play a run again from what its loop was told; nothing is asked and nothing is done."""
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


def _finished(coroutine: Any) -> Any:
    """What a coroutine gives that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    coroutine.close()
    raise RuntimeError("an async tool that waits cannot be driven by a script")
