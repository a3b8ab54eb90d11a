"""RunEffects: each kind of effect performed, and interrupted, without a loop."""

from typing import Any

import anyio
import pytest

from flyball import Limits
from flyball._internal.workers import WorkerPool
from flyball.budget.deadline import SYSTEM
from flyball.loop import Append, Ask, Decide, Grant, Wait
from flyball.person import Question, Verdict
from flyball.request import Finish, Reply, Request
from flyball.runtime import Person, SignalQueue
from flyball.runtime.effects import RunEffects
from flyball.runtime.model_call import ModelCaller
from flyball.runtime.shared_budget import SharedBudgetClient
from flyball.runtime.timer import RunTimer
from flyball.testing import ScriptedModel, say
from flyball.tools.runner import ToolRunner

QUESTION = Question("q", "May I?")


def effects_of(*, person: Person | None = None, client: SharedBudgetClient | None = None) -> RunEffects:
    workers, timer = WorkerPool(), RunTimer(SYSTEM)
    caller = ModelCaller(ScriptedModel(say("hello")), True, workers, lambda text: None)
    runner = ToolRunner(workers=workers, clock=timer)
    return RunEffects(timer, SignalQueue(), caller, runner, person or Person(), client)


def perform(effects: RunEffects, effect: Any, backend: str = "asyncio") -> Any:
    async def work() -> Any:
        with anyio.fail_after(60):
            return await effects.perform(effect)

    return anyio.run(work, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ask_returns_the_reply(backend: str) -> None:
    assert perform(effects_of(), Ask(Request(()), 60.0, 0), backend).text == "hello"


@pytest.mark.parametrize("effect", [Append([]), Wait(0.0), Grant()], ids=["append", "wait", "grant"])
def test_effects_without_a_value_return_none(effect: Any) -> None:
    assert perform(effects_of(), effect) is None


def test_decide_prefers_the_callers_verdict_to_a_recorded_one() -> None:
    effects = effects_of(person=Person(verdicts={"q": Verdict(False)}))
    effects.add_verdicts({"q": Verdict(True), "r": Verdict(True)})
    assert perform(effects, Decide(QUESTION)) == Verdict(False)
    assert perform(effects, Decide(Question("r", "And that?"))) == Verdict(True)


def test_decide_without_a_person_stays_open() -> None:
    assert perform(effects_of(), Decide(QUESTION)) == Verdict(None)


def test_grant_claims_and_close_settles_what_is_held() -> None:
    with Limits(turns=1, tokens=100).open(grace=False) as shared:
        effects = effects_of(client=SharedBudgetClient(shared))
        assert perform(effects, Grant({"turns": 1, "tokens": 60})) is None
        assert perform(effects, Grant({"turns": 1})).budget == "turns"
        assert (shared.budgets["tokens"].used, shared.budgets["tokens"].held) == (0, 60)
        effects.close()
        assert (shared.budgets["tokens"].used, shared.budgets["tokens"].held) == (60, 0)


def test_interrupt_returns_an_answer_for_effects_that_were_not_performed() -> None:
    effects = effects_of()
    reply = effects.interrupt(Ask(Request(()), 60.0, 0))
    assert isinstance(reply, Reply)
    assert reply.finish is Finish.CUT
    assert effects.interrupt(Decide(QUESTION)) == Verdict(None)
    assert [effects.interrupt(effect) for effect in (Wait(1.0), Append([]), Grant())] == [None] * 3
