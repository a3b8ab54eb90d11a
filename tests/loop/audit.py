"""The auditor: a second, independent count of random runs, which their results must equal.

A chaos test drives `converse()` with a random agent and random answers. It writes down the story of each run: every
effect that the loop yielded, every answer that it received, every event, and what tools, hooks and rules did. The
auditor reads that story, the agent's limits, the plan and the result. It uses no budget and no state of the loop, so a
mistake in the loop cannot repeat itself here. It counts in plain dictionaries.

`Recount` (recount.py) holds the numbers: ceilings from `Limits` and from the parent, the reserve of the grace turn,
used, held and shared amounts, and the time.

`Auditor` walks through the story. Before each effect it checks that the loop may yield it at this moment:
- A request is not sent after a cancel, a failure, a halt, a stall or the deadline of work. Its calls and results come
  in pairs, its worst case is held, the reserve is untouched, and it goes to the model that rules selected. Retries are
  within their limit.
- A tool call was asked for in a complete reply, starts once, has the approval of a person if it needs one, and is
  within the limits of calls. No hook or rule vetoed it, and no tool rule (audit_gates.py). For a client tool, all that
  holds before its caller is asked for the result.
- The model recalls only what it was shown in part, and nothing that a hook replaced.
- Child runs are within the limits of children and depth. Slices and pools fit into what their parent has left.
- There is one report (and one more per extension), without tools, before its own deadline.
- A wait ends within the time for work.
Then it reads the answer. Usage is charged, or the estimate if there is none. The use of carved and shared child runs is
charged to their parent. Signals cancel, extend or end the time. Orders of hooks and rules halt, extend, set the state
or select a model. Each grant is settled once.

`Closing` (audit_result.py) compares the whole. Every `*_started` event has its `*_ended`, events are numbered and in
the order of the story, and there is one `run_ended`. Every call that a model asked for has exactly one outcome and one
result message. The used, held and shared amounts of every budget equal the recount. Messages, state, usage, turns,
requests and child runs in the result are those of the story. Several stop reasons may hold (`Stop` lists them in their
order): the result must name the first. It has a flag for each refusal, and a text if a limit was reached and a report
is due.

`audit_tree` (audit_tree.py) does this for every run of a tree, and recounts the budgets that they share with each other
and with runs outside the tree.

Not checked: the words of messages, the order of hooks, the conditions of rules, and the quality of reports. The chaos
tests also replay every run from its answers, which must give an equal result.
"""

from collections.abc import Sequence
from math import inf
from typing import Any, cast

from flyball.budget.price import compute_max_request_cost
from flyball.event import Event
from flyball.loop import Act, Answer, Ask, Decide, Effect, Grant, Wait
from flyball.loop.child_task import ChildTask, Mode
from flyball.loop.children import distinct_tasks
from flyball.loop.effects import Cancel, ChildDone, Extend, LeaseLost, PauseChildren, Stalled, TimeUp
from flyball.message import Role, check_pairs
from flyball.outcome import Outcome, Success
from flyball.person import About
from flyball.progress import Halt, Notice, Raise, SetState, UseModel
from flyball.request import Call, FailureKind, Finish, ModelFailure, Purpose, Reply, estimate_reply_tokens

from .recount import Recount

# pyright: reportMatchNotExhaustive=false
CUT_OFF = (Finish.LENGTH, Finish.CONTENT_FILTER, Finish.REFUSAL, Finish.CUT)
PASSING = (FailureKind.RETRYABLE, FailureKind.FINAL)
"""Failures after which a fallback model is asked."""

MADE_BY_LOOP = ("collect", "read_artifact")
"""Tools whose calls the loop answers itself."""


def need(what: str, *facts: bool) -> None:
    assert all(facts), f"{what}: {facts}"


