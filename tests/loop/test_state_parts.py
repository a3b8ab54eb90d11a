"""The parts of a run's state, each by itself: no run is needed."""

import time
from typing import Any

import pytest

from flyball import Agent, Limits
from flyball.budget.price import TokenPrice
from flyball.budget.spending import Spending
from flyball.event import Header
from flyball.loop.active_model import ActiveModel
from flyball.loop.clock import LoopClock
from flyball.loop.effects import Cancel, LeaseLost, Stalled, Steer, StoreFailed, TimeUp
from flyball.loop.hooks import Hooks
from flyball.loop.messages import MessageLog
from flyball.loop.signals import StopSignals
from flyball.loop.state import Approvals, Reflections, SharedBudget
from flyball.message import Message, MessageType, Role
from flyball.person import About, Question
from flyball.progress import AskPerson, Fault, Halt, Notice
from flyball.recorder import Recorder
from flyball.request import Call, Purpose, Reply, Request, Usage
from flyball.steadiness import Reflection
from flyball.testing import ManualClock, ScriptedModel, say


def user(text: str, n: int = 0) -> Message:
    return Message("run", n, 0.0, MessageType.TEXT, Role.USER, text)


class TestStopSignals:
    @pytest.mark.parametrize(
        ("signals", "stop"),
        [
            ([Steer("x")], None),
            ([TimeUp()], None),
            ([Stalled(30.0)], "stalled"),
            ([Stalled(30.0), StoreFailed({"code": "store_failed"})], "failed"),
            ([StoreFailed({"code": "store_failed"}), Cancel("me")], "cancelled"),
            ([Cancel("me"), LeaseLost()], "contended"),
        ],
    )
    def test_the_strongest_signal_decides_the_end(self, signals: list[Any], stop: str | None) -> None:
        received = StopSignals()
        for signal in signals:
            received.receive(signal)
        end = received.find_end()
        assert (None if end is None else end.stop.value) == stop

    def test_the_first_halt_and_the_first_cancel_count(self) -> None:
        signals = StopSignals()
        signals.request_halt(Halt("one", "enough"))
        signals.request_halt(Halt("two"))
        end = signals.find_end()
        assert end is not None
        assert (end.stop, end.by, end.warning) == ("halted", "one", "enough")
        for by in ("me", "you"):
            signals.receive(Cancel(by))
        end = signals.find_cancellation()
        assert end is not None
        assert (end.stop, end.by, signals.is_cancelled) == ("cancelled", "me", True)

    def test_steered_texts_are_taken_once_and_end_nothing(self) -> None:
        signals = StopSignals()
        signals.receive(Steer("a"))
        signals.receive(Steer("b"))
        assert (list(signals.take_steered()), list(signals.take_steered()), signals.has_stop) == (["a", "b"], [], False)


class TestMessageLog:
    def test_calls_get_ids_of_their_own(self) -> None:
        log = MessageLog([user("Go.")], "run", LoopClock(0.0))
        reply = Reply("", (Call("a", "x", "{}"), Call("a", "x", "{}")))
        calls = [*log.add_reply(reply), *log.add_reply(reply)]
        assert len({call.id for call in calls}) == 4

    def test_new_ids_are_those_that_are_free_in_the_order_of_the_calls(self) -> None:
        log = MessageLog([user("Go.")], "run", LoopClock(0.0))
        reply = Reply("", tuple(Call(name, "x", "{}") for name in ("a", "a-2", "a", "", "a", "b")))
        assert [call.id for call in log.add_reply(reply)] == ["a", "a-2", "a-3", "call-3", "a-4", "b"]
        assert [call.id for call in log.add_reply(reply)] == ["a-6", "a-2-7", "a-8", "call-9", "a-10", "b-11"]

    @pytest.mark.parametrize("name", ["", "call_0"])
    def test_very_many_calls_get_ids_in_a_time_that_does_not_grow_with_their_square(self, name: str) -> None:
        log, count = MessageLog([user("Go.")], "run", LoopClock(0.0)), 20_000
        base = name or "call"
        log.add_reply(Reply("", tuple(Call(f"{base}-{count + n}", "x", "{}") for n in range(count))))
        began = time.process_time()
        calls = log.add_reply(Reply("", tuple(Call(name, "x", "{}") for _ in range(count))))
        assert time.process_time() - began < 5
        assert len({call.id for call in calls}) == count

    def test_messages_are_numbered_after_those_of_an_earlier_run_of_the_same_id(self) -> None:
        log = MessageLog([user("a", 4), user("b", 5)], "run", LoopClock(0.0))
        log.add_user_text("c")
        assert [message.n for message in log.history] == [4, 5, 6]

    def test_unsaved_messages_are_returned_once(self) -> None:
        log = MessageLog([user("Go.")], "run", LoopClock(0.0), stored_count=1)
        assert log.take_unsaved() == []
        log.add_user_text("more")
        assert [message.content for message in log.take_unsaved()] == ["more"]
        assert log.take_unsaved() == []

    def test_a_reported_usage_replaces_the_estimate_of_a_reply(self) -> None:
        log = MessageLog([user("Go.")], "run", LoopClock(0.0))
        log.estimate(100)
        before = log.input_tokens
        log.add_reply(Reply("x" * 4_000, (), Usage(10, 5)))
        assert before + 5 <= log.input_tokens < before + 50

    def test_an_estimate_grows_with_messages_and_shrinks_with_the_view(self) -> None:
        log = MessageLog([user("Go.")], "run", LoopClock(0.0))
        log.estimate(100)
        for n in range(6):
            log.add_reply(Reply("", (Call(f"c{n}", "look", "{}"),)))
            log.add_result(f"c{n}", "look", "y" * 4_000, False, None)
        before, count = log.input_tokens, len(log.history)
        log.view.shorten(2_000)
        assert log.lower_estimate(100) > 0
        assert (log.input_tokens < before, len(log.history)) == (True, count)


