"""The last part of an audit: the result of a run against the recount. See audit.py."""

from collections import Counter
from typing import Any

from flyball import Agent, Result
from flyball.event import Event
from flyball.loop import Append, Plan
from flyball.loop.effects import Cancel, Late, LeaseLost, Steer
from flyball.message import MessageType, check_pairs
from flyball.outcome import Cancelled, Denied, Success, Timeout
from flyball.progress import Complete
from flyball.request import Reply, Usage
from flyball.result import Stop

from .audit import CUT_OFF, MADE_BY_LOOP, Auditor, need

# pyright: reportMatchNotExhaustive=false


class Closing(Auditor):
    """Compares a result with the recount."""

    def close(self, story: list[Any], result: Result) -> None:
        self.walk(story)
        events = [step for step in story if isinstance(step, Event)]
        need("one end, the last event", not self.open, events[-1].kind == "run_ended", self.used["run_ended"] == 1)
        need("all events", list(result.events) == events, result.sink_errors == self.used["sink errors"])
        need("a flag for each refusal", list(result.flags) == self.flags, len(set(self.flags)) == len(self.flags))
        self._facts(story, result)
        for check in (self._calls, self._bounds, self._stop):
            check(result)

    def _calls(self, result: Result) -> None:
        """Every call that was asked for has one outcome and one result, and those that were made have theirs."""
        assert [call.name for call in self.asked] == [outcome.tool for outcome in result.tool_results]
        ids = [outcome.call_id for outcome in result.tool_results]
        assert len(set(ids)) == len(ids), "two calls have the same id"
        made = {outcome.call_id: outcome for outcome in result.tool_results if outcome.call_id in self.outcomes}
        assert made == self.outcomes
        others = [one for one in result.tool_results if one.call_id not in made and one.tool not in MADE_BY_LOOP]
        assert all(isinstance(one, Denied | Cancelled) for one in others)
        self._check_recall(result)
        for kind in (MessageType.TOOL_CALL, MessageType.TOOL_RESULT):
            told = [(message.payload or {})["call_id"] for message in result.messages if message.type is kind]
            assert told == ids
        assert check_pairs(result.messages) == []

    def _check_recall(self, result: Result) -> None:
        """What the model has recalled is part of a long result that no hook had replaced."""
        payloads = [(message.payload or {}, message.content) for message in result.messages]
        asked = {payload["call_id"]: payload["arguments"] for payload, _ in payloads if "arguments" in payload}
        shown = {payload["call_id"]: content for payload, content in payloads if "is_error" in payload}
        whole = {one.artifact.id: one for one in result.tool_results if one.artifact is not None}
        for one in result.tool_results:
            if one.tool == "read_artifact" and isinstance(one, Success):
                source = whole[asked[one.call_id]["id"]]
                need("no replaced result is recalled", shown[source.call_id] == source.text)
                need("a part of the whole", not one.content.partition("\n")[2].strip("w"))

    def _facts(self, story: list[Any], result: Result) -> None:
        appended = [message for effect in story if isinstance(effect, Append) for message in effect.messages]
        whole = list(result.messages)[: len(appended) if result.stop is Stop.PAUSED or not appended else None]
        need("all messages kept, or none", appended == whole)
        assert result.requests == self.used["Ask"] == self.used["model_requested"]
        assert (result.turns, result.estimated_requests) == (self.used["turns with a reply"], self.used["estimated"])
        assert result.usage == sum((reply.usage for reply in self.replies if reply.usage), Usage())
        assert result.state == self.state
        ended = [one if isinstance(one, str) else one.run_id for one in self.ended_children]
        known = [one for one in self.ended_children if not isinstance(one, str)]
        stops = {child.run_id: child.stop.value for child in result.children}
        need("all child runs", [child.run_id for child in result.children] == ended, stops == self.children)
        need("their results", all(one in result.children for one in known), not self.background)
        cancelled = [stops.get(run_id) for run_id in result.cancelled_children]
        need("cancelled ones have ended so", set(cancelled) <= {"cancelled"})
        hung = sum(one.hung for one in self.outcomes.values() if isinstance(one, Timeout | Cancelled))
        assert result.hung == hung - sum(isinstance(signal, Late) and signal.own for signal in self.heard)

    def _bounds(self, result: Result) -> None:
        most, used, budgets = self.ceilings, self.used, result.budgets
        for name in ("turns", "tool_calls", "tokens", "usd", "children", *self.by_model):
            need(f"{name} counted right", budgets[name].used == used[name], budgets[name].held == 0)
        retries, costs = budgets["retries"].used, sum(result.cost.values())
        again = used["repeated requests"]
        need("retries counted right", again <= retries <= again + 1, retries <= most["retries"])
        need("costs, nudges", costs == used["own usd"], budgets["nudges"].used == used["nudged"] <= most["nudges"])
        need(
            "few requests",
            used["Ask"] <= 2 * most["turns"] + most["retries"] + 1 + self.more + len(self.fallbacks),
            used["Wait"] <= most["retries"],
        )
        steered = sum(isinstance(signal, Steer) for signal in self.heard)
        need("few keepings", used["Append"] <= used["turn_started"] + steered + 3, used["Act"] <= len(self.asked))
        need("one report", used["grace_started"] <= 1 + self.more, used["asked_person"] == used["Decide"])
        if used["Grant"]:
            shared = {name: self.shared[name] for name in ("turns", "tool_calls", "tokens", "usd", "children")}
            shared["turns"] += used["turns without a request"]  # whose refund was at its limit
            own = {name: budgets[name].used - self.below[name] for name in shared}
            need("the shared budgets have what the run itself used, and nothing is held there", shared == own)
            need("nothing is held in the shared budgets", not self.taken)

    def _stop(self, result: Result) -> None:
        """The first in precedence of all reasons that hold."""
        stop, cancels = result.stop, [signal.by for signal in self.heard if isinstance(signal, Cancel)]
        if LeaseLost() in self.heard:
            assert stop is Stop.CONTENDED
        elif cancels:
            need("cancelled, and by whom", stop is Stop.CANCELLED, result.stopped_by == cancels[0])
        elif self.failed:
            need("failed, and why", stop is Stop.FAILED, bool(result.error))
        else:
            self._limit_or_end(result)
            graced = stop in (Stop.DEADLINE, Stop.BUDGET, Stop.STALLED) and self.agent.grace
            assert graced <= self.used["grace_started"] <= graced + self.more + self.may_report
            assert not graced or result.text.strip(), "a run that met a limit reports nothing"

    def _limit_or_end(self, result: Result) -> None:
        stop, flags = result.stop, set(result.flags)
        assert stop not in (Stop.CONTENDED, Stop.CANCELLED, Stop.FAILED)
        need("halted", not self.must_halt or stop in (Stop.DEADLINE, Stop.BUDGET, Stop.HALTED))
        need("a limit before a halt", not self.has_no_calls or stop in (Stop.DEADLINE, Stop.BUDGET))
        need("the deadline before a limit", not self.was_over or stop not in (Stop.BUDGET, Stop.HALTED))
        match stop:
            case Stop.DEADLINE:
                assert any("seconds" in flag for flag in flags)
            case Stop.BUDGET:
                assert any(name in flag for flag in flags for name in ("iterations", "turns", "calls", "tokens", "usd"))
            case Stop.HALTED:
                assert self.halted or (self.agent.single_turn and result.stopped_by == "single_turn")
            case Stop.PAUSED:
                assert {question.id for question in result.questions} == self.answered[None]
            case Stop.STALLED:
                assert self.stalled or self.used["repeated"] >= 3
            case Stop.UNFINISHED:
                assert self.agent.output or self.agent.tool_rules or not isinstance(self.said.get("decided"), Complete)
            case _:
                self._completed(result)
                steered = Counter(signal.text for signal in self.heard if isinstance(signal, Steer))
                assert not steered - Counter(message.content for message in result.messages), "a steered text is lost"

    def _completed(self, result: Result) -> None:
        """The model has ended, or after tool results one of them, or the policy, had the answer."""
        last, decision = self.last, self.said.get("decided")
        need("a reply", isinstance(last, Reply) and last.finish not in CUT_OFF[1:])
        assert not self.agent.completion or isinstance(decision, Complete)
        self.gates.check_completion()
        assert not self.agent.output or isinstance(result.output, int)
        may_cancel = self.agent.single_turn or self.more > 0 or (isinstance(last, Reply) and bool(last.calls))
        need("a last answer after all child runs", may_cancel or not result.cancelled_children)
        if isinstance(last, Reply) and last.calls:
            batch = result.tool_results[-len(last.calls) :]
            finals = [one.content for one in batch if isinstance(one, Success) and one.ends_run]
            answers = [decision.text] if isinstance(decision, Complete) and decision.text is not None else finals[:1]
            need("an answer after calls", [result.text] == answers, last.finish not in CUT_OFF)
            need("a policy asked after calls, or a final result", bool(finals) or self.said["after calls"])


def audit_run(agent: Agent, plan: Plan, story: list[Any], result: Result) -> None:
    """Walk through the story of a run, then compare its result with the recount."""
    Closing(agent, plan).close(story, result)
