"""The auditor: a second, independent bookkeeping that random runs must agree with.

A chaos test drives `converse()` with a random agent and random answers, and writes down the story: every effect that
the loop yielded, every answer that it got, every event, and what tools and hooks did. The auditor reads only that
story, the agent's limits and the result. It uses no budget and no state of the loop, so a mistake there cannot repeat
itself here. It counts in plain dictionaries. Two classes here and one in recount.py are the layers:

`Recount` holds the numbers: ceilings from `Limits`, the reserve of the grace turn, used, held and shared amounts, time.

`Auditor` walks forward and asks before each effect whether the loop was allowed to yield it at this moment.
- A request: not after a cancel, a failure, a halt or the work's deadline; with closed pairs of calls and results; with
  its worst case held and the reserve untouched; no retry above the limit.
- A tool call: asked for in a whole reply, started once, approved where a person must agree, within the limits of calls.
- A report: at most one (and one more per extension), without tools, inside the hard deadline.
- A wait: inside the time for work.
Then it learns from the answer what is true from then on: usage is charged, or the estimate where none was told; signals
cancel, extend or end the time; grants are settled once.

`Closing` looks at the whole. Every `*_started` event has its `*_ended`; events are numbered and in the order of the
story; there is one `run_ended`. Every call that a model asked for has exactly one outcome and one result message.
Used, held and shared amounts of every budget equal the recount; messages, state, usage, turns and requests in the
result are those of the story. At last the stop reason: of all the reasons that hold (lease lost, cancelled, failed,
deadline, budget, halted, paused, stalled, unfinished, completed) the result must name the first in precedence, with a
flag for each refusal, and a text wherever a limit was met and a report is due.

What it does not check: words of messages, the order of hooks, and the quality of reports. A run is also played again
from its answers by the chaos tests, and must come to an equal result.
"""

from collections import Counter
from itertools import pairwise
from math import inf
from typing import Any, cast

from flyball import Agent, Result
from flyball.budget.price import compute_max_request_cost
from flyball.event import Event
from flyball.loop import Act, Answer, Append, Ask, Decide, Effect, Grant, Wait
from flyball.loop.effects import Cancel, Extend, Late, LeaseLost, Steer, TimeUp
from flyball.message import MessageType, Role, check_pairs
from flyball.outcome import Cancelled, Denied, Success, Timeout
from flyball.progress import Complete, Halt, Raise
from flyball.request import Call, FailureKind, Finish, ModelFailure, Purpose, Reply, Usage, estimate_reply_tokens
from flyball.result import Stop

from .recount import Recount

# pyright: reportMatchNotExhaustive=false
CUT_OFF = (Finish.LENGTH, Finish.CONTENT_FILTER, Finish.CUT)


def need(what: str, *facts: bool) -> None:
    assert all(facts), f"{what}: {facts}"