class TestHooks:
    def hooks(self) -> Hooks:
        return Hooks((), None, Recorder(Header("run", None, 0.0, {})))

    def test_notices_of_a_request_are_recorded_as_delivered_once(self) -> None:
        hooks, request = self.hooks(), Request([])
        hooks.notices.add(Notice("look out"))
        hooks.attach_notices(request, hooks.notices.select_due(Purpose.TURN))
        assert request.notices == ("look out",)
        hooks.mark_delivered()
        assert hooks.notices.pending == ()
        hooks.repeat_notices()
        assert [notice.text for notice in hooks.notices.pending] == ["look out"]

    def test_questions_are_taken_once_and_can_be_restored(self) -> None:
        hooks = self.hooks()
        hooks.add_question(AskPerson("May I?", "rule"))
        taken = hooks.take_questions()
        assert (len(taken), hooks.take_questions()) == (1, ())
        hooks.restore_questions(taken)
        assert hooks.questions == taken

    def test_a_fault_of_a_rule_is_kept_for_the_result(self) -> None:
        hooks = self.hooks()
        hooks.add_fault(Fault("rule", "on_turn_start", "no way"))
        assert hooks.faults == [{"rule": "rule", "trigger": "on_turn_start", "reason": "no way"}]


class TestSharedBudget:
    def test_usage_and_refunds_wait_for_the_next_grant(self) -> None:
        shared = SharedBudget()
        assert not shared.has_pending
        shared.settle({"tokens": 5})
        shared.refund("cheap_round", {"turns": 1})
        shared.refund("cheap_round", {"turns": 1})
        grant = shared.take_pending()
        assert (grant.settle, grant.refund) == ({"tokens": 5}, {"cheap_round": {"turns": 2}})
        assert (shared.has_pending, shared.take_pending().settle) == (False, None)

    @pytest.mark.parametrize(("claimed", "reason", "refunds"), [(True, "x", 1), (True, None, 0), (False, "x", 0)])
    def test_only_a_turn_that_was_claimed_there_is_refunded_there(
        self, claimed: bool, reason: str | None, refunds: int
    ) -> None:
        shared = SharedBudget()
        shared.start_turn()
        shared.turn_claimed, shared.turn_refund = claimed, reason
        shared.end_turn()
        assert len(shared.take_pending().refund) == refunds


def test_more_of_a_budget_is_asked_for_once_after_the_same_turns() -> None:
    approvals = Approvals()
    asked = [approvals.ask_extension_once(*case) for case in (("turns", 3), ("turns", 3), ("turns", 4), ("tokens", 4))]
    assert asked == [True, False, True, True]


def test_open_questions_are_kept_in_order_and_verdicts_for_one_batch() -> None:
    approvals = Approvals()
    for id_ in ("a", "b"):
        approvals.add_open_question(Question(id_, "May I?", About.RUN))
    assert [question.id for question in approvals.questions] == ["a", "b"]
    first = approvals.verdicts
    approvals.start_batch()
    assert approvals.verdicts is not first


def test_reflections_know_after_which_turn_they_came() -> None:
    reflections = Reflections(Reflection(every=3))
    reflections.start(3)
    reflections.add("All is well.")
    assert (reflections.last_turn, list(reflections.texts)) == (3, ["All is well."])


def test_a_switched_model_has_its_own_price_and_room() -> None:
    small = ScriptedModel(say("x"), price=TokenPrice(1.0, 1.0))
    spec = (
        Agent(model=ScriptedModel(say("x")), models={"small": small}, limits=Limits(context_tokens=9_000))
        .plan("Go.")
        .spec
    )
    budget = spec.limits.open(ManualClock())
    spending = Spending(budget, None, "large")
    model = ActiveModel(spec, spending, budget)
    assert (model.name, model.max_input_tokens, model.card.price) == ("", 9_000, None)
    model.switch("small")
    model.lower_max_input(500)
    assert (model.name, model.max_input_tokens, model.card.price) == ("small", 500, small.price)