class Auditor(Recount):
    """Walks through a story, and asserts at each step that it was allowed."""

    def walk(self, story: list[Any]) -> None:
        effect: Any = None
        for step in story:
            match step:
                case Effect():
                    effect = cast("Any", step)
                    self._may_begin(effect)
                case Answer():
                    self._learn(effect, cast("Answer[Any]", step))
                case Event():
                    self._record(step)
                case _:
                    self._did(*step)

    def _may_begin(self, effect: Any) -> None:
        self.used["Wait for children" if getattr(effect, "runs", ()) else type(effect).__name__] += 1
        match effect:
            case Ask(request) if request.purpose is Purpose.TURN:
                self._may_ask(effect)
            case Ask(request):
                self._may_report(effect)
            case Act(acts):
                need("no act once the run is called off, or its time over", not self.called_off, not self.time_is_over)
                whole = isinstance(self.last, Reply) and self.last.finish not in CUT_OFF
                need("calls of a whole reply", whole, bool(acts))
                for place, act in enumerate(acts):
                    self._may_act(act.call, [earlier.call.name for earlier in acts[:place]])
                self._may_delegate([task for act in cast("Any", acts) for task in distinct_tasks(act.tasks)])
            case Decide(question) if question.about is About.CLIENT_TOOL:
                need("no question once the run must end", not (self.called_off or self.failed or self.halted))
                self._may_make(Call(question.id, cast("str", question.tool), ""), tuple(self.pending.values()))
                self.pending[question.id] = cast("str", question.tool)
                self.claimed += 1
            case Wait(until, runs, cancel) if runs:
                need("a wait for child runs that are open", set(runs) <= self.background.keys())
                last = self.at + 5.0 if cancel else self.hard_at - self.reserve_s
                need("a wait within its time", self.at <= until <= last, cancel or not self.called_off)
            case Wait(until):
                assert self.at <= until < self.hard_at - self.reserve_s, "a wait past the work's end"

    def _may_ask(self, ask: Ask) -> None:
        ends = self.called_off or self.failed or self.halted or self.stalled
        need("no request once the run must end", not ends)
        fell_back = self.next_model is None or self.model == self.next_model
        need("the fallback model after a failure", self.first_of_turn or fell_back)
        self.next_model = None
        need("the work's deadline", not self.time_is_over, ask.deadline == self.hard_at - self.reserve_s)
        need("pairs that are closed", check_pairs(ask.request.messages) == [])
        offered = [definition["name"] for definition in ask.request.tools]
        recalls = self.agent.recall and self.has_artifact and bool(offered)
        need("recall is offered once there is an artifact", ("read_artifact" in offered) == recalls)
        need("a request in its turn", self.open[-2:] == ["turn", "model"])
        self.used["retries"] += not self.first_of_turn
        self.first_of_turn = False
        assert self.used["retries"] <= self.ceilings["retries"], "a retry too many"
        counts = hasattr(self.find_model(ask.request.model), "count")
        self._hold(ask, self.said["count"] if counts else self.estimated)

    def _may_report(self, ask: Ask) -> None:
        need("no report once the run is called off or failed", not self.called_off, not self.failed)
        again = self.more + len(self.fallbacks)
        need("one report", self.agent.grace, self.used["grace"] <= again, self.at < self.report_until == ask.deadline)
        need("a report within its cap", 0 < (ask.request.max_output_tokens or 0) <= 4_000)
        self.used["grace"], request = self.used["grace"] + 1, ask.request
        last, pairs = request.messages[-1], check_pairs(request.messages)
        need("a request for words only, of closed pairs", not request.tools, last.role is Role.USER, pairs == [])
        need("a request in its grace turn", self.open[-2:] == ["grace", "model"])
        self._hold(ask, self.estimated)

    def _hold(self, ask: Ask, tokens: int) -> None:
        """The worst case of a request must fit into what is left; work must leave the reserve alone."""
        request, output = ask.request, ask.request.max_output_tokens
        need("the model that was ordered", request.model == self.model)
        limited = min(self.ceilings["tokens"], self.ceilings["usd"]) < inf or bool(self.by_model)
        need("a grant for what is shared", not self.used["Grant"] or self.taken or not tokens)
        self.held = {
            "tokens": tokens + (output or 0),
            "usd": compute_max_request_cost(self.find_price(request.model), tokens, output or 0),
            "input": tokens,
        }
        self.held |= self.by_model_of(request.model, self.held["tokens"], self.held["usd"])
        if limited:
            for name, amount in self.held.items():
                kept = self.reserve.get(name, 0) if request.purpose is Purpose.TURN else 0
                need(f"{name} that are left", amount + self.used[name] + kept <= self.ceilings.get(name, inf))
            need("a bound on the reply", self.ceilings["tokens"] == inf or bool(output))
        self.limited = limited or bool(self.used["Grant"])

    def _may_act(self, call: Call, pending: Sequence[str]) -> None:
        need("a new call", call.id in self.begun, call.id not in self.outcomes)
        needs_person = call.name in ("ask_first", "fetch") or call.id in self.guarded
        need("a person or the client agreed", not needs_person or call.id in self.answered.get(True, ()))
        if call.id in self.pending:  # decided and counted before its question
            self.claimed -= 1
            del self.pending[call.id]
        else:
            need("a question for the client", call.name != "fetch")
            self._may_make(call, pending)

    def _may_make(self, call: Call, pending: Sequence[str]) -> None:
        """Nothing denies a call, and it counts from now on."""
        need("no veto", call.id not in self.vetoed)
        self.gates.check_call(call.name, pending)
        for name in ("tool_calls", f"calls.{call.name}"):
            self.used[name] += 1
            assert self.used[name] <= self.ceilings.get(name, inf), f"one call too many of {name}"
        assert call.name != "twice" or self.used["calls.twice"] <= 2

    def _may_delegate(self, tasks: Sequence[ChildTask]) -> None:
        """Child runs must be left, and what they get must be left besides the reserve."""
        self.used["children"] += len(tasks)
        if not tasks:
            return
        need("child runs may start", not self.paused_at_reply)
        need("children that are left", self.used["children"] <= self.ceilings["children"])
        need("a level that is left", self.plan.level < self.ceilings["depth"])
        need("ids of their own", all(self.children.get(task.run_id, "") is None for task in tasks))
        carved = [task for task in tasks if task.spec.mode is Mode.CARVED]
        for name in ("turns", "tokens", "usd", "children"):
            left = self.ceilings[name] - self.used[name] - self.reserve.get(name, 0)
            left -= sum(task.max_amounts.get(name, 0) for task in self.background.values() if name in task.reserved)
            sliced = sum(task.max_amounts.get(name, 0) for task in carved)
            need(f"slices of the {name} that are left", sliced <= left or not sliced)
            for task in tasks:
                is_shared = task.spec.mode is Mode.SHARED
                need("a pool only for those who share", (task.pool is not None) == is_shared)
                rest = None if left == inf else max(0, left - sliced)
                need(f"a pool of the {name} that are left", task.pool is None or task.pool[name] == rest)

    def _settle_children(self, act: Any, outcome: Outcome) -> None:
        """Add the use of carved and shared child runs to that of the run."""
        if act.in_background and isinstance(outcome, Success):
            self.background |= {task.run_id: task for task in distinct_tasks(act.tasks)}
            return
        self.ended_children += outcome.children
        if not act.tasks:  # the tool started them itself, each within its own limits
            self.used["children"] += len(outcome.children)
            self.shared["children"] += len(outcome.children) * bool(self.used["Grant"])
            need("children that were left", self.used["children"] <= self.ceilings["children"])
            return
        tasks = distinct_tasks(act.tasks)
        need("a result of each child run", len(tasks) == len(outcome.children))
        for task, result in zip(tasks, outcome.children, strict=True):
            names = {Mode.CARVED: ("turns", "tokens", "usd"), Mode.SHARED: ("turns", "tokens", "usd", "children")}
            amounts = {name: result.budgets[name].used for name in names.get(task.spec.mode, ())}
            self.used.update(amounts)
            self.below.update(amounts)
            need("the result of its own run", result.run_id == task.run_id)
            for name in ("turns", "children"):
                need(f"{name} of children within the run's own", self.used[name] <= self.ceilings[name])

    def _end_background(self, run_id: str) -> None:
        """Add the use of a child run in the background, or its whole slice if it gave no result."""
        task, result = self.background.pop(run_id), self.done.get(run_id)
        self.ended_children.append(result or run_id)
        if task.spec.mode is Mode.CARVED:
            for name in ("turns", "tokens", "usd"):
                amount = result.budgets[name].used if result and name in result.budgets else None
                used = task.max_amounts.get(name, 0) if amount is None else amount
                self.used[name] += used
                self.below[name] += used

    def _learn(self, effect: Any, answer: Answer[Any]) -> None:
        self.at, before = answer.at, dict(self.ceilings)
        for signal in answer.signals:
            self._hear(signal)
        match effect:
            case Ask():
                self._learn_reply(effect, answer.value)
                self.batch_ceilings = before
                self.were_paused = self.paused_at_reply = self.children_paused
            case Act():
                for act, outcome in zip(effect.acts, answer.value, strict=True):
                    self.outcomes[outcome.call_id] = outcome
                    self.has_artifact |= outcome.artifact is not None
                    self.gates.done += [outcome.tool] if isinstance(outcome, Success) else []
                    self._settle_children(act, outcome)
            case Decide(question):
                self.answered.setdefault(answer.value.approved, set()).add(question.id)
                if answer.value.approved is False:
                    self.pending.pop(question.id, None)
                self.halted |= question.about is About.RUN and answer.value.approved is False
            case Grant():
                self._learn_grant(effect, answer.value is not None)

    def _learn_grant(self, grant: Grant, refused: bool) -> None:
        for amounts in grant.refund.values():
            self.shared.subtract(amounts)
        if grant.settle is not None:
            is_release = not any(grant.settle.values())  # also of a request whose model counted no tokens
            need("a grant that is settled once", self.taken or is_release or not self.held.get("tokens"))
            lent, self.taken = self.lent if self.taken else dict.fromkeys(("tokens", "usd"), 0), False
            self.shared.update({name: grant.settle.get(name, held) - held for name, held in lent.items()})
        self.shared_refused |= refused
        self.shared.update({} if refused else grant.claim)
        self.turn_shared |= "turns" in grant.claim and not refused
        if "tokens" in grant.claim and not refused:
            need("nothing taken before the last is settled", not self.taken)
            self.taken, self.lent = True, {"tokens": 0, "usd": 0, **grant.claim}

    def _hear(self, signal: Any) -> None:
        self.heard.append(signal)
        match signal:
            case Extend(amounts, seconds):
                for name, amount in amounts.items():
                    self.raise_limit(name, amount)
                self.raise_limit("seconds", seconds)
            case TimeUp():
                self.time_up = True
            case Stalled():
                self.stalled = True
            case Cancel() | LeaseLost():
                self.called_off = True
            case ChildDone(run_id, result):
                self.done[run_id] = result
            case PauseChildren(paused):
                self.children_paused = paused
                self.were_paused |= paused

    def _learn_reply(self, ask: Ask, value: Reply | ModelFailure) -> None:
        turn = ask.request.purpose is Purpose.TURN
        if isinstance(value, Reply):
            self.replies.append(value)
            self.asked += value.calls
            if value.usage is None:
                self._book_the_estimate(ask, value)
            else:
                cost = self.find_price(ask.request.model).cost(value.usage)
                self.used.update({"tokens": value.usage.total, "usd": cost, "own usd": cost})
                self.used.update(self.by_model_of(ask.request.model, value.usage.total, cost))
            self.failed |= turn and value.finish in (Finish.CONTENT_FILTER, Finish.REFUSAL)
        elif value.began:
            self._book_the_estimate(ask, None)
        if not isinstance(value, Reply) and self.fallbacks and value.kind in PASSING:
            self.expect_fallback(value.kind is FailureKind.FINAL)
        if turn and not isinstance(value, Reply):
            self.failed |= value.kind is FailureKind.FINAL and self.next_model is None
            is_repeatable = value.kind is FailureKind.FINAL and self.next_model is not None
            self.may_retry = value.kind is FailureKind.RETRYABLE or is_repeatable
        if turn:
            self.last = value

    def _book_the_estimate(self, ask: Ask, reply: Reply | None) -> None:
        """Charge a request without reported usage: what was held, or what was sent and received if nothing was held."""
        read, bound = self.held["input"], ask.request.max_output_tokens
        said = int(min(estimate_reply_tokens(reply) if reply else 0, inf if bound is None else bound))
        cost = compute_max_request_cost(self.find_price(ask.request.model), read, said)
        least = {"tokens": read + said, "usd": cost, "estimated": 1}
        used = {name: max(amount, self.held.get(name, 0) * self.limited) for name, amount in least.items()}
        self.used.update({**used, "own usd": used["usd"]})
        self.used.update(self.by_model_of(ask.request.model, used["tokens"], used["usd"]))

    def _did(self, what: str, *about: Any) -> None:
        match what, *about:
            case "raised", who:
                self.failed |= who != "run_ended"
            case "ordered", point, order:
                self._follow(point, order)
            case "vetoed", call_id:
                self.vetoed.add(call_id)
            case "needs approval", call_id:
                self.guarded.add(call_id)
            case "count", value:
                self.said[what] = value
            case "decided", value, after_calls:
                self.said[what], self.said["after calls"] = value, after_calls
            case "continue", False:
                self.halted = True
            case "sink raised", *_:
                self.used["sink errors"] += 1

    def _follow(self, point: str, order: Any) -> None:
        """Learn what a hook or a rule has ordered."""
        match order:
            case Halt():
                self.halted |= point != "run_ended"
                self.must_halt |= point not in ("run_ended", "turn_ended", "budget_refused", "stalled")
                self.may_report |= order.grace
            case Raise(name, amount):
                self.raise_limit(name, amount)
            case SetState(key, value):
                self.change_state({key: value})
            case UseModel(name) if point != "run_ended" and self.find_model(name).ready() is None:
                self.use_model(name)
            case Notice(text):
                self.notices.add(text)

    def _record_work(self, kind: str, phase: str, event: Any) -> None:
        """Record the start or the end of a call or of a child run."""
        match kind, phase:
            case ("tool", "started"):
                need("a call begins once, in a turn", self.open[-1] == "turn", event.call_id not in self.begun)
                self.begun.add(event.call_id)
                if event.tool in MADE_BY_LOOP:
                    self.used.update({"tool_calls": 1, f"calls.{event.tool}": 1})
            case ("tool", "ended"):
                ran = event.call_id in self.begun or event.status in ("denied", "cancelled")
                need("a call that had begun ends, in its turn", ran, self.open[-1] in ("turn", "grace"))
                self.begun.discard(event.call_id)
                self.reasons.append(event.reason)
                self.gates.done += [event.tool] if event.tool in MADE_BY_LOOP and event.status == "done" else []
                need("denied for a pause while there is one", event.reason != "paused" or self.were_paused)
                outcome = self.outcomes.get(event.call_id)
                self.change_state(dict(outcome.changes) if isinstance(outcome, Success) else {})
                assert event.reason != "budget" or self.open[-1] == "grace" or self._none_left(event.tool)
            case ("child", "started"):
                need("a child run starts once, in a turn", self.open[-1] == "turn", event.child_id not in self.children)
                self.children[event.child_id] = None
            case ("child", "ended"):
                need("a child run ends once", self.children[event.child_id] is None)
                self.children[event.child_id] = event.stop
                if event.child_id in self.background:
                    self._end_background(event.child_id)
            case _:
                raise AssertionError(event.kind)

    def _record(self, event: Any) -> None:
        need("events without gap", event.seq == self.used["events"], bool(self.open) or event.kind == "run_started")
        self.used["events"] += 1
        self.used[event.kind] += 1
        self.failed |= event.kind == "required_tools_unavailable"
        kind, _, phase = event.kind.rpartition("_")
        match kind, phase:
            case ("tool" | "child", _):
                self._record_work(kind, phase, event)
            case ("model", "requested"):
                self.open.append(kind)
                self.estimated = event.estimated_tokens
            case (_, "started"):
                self._begin(kind)
            case ("turn", "ended"):
                self._end_turn()
            case ("run", "ended"):
                need("the run ends last", self.open.pop() == "run", not self.open, not self.begun)
                self.failed |= not self.used["turn_started"] and not self.is_ready and not self.used["fell_back"]
            case (_, "ended") | ("model", "replied"):
                need("each ends in its place", self.open.pop() == kind, not self.begun)
                self.has_reply = kind == "model" and event.finish is not None
            case ("" | "fell", "retried" | "back"):
                self._repeat(event)
            case ("notice", "delivered"):
                need("a notice that was ordered", event.text in self.notices or event.rule == "repetition")
            case ("budget", "warned"):
                self._warned(event)
            case ("budget", _):
                self._refused(event)
            case ("", "refunded"):
                self._refunded(event)

    def _refunded(self, event: Any) -> None:
        self.used[f"{event.budget} given back"] += event.amount
        self.used["turns"] -= event.amount * (event.budget == "turns")
        self.refunded = event.budget == "turns"
        if event.budget == "tool_calls" and self.claimed:
            self.claimed -= 1
            self.used["tool_calls"] -= 1

    def _repeat(self, event: Any) -> None:
        """A request is made again, by the same model or by a fallback model."""
        self.has_reply = self.may_retry = False
        if event.kind == "fell_back":
            self._fall_back(event)
        else:
            self.used["repeated requests"] += 1

    def _fall_back(self, event: Any) -> None:
        """A run changes to the next of its models after a failure, or before it starts to one that is ready."""
        if not self.used["turn_started"] and self.next_model is None:
            ready = [name for name in self.fallbacks if self.find_model(name).ready() is None]
            need("a fallback only for a model that is not ready", not self.is_ready, self.open == ["run"])
            self.next_model, self.usable = ready[0], self.fallbacks[self.fallbacks.index(ready[0]) :]
        else:
            self.used["repeated requests"] += 1
            need("no wait for another model", self.tried_all == (event.wait_s > 0))
        assert self.next_model is not None, "a fallback without a failure"
        names = self.find_model(self.model).name, self.find_model(self.next_model).name
        need("the next model of the list", (event.model, event.to) == names)
        self.model = self.next_model

    def _begin(self, kind: str) -> None:
        assert {"run": [], "turn": ["run"], "grace": ["run"]}[kind] == self.open, f"{kind} began out of place"
        self.open.append(kind)
        if kind == "grace":
            self.report_until = min(self.hard_at, self.at + 30)
        if kind == "turn":
            self.used["turns"] += 1
            self.first_of_turn, self.has_reply, self.may_retry, self.reasons = True, False, False, []
            self.refunded = self.turn_shared = False
            single = not self.agent.single_turn or self.used["turn_started"] == 1
            need("a turn that is left", self.used["turns"] <= self.ceilings["turns"], not self.has_no_calls, single)
            need(
                "a model that is ready, or that another one's failure led to",
                self.is_ready or self.used["fell_back"] > 0,
            )
            need("few refunds", self.used["turns given back"] <= self.ceilings["turns"])

    def _end_turn(self) -> None:
        need("a turn ends after its calls", self.open.pop() == "turn", not self.begun)
        refunded_most = self.used["tool_calls given back"] >= self.ceilings["tool_calls"]
        need("a call that the client refused is refunded", self.claimed <= len(self.pending) or refunded_most)
        open_runs = {run_id for run_id, stop in self.children.items() if stop is None}
        need("a turn ends after its child runs", open_runs == self.background.keys())
        self.used["turns with a reply"] += self.has_reply
        self.used["turns without a request"] += self.first_of_turn and not self.refunded and not self.turn_shared
        self.was_over = self.time_is_over
        may_fail = self.may_retry and not self.was_over and not self.stalled
        self.failed |= may_fail and self.used["repeated requests"] >= self.ceilings["retries"]
        denied = bool(self.reasons) and set(self.reasons) == {"budget"}
        spent = self.used["tool_calls"] >= self.ceilings["tool_calls"]
        self.out_of_calls = denied and spent and "max_tool_calls_reached" in self.flags

    def _none_left(self, tool: str) -> bool:
        own, ceilings = f"calls.{tool}", self.batch_ceilings
        once = {name: self.used[name] + self.used[f"{name} given back"] for name in ("tool_calls", own)}
        spent = [count >= ceilings.get(name, inf) for name, count in once.items()]
        too_few = any(spent) or self.shared_refused or (tool == "twice" and self.used[own] >= 2)
        return too_few or (tool == "delegate" and self._lacks_children())

    def _lacks_children(self) -> bool:
        """Whether a call of up to three child runs may be denied for lack of any budget that they need."""
        carves = any(child.budget == "carved" for child in cast("Any", self.agent.children))
        small = self.ceilings["children"] - self.used["children"] < 3 or self.plan.level >= self.ceilings["depth"]
        return small or carves

    def _warned(self, event: Any) -> None:
        """A limit is warned of once, and not before seven tenths of it are used."""
        need(
            "one warning of a limit", self.used[f"warned of {event.budget}"] == 0, event.used > 0.7 * event.ceiling - 1
        )
        self.used[f"warned of {event.budget}"] += 1

    def _refused(self, event: Any) -> None:
        self.flags.append(event.flag)
        spent = {"turns": self.used["turns"], "nudges": self.used["nudged"]}.get(event.budget)
        excused = spent is None or self.shared_refused or (event.budget == "turns" and self._lacks_children())
        need("none refused that was left", excused or spent == self.ceilings[event.budget])