class Auditor(Recount):
    """Walks through a story, and asserts at each step that it was allowed."""

    def walk(self, story: list[Any]) -> None:
        for before, step in pairwise(cast("list[Any]", [None, *story])):
            match step:
                case Effect():
                    self._may_begin(step)
                case Answer():
                    self._learn(before, cast("Answer[Any]", step))
                case Event():
                    self._record(step)
                case _:
                    self._did(*step)

    def _may_begin(self, effect: Any) -> None:
        self.used[type(effect).__name__] += 1
        match effect:
            case Ask(request) if request.purpose is Purpose.TURN:
                self._may_ask(effect)
            case Ask(request):
                self._may_report(effect)
            case Act(acts):
                need("no act once the run is called off, or its time over", not self.called_off, not self.time_is_over)
                whole = isinstance(self.last, Reply) and self.last.finish not in CUT_OFF
                need("calls of a whole reply", whole, bool(acts))
                for act in acts:
                    self._may_act(act.call)
            case Wait(until):
                assert self.at <= until < self.hard_at - self.reserve_s, "a wait past the work's end"

    def _may_ask(self, ask: Ask) -> None:
        need("no request once the run must end", not self.called_off, not self.failed, not self.halted)
        need("the work's deadline", not self.time_is_over, ask.deadline == self.hard_at - self.reserve_s)
        need("pairs that are closed", check_pairs(ask.request.messages) == [])
        need("a request in its turn", self.open[-2:] == ["turn", "model"])
        need("all tools", len(ask.request.tools) == len(tuple(self.agent.tools)))
        self.used["retries"] += not self.first_of_turn
        self.first_of_turn = False
        assert self.used["retries"] <= self.ceilings["retries"], "a retry too many"
        self._hold(ask, self.said.get("count", self.estimated))

    def _may_report(self, ask: Ask) -> None:
        need("no report once the run is called off or failed", not self.called_off, not self.failed)
        need("one report", self.agent.grace, self.used["grace"] <= self.more, self.at < self.hard_at == ask.deadline)
        self.used["grace"], request = self.used["grace"] + 1, ask.request
        last, pairs = request.messages[-1], check_pairs(request.messages)
        need("a request for words only, of closed pairs", not request.tools, last.role is Role.USER, pairs == [])
        need("a request in its grace turn", self.open[-2:] == ["grace", "model"])
        self._hold(ask, self.estimated)

    def _hold(self, ask: Ask, tokens: int) -> None:
        """The worst case of a request must fit into what is left; work must leave the reserve alone."""
        request, output = ask.request, ask.request.max_output_tokens
        limited = min(self.ceilings["tokens"], self.ceilings["usd"]) < inf
        need("a grant for what is shared", not self.used["Grant"] or self.taken or not tokens)
        self.held = {
            "tokens": tokens + (output or 0),
            "usd": compute_max_request_cost(self.price, tokens, output or 0),
            "input": tokens,
        }
        if limited:
            for name, amount in self.held.items():
                kept = self.reserve.get(name, 0) if request.purpose is Purpose.TURN else 0
                need(f"{name} that are left", amount + self.used[name] + kept <= self.ceilings.get(name, inf))
            need("a bound on the reply", self.ceilings["tokens"] == inf or bool(output))
        self.limited = limited or bool(self.used["Grant"])

    def _may_act(self, call: Call) -> None:
        need("a new call", call.id not in self.vetoed, call.id in self.begun, call.id not in self.outcomes)
        need("a person agreed", call.name != "ask_first" or call.id in self.answered.get(True, ()))
        for name in ("tool_calls", f"calls.{call.name}"):
            self.used[name] += 1
            assert self.used[name] <= self.ceilings.get(name, inf), f"one call too many of {name}"
        assert call.name != "twice" or self.used["calls.twice"] <= 2

    def _learn(self, effect: Any, answer: Answer[Any]) -> None:
        self.at, before = answer.at, dict(self.ceilings)
        for letter in answer.signals:
            self._hear(letter)
        match effect:
            case Ask():
                self._learn_reply(effect, answer.value)
                self.batch_ceilings = before
            case Act():
                for outcome in answer.value:
                    self.outcomes[outcome.call_id] = outcome
            case Decide(question):
                self.answered.setdefault(answer.value.approved, set()).add(question.id)
            case Grant():
                self._learn_grant(effect, answer.value is not None)

    def _learn_grant(self, grant: Grant, refused: bool) -> None:
        for amounts in grant.refund.values():
            self.shared.subtract(amounts)
        if grant.settle is not None:
            need("a grant that is settled once", self.taken or not self.held.get("tokens"))
            lent, self.taken = self.lent if self.taken else dict.fromkeys(("tokens", "usd"), 0), False
            self.shared.update({name: grant.settle.get(name, held) - held for name, held in lent.items()})
        self.shared_refused |= refused
        self.shared.update({} if refused else grant.claim)
        self.turn_shared |= "turns" in grant.claim and not refused
        if "tokens" in grant.claim and not refused:
            need("nothing taken before the last is settled", not self.taken)
            self.taken, self.lent = True, {"tokens": 0, "usd": 0, **grant.claim}

    def _hear(self, letter: Any) -> None:
        self.heard.append(letter)
        match letter:
            case Extend(amounts, seconds):
                for name, amount in amounts.items():
                    self.ceilings[name] += amount
                self.seconds, self.more = self.seconds + seconds, self.more + 1
                self.was_over = self.was_over and self.time_is_over
            case TimeUp():
                self.time_up = True
            case Cancel() | LeaseLost():
                self.called_off = True

    def _learn_reply(self, ask: Ask, value: Reply | ModelFailure) -> None:
        turn = ask.request.purpose is Purpose.TURN
        if isinstance(value, Reply):
            self.replies.append(value)
            self.asked += value.calls
            if value.usage is None:
                self._book_the_estimate(ask, value)
            else:
                self.used.update(tokens=value.usage.total, usd=self.price.cost(value.usage))
            self.failed |= turn and value.finish is Finish.CONTENT_FILTER
        elif value.began:
            self._book_the_estimate(ask, None)
        if turn and not isinstance(value, Reply):
            self.failed |= value.kind is FailureKind.FINAL
            self.may_retry = value.kind is FailureKind.RETRYABLE
        if turn:
            self.last = value

    def _book_the_estimate(self, ask: Ask, reply: Reply | None) -> None:
        """What nobody told is what was set aside, or else what was sent and what came."""
        read, bound = self.held["input"], ask.request.max_output_tokens
        said = int(min(estimate_reply_tokens(reply) if reply else 0, inf if bound is None else bound))
        least = {"tokens": read + said, "usd": compute_max_request_cost(self.price, read, said), "estimated": 1}
        self.used.update({name: max(most, self.held.get(name, 0) * self.limited) for name, most in least.items()})

    def _did(self, what: str, *about: Any) -> None:
        match what, *about:
            case "raised", who:
                self.failed |= who != "run_ended"
            case "ordered", point, Halt():
                self.halted |= point != "run_ended"
                self.must_halt |= point not in ("run_ended", "turn_ended", "budget_refused")
            case "vetoed", call_id:
                self.vetoed.add(call_id)
            case "ordered", _, Raise(name, amount):
                self.ceilings[name] += amount
                self.more += 1
            case (("decided" | "count"), value):
                self.said[what] = value
            case "continue", False:
                self.halted = True
            case "sink raised", *_:
                self.used["sink errors"] += 1

    def _record(self, event: Any) -> None:
        need("events without gap", event.seq == self.used["events"], bool(self.open) or event.kind == "run_started")
        self.used["events"] += 1
        self.used[event.kind] += 1
        kind, _, phase = event.kind.rpartition("_")
        match kind, phase:
            case ("tool", "started"):
                need("a call begins once, in a turn", self.open[-1] == "turn", event.call_id not in self.begun)
                self.begun.add(event.call_id)
            case ("tool", "ended"):
                ran = event.call_id in self.begun or event.status in ("denied", "cancelled")
                need("a call that had begun ends, in its turn", ran, self.open[-1] in ("turn", "grace"))
                self.begun.discard(event.call_id)
                self.reasons.append(event.reason)
                assert event.reason != "budget" or self.open[-1] == "grace" or self._none_left(event.tool)
            case ("model", "requested"):
                self.open.append(kind)
                self.estimated = event.estimated_tokens
            case (_, "started"):
                self._begin(kind)
            case ("turn", "ended"):
                self._end_turn()
            case (_, "ended") | ("model", "replied"):
                need("each ends in its place", self.open.pop() == kind, not self.begun)
                self.has_reply = kind == "model" and event.finish is not None
            case ("", "retried"):
                self.has_reply = self.may_retry = False
            case ("budget", "warned"):
                self._warned(event)
            case ("budget", _):
                self._refused(event)
            case ("", "refunded"):
                self.used[f"{event.budget} given back"] += event.amount
                self.used["turns"] -= event.amount * (event.budget == "turns")
                self.refunded = event.budget == "turns"

    def _begin(self, kind: str) -> None:
        assert {"run": [], "turn": ["run"], "grace": ["run"]}[kind] == self.open, f"{kind} began out of place"
        self.open.append(kind)
        if kind == "turn":
            self.used["turns"] += 1
            self.first_of_turn, self.has_reply, self.may_retry, self.reasons = True, False, False, []
            self.refunded = self.turn_shared = False
            single = not self.agent.single_turn or self.used["turn_started"] == 1
            no_calls = self.out_of_calls and self.used["tool_calls"] >= self.ceilings["tool_calls"]  # unless extended
            need("a turn that is left", self.used["turns"] <= self.ceilings["turns"], not no_calls, single)
            need("few refunds", self.used["turns given back"] <= self.ceilings["turns"])

    def _end_turn(self) -> None:
        need("a turn ends after its calls", self.open.pop() == "turn", not self.begun)
        self.used["turns with a reply"] += self.has_reply
        self.used["turns without a request"] += self.first_of_turn and not self.refunded and not self.turn_shared
        self.was_over = self.time_is_over
        self.failed |= self.may_retry and not self.was_over and self.used["retried"] >= self.ceilings["retries"]
        denied = bool(self.reasons) and set(self.reasons) == {"budget"}
        spent = self.used["tool_calls"] >= self.ceilings["tool_calls"]
        self.out_of_calls = denied and spent and "max_tool_calls_reached" in self.flags

    def _none_left(self, tool: str) -> bool:
        own, ceilings = f"calls.{tool}", self.batch_ceilings
        once = {name: self.used[name] + self.used[f"{name} given back"] for name in ("tool_calls", own)}
        spent = [count >= ceilings.get(name, inf) for name, count in once.items()]
        return any(spent) or self.shared_refused or (tool == "twice" and self.used[own] >= 2)

    def _warned(self, event: Any) -> None:
        """A limit is warned of once, and not before seven tenths of it are used."""
        need(
            "one warning of a limit", self.used[f"warned of {event.budget}"] == 0, event.used > 0.7 * event.ceiling - 1
        )
        self.used[f"warned of {event.budget}"] += 1

    def _refused(self, event: Any) -> None:
        self.flags.append(event.flag)
        spent = {"turns": self.used["turns"], "nudges": self.used["nudged"]}.get(event.budget)
        need("none refused that was left", spent is None or self.shared_refused or spent == self.ceilings[event.budget])


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
        assert all(isinstance(one, Denied | Cancelled) for one in result.tool_results if one.call_id not in made)
        for kind in (MessageType.TOOL_CALL, MessageType.TOOL_RESULT):
            told = [(message.payload or {})["call_id"] for message in result.messages if message.type is kind]
            assert told == ids
        assert check_pairs(result.messages) == []

    def _facts(self, story: list[Any], result: Result) -> None:
        appended = [message for effect in story if isinstance(effect, Append) for message in effect.messages]
        whole = list(result.messages)[: len(appended) if result.stop is Stop.PAUSED or not appended else None]
        need("all messages kept, or none", appended == whole)
        assert result.requests == self.used["Ask"] == self.used["model_requested"]
        assert (result.turns, result.estimated_requests) == (self.used["turns with a reply"], self.used["estimated"])
        assert result.usage == sum((reply.usage for reply in self.replies if reply.usage), Usage())
        state: dict[str, Any] = {}
        for outcome in result.tool_results:
            state |= outcome.changes if isinstance(outcome, Success) else {}
        assert result.state == {key: value for key, value in state.items() if value is not None}
        hung = sum(one.hung for one in self.outcomes.values() if isinstance(one, Timeout | Cancelled))
        assert result.hung == hung - sum(isinstance(letter, Late) for letter in self.heard)

    def _bounds(self, result: Result) -> None:
        most, used, budgets = self.ceilings, self.used, result.budgets
        for name in ("turns", "tool_calls", "tokens", "usd"):
            need(f"{name} counted right", budgets[name].used == used[name], budgets[name].held == 0)
        retries, costs = budgets["retries"].used, sum(result.cost.values())
        need("retries counted right", used["retried"] <= retries <= used["retried"] + 1, retries <= most["retries"])
        need("costs, nudges", costs == used["usd"], budgets["nudges"].used == used["nudged"] <= most["nudges"])
        need("few requests", used["Ask"] <= 2 * most["turns"] + most["retries"] + 1, used["Wait"] <= most["retries"])
        steered = sum(isinstance(letter, Steer) for letter in self.heard)
        need("few keepings", used["Append"] <= used["turn_started"] + steered + 3, used["Act"] <= len(self.asked))
        need("one report", used["grace_started"] <= 1 + self.more, used["Decide"] <= len(self.asked))
        if used["Grant"]:
            shared = {name: self.shared[name] for name in ("turns", "tool_calls", "tokens", "usd")}
            shared["turns"] += used["turns without a request"]  # whose refund was at its limit
            assert shared == {name: budgets[name].used for name in shared}, "the shared budgets were left wrong"

    def _stop(self, result: Result) -> None:
        """The first in precedence of all reasons that hold."""
        stop, cancels = result.stop, [letter.by for letter in self.heard if isinstance(letter, Cancel)]
        if LeaseLost() in self.heard:
            assert stop is Stop.CONTENDED
        elif cancels:
            need("cancelled, and by whom", stop is Stop.CANCELLED, result.stopped_by == cancels[0])
        elif self.failed:
            need("failed, and why", stop is Stop.FAILED, bool(result.error))
        else:
            self._limit_or_end(result)
            graced = stop in (Stop.DEADLINE, Stop.BUDGET, Stop.STALLED) and self.agent.grace
            assert graced <= self.used["grace_started"] <= graced + self.more
            assert not graced or result.text.strip(), "a run that met a limit reports nothing"

    def _limit_or_end(self, result: Result) -> None:
        stop, last, flags = result.stop, self.last, set(result.flags)
        assert stop not in (Stop.CONTENDED, Stop.CANCELLED, Stop.FAILED)
        need("halted", not self.must_halt or stop in (Stop.DEADLINE, Stop.BUDGET, Stop.HALTED))
        need("a limit before a halt", not self.out_of_calls or stop in (Stop.DEADLINE, Stop.BUDGET))
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
                assert self.used["repeated"] >= 3
            case Stop.UNFINISHED:
                assert self.agent.output or not isinstance(self.said.get("decided"), Complete)
            case _:
                need("a natural end", isinstance(last, Reply) and not last.calls and last.finish not in CUT_OFF[1:])
                assert not self.agent.completion or isinstance(self.said.get("decided"), Complete)
                assert not self.agent.output or isinstance(result.output, int)
                steered = Counter(letter.text for letter in self.heard if isinstance(letter, Steer))
                assert not steered - Counter(message.content for message in result.messages), "somebody was not heard"


def audited(agent: Agent, story: list[Any], result: Result, most_s: float) -> None:
    """Walk through the story of a run, then hold its result to what was counted on the way."""
    Closing(agent, most_s).close(story, result)
