"""A random world around a tree of runs: it answers every effect with anything that could happen.

Child runs are driven by the same rules as their parent and take turns with their siblings in a random order. Shared
budgets are real ones. Between two effects of the tree, other runs may claim from the top one.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from flyball import Agent, Result, TurnBudget
from flyball.errors import BudgetExceeded, describe_error
from flyball.event import Header
from flyball.loop import Act, Answer, Ask, Decide, Effect, Fingerprint, Grant, Plan, Wait
from flyball.loop.child_task import ChildTask
from flyball.loop.children import distinct_tasks
from flyball.loop.effects import (
    Cancel,
    ChildDone,
    Extend,
    Late,
    LeaseLost,
    PauseChildren,
    Signal,
    Stalled,
    Steer,
    TimeUp,
)
from flyball.loop.ending import End
from flyball.loop.player import LoopPlayer
from flyball.outcome import Artifact, Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from flyball.person import About, Verdict
from flyball.recorder import Recorder, Sink
from flyball.request import Call, FailureKind, Finish, ModelFailure, Reply, Usage
from flyball.result import Stop
from flyball.runtime.child_budget import ChildBudgets
from flyball.runtime.child_call import BackgroundCallRun, ChildCallRun
from flyball.runtime.shared_budget import SharedBudgetClient
from flyball.testing import ManualClock
from flyball.tools.call import ToolCallRun

from .dice import Dice
from .random_agents import Book

WHOLE = "w" * 20_000
"""A long result."""
MAX_EFFECTS = 2_000
"""Effects of one run. The auditor knows a tighter bound."""
Steps = Generator[None, None, None]


@dataclass
class DrivenRun:
    """One run of the tree, with everything that an audit or a replay of it needs."""

    agent: Agent
    plan: Plan
    """Plan as it was before the run changed it."""
    parent: "DrivenRun | None"
    shared_budget: TurnBudget | None
    task: ChildTask | None = None
    """Task of a child run. None for the top run."""
    sinks: Sequence[Sink] = ()
    prints: list[int] = field(default_factory=list[int])
    answers: Sequence[Answer[Any]] = ()
    result: Result | None = None
    """None until it has ended."""
    has_tool_children: bool = False
    """True if a tool started child runs. The driver emits their events, so a replay has none of them."""


@dataclass
class Posting:
    """One change of shared budgets: a Grant of a run with its answer, or a claim of another run (`run_id` is '')."""

    account: TurnBudget
    run_id: str
    grant: Grant
    is_granted: bool
    is_late: bool = False
    """True if it was refused because the time of the shared budget is over."""


class World:
    """Answers the effects of one run, in its own time."""

    def __init__(self, dice: Dice, plan: Plan, clock: ManualClock, parent: "World | None" = None) -> None:
        self.dice, self.clock, self._parent = dice, clock, parent
        self._children = [spec.name for spec in plan.spec.children.specs]
        self._has_background = plan.spec.children.in_background
        self.background: list[tuple[ChildTask, World, Steps]] = []
        """Child runs in the background that have not ended."""
        self.ended: list[ChildTask] = []
        """Child runs in the background that have ended since the last answer."""
        self._started_at = 0.0 if parent is None else parent.clock.now()
        favourites = ["", "", "glance", "look", "write", "ask_first", "fetch"]
        self._favourite = dice.pick(*favourites, *(["delegate"] * 6 if self._children else []))
        """Only tool that is called, or '' for any. A run then goes on in the same way for long."""
        self._hung: list[tuple[str, str]] = []
        self._artifacts: list[str] = []
        """Ids of long results."""
        self.is_interrupted = False

    def advance(self, seconds: float) -> None:
        """Move the time of this run. Its parent's is never behind."""
        self.clock.move(seconds)
        if self._parent is not None:
            lag = self._started_at + self.clock.now() - self._parent.clock.now()
            self._parent.advance(max(0.0, lag))

    def step_background(self, count: int) -> None:
        """Let some child runs in the background take a step."""
        for _ in range(count):
            if self.background:
                self._step(self.dice.pick(*self.background))

    def _step(self, entry: "tuple[ChildTask, World, Steps]") -> None:
        try:
            next(entry[2])
        except StopIteration:
            self.background.remove(entry)
            self.ended.append(entry[0])

    def wait_for_children(self, wait: Wait) -> None:
        """Let the awaited child runs work until they end, or until the wait is over."""
        for entry in [entry for entry in self.background if entry[0].run_id in wait.runs]:
            entry[1].is_interrupted |= wait.cancel
            while entry in self.background and not self.dice.once_in(200):
                self._step(entry)
        if any(task.run_id in wait.runs for task, _, _ in self.background):
            self.advance(max(0.0, wait.until - self.clock.now()))

    def close_background(self) -> None:
        """Drive what is left to its end: the run has ended without it."""
        while self.background:
            self.background[0][1].is_interrupted = True
            self._step(self.background[0])

    def take_ended(self) -> list[Signal]:
        """Return the signals about child runs in the background that have ended."""
        ended, self.ended = self.ended, []
        return [ChildDone(task.run_id, cast("Result", task.own_result)) for task in ended]

    def take_time(self, effect: Effect[Any]) -> None:
        """Let an effect take some time, sometimes until its deadline."""
        now = self.clock.now()
        due = getattr(effect, "deadline", now)
        self.advance(self.dice.pick(*[0.0] * 25, 0.1, 0.1, 0.1, 2.0, min(1e7, max(0.0, due - now))))

    def answer(self, effect: Effect[Any]) -> Any:
        match effect:
            case Ask():
                return self._failure() if self.dice.once_in(9) else self._reply()
            case Decide(question):
                answer = "4" if question.about is About.CLIENT_TOOL else ""
                return Verdict(self.dice.pick(True, True, False, None), answer)
            case Wait(runs=runs) if runs:
                self.wait_for_children(effect)
                return None
            case Wait(until):
                late = self.dice.pick(0.0, -0.2, 30.0)
                self.advance(max(0.0, until + late - self.clock.now()))
                return None
            case _:
                return None

    def signals(self, effect: Effect[Any], value: Any) -> list[Signal]:
        dice, signals = self.dice, list[Signal]()
        for _ in range(dice.pick(1, 2, 3, 4) if dice.once_in(25) else 0):
            signal = dice.pick(
                Steer("and this"),
                Extend({"turns": 1, "tool_calls": 1}),
                Extend({"tokens": 500, "retries": 1, "nudges": 1, "usd": 10**6}, 2.0),
                TimeUp(),
                LeaseLost(),
                Cancel("chaos"),
                None,
                Stalled(3.0),
                PauseChildren(dice.pick(True, True, False)),
            )
            signals.append(signal or (Late(*self._hung.pop()) if self._hung else Steer("late")))
        is_cut = isinstance(effect, Ask) and isinstance(value, Reply) and value.finish is Finish.CUT
        if self.is_interrupted or (is_cut and self.clock.now() < cast("Ask", effect).deadline):
            signals.append(Cancel("parent"))  # nothing else cuts a reply before its deadline
        return signals

    def _reply(self) -> Reply:
        dice = self.dice
        calls = tuple(self._call() for _ in range(dice.pick(0, 1, 1, 1, 1, 2, 2, 3, 5)))
        text = dice.pick("done", "done", "", "5", "5", " ", "x" * 5_000, "\ud800 é ```json\n5\n```")
        usage = dice.pick(
            *[Usage(300, 20)] * 9, None, Usage(), Usage(1, 1, 900, 900), Usage(800, 300), Usage(10**9, 10**9)
        )
        usual = Finish.CALLS if calls else Finish.STOP
        finish = dice.pick(*[usual] * 30, Finish.LENGTH, Finish.CONTENT_FILTER, Finish.CUT, Finish.STOP, Finish.CALLS)
        finish = Finish.REFUSAL if finish is Finish.CONTENT_FILTER and dice.pick(True, False) else finish
        return Reply(text, calls, usage, finish)

    def _call(self) -> Call:
        dice = self.dice
        names = [
            "look",
            "write",
            "glance",
            "glance",
            "ask_first",
            "twice",
            "look",
            "nobody",
            "",
            "fetch",
            "read_artifact",
        ]
        name = self._favourite or dice.pick(*names, *(["delegate"] * 6 if self._children else []))
        if name == "read_artifact" or (self._artifacts and dice.once_in(3)):
            part = dice.pick({}, {"offset": 19_990, "length": 50}, {"offset": 10**6}, {"offset": -1})
            newest = self._artifacts[-1:] * 3
            return Call(dice.pick("a", "d"), "read_artifact", {"id": dice.pick(*newest, "x"), **part})
        if name == "delegate" and self._has_background and dice.once_in(4):
            return Call("c", "collect", dice.pick({}, {"seconds": 2.0}, {"runs": ["a"]}))
        if name == "delegate":
            more = {"background": True} if self._has_background and dice.once_in(2) else {}
            return Call(dice.pick("a", "b"), name, {"tasks": [self._task() for _ in range(dice.pick(1, 2, 3))], **more})
        given = dice.pick(*["{}"] * 8, {"n": 3}, "", '{"n": ', '{"n": "many"}', "[" * 5_000, '{"m": 1}')
        return Call(dice.pick("a", "a-1", "a-2", "b", ""), name, given)

    def _task(self) -> dict[str, Any]:
        dice = self.dice
        name = dice.pick(*self._children * 12, "nobody")
        more = dice.pick(*[{}] * 9, {"turns": 2}, {"seconds": 0.5}, {"tools": ["look"]})
        return {"child": name, "goal": dice.pick("Go.", "Go.", "Look."), **more}

    def _failure(self) -> ModelFailure:
        kind = self.dice.pick(*[FailureKind.RETRYABLE] * 5, FailureKind.CONTEXT, FailureKind.FINAL)
        after_s, began = self.dice.pick(None, 0.0, 3.0, 1e6), self.dice.pick(False, False, True)
        return ModelFailure(kind, "Overloaded", "model", "too much to do", after_s, began)

    def outcome(self, call_id: str, name: str) -> Outcome:
        dice, hung = self.dice, self.dice.pick(False, True)
        outcome: Outcome = dice.pick(
            Success(
                call_id=call_id, tool=name, content="4", value=4, changes={dice.pick("k", "l"): dice.pick(1, None)}
            ),
            Success(call_id=call_id, tool=name, content="z" * dice.pick(0, 3_000), ends_run=dice.once_in(8)),
            Failure(call_id=call_id, tool=name, kind="ValueError", error="no"),
            Timeout(call_id=call_id, tool=name, cap_s=1.0, hung=hung),
            Cancelled(call_id=call_id, tool=name, hung=hung),
            Denied(call_id=call_id, tool=name, reason=Reason.OVERLOAD, message="no worker"),
            *self._long_results(call_id, name),
        )
        if outcome.artifact is not None:
            self._artifacts = [*self._artifacts, outcome.artifact.id]
        if isinstance(outcome, Timeout | Cancelled) and outcome.hung:
            self._hung.append((call_id, name))
        return outcome

    def _long_results(self, call_id: str, name: str) -> list[Outcome]:
        """Return results of which the model sees a part. The part may not tell the id of the whole."""
        artifact, whole = Artifact(f"whole of {call_id}", len(WHOLE)), WHOLE
        shown = self.dice.pick("", artifact.id)
        return [
            Success(call_id=call_id, tool=name, content=shown, value=whole, artifact=artifact),
            Failure(call_id=call_id, tool=name, kind="Long", error=shown, whole_error=whole, artifact=artifact),
        ]


class RandomDriver:
    """Drives a run and its child runs, and writes the story of each into the book."""

    def __init__(self, book: Book, comes: bytes, shared_budget: TurnBudget | None) -> None:
        self.book, self._comes = book, comes
        self._dice = Dice(comes[::-1])
        self._shared_budget = shared_budget
        self.runs: dict[str, DrivenRun] = {}
        """Runs that started, by id, parents first."""
        self.unstarted: list[tuple[ChildTask, Result]] = []
        self.postings: list[Posting] = []
        """All changes of shared budgets, in order."""

    def drive_top(self, agent: Agent, plan: Plan, clock: ManualClock) -> Result:
        """Drive the whole tree, and return the result of its top run."""
        recorder = Recorder(plan.header, agent.sinks)
        budgets = ChildBudgets(
            recorder=recorder,
            shared_budget=self._shared_budget,
            tree_budget=self._shared_budget,
            resolve_child=plan.spec.children.resolve,
        )
        run = DrivenRun(agent, plan, None, self._shared_budget)
        for _ in self._drive(run, recorder, budgets, World(Dice(self._comes), plan, clock)):
            self._claim_for_others()
        assert run.result is not None, "the driver of the top run does not crash"
        return run.result

    def _drive(self, run: DrivenRun, recorder: Recorder, budgets: ChildBudgets, world: World) -> Steps:
        plan, story = run.plan, self.book.stories[run.plan.run_id]
        run.plan, run.sinks = replace(plan, state=dict(plan.state)), tuple(recorder.sinks)
        self.runs[plan.run_id] = run
        client = None if run.shared_budget is None else SharedBudgetClient(run.shared_budget)
        player, mark = LoopPlayer(plan, recorder), Fingerprint()
        effect = player.start()
        while effect is not None and len(run.prints) < MAX_EFFECTS:
            run.prints.append(mark.add(effect))
            story.append(effect)
            yield
            world.take_time(effect)
            if isinstance(effect, Act):
                value: Any = yield from self._act(run, effect, budgets, world)
            elif isinstance(effect, Grant) and client is not None and run.shared_budget is not None:
                value = client.apply(effect)
                is_late = value is not None and value.budget == "seconds"
                self.postings.append(Posting(run.shared_budget, plan.run_id, effect, value is None, is_late))
            else:
                value = world.answer(effect)
            world.step_background(self._dice.pick(0, 1, 3, 9))
            signals = [*world.take_ended(), *world.signals(effect, value)]
            answer = Answer(value, world.clock.now(), signals)
            story.append(answer)
            effect = player.send(answer)
        world.close_background()
        assert player.result is not None, "the run does not end"
        if client is not None:
            client.close()
        run.result, run.answers = player.result, player.answers

    def _act(
        self, run: DrivenRun, effect: Act, budgets: ChildBudgets, world: World
    ) -> Generator[None, None, list[Outcome | None]]:
        budgets.uncounted_children = 0
        calls = cast("Sequence[ToolCallRun]", effect.acts)
        for call in calls:
            if isinstance(call, BackgroundCallRun):
                self._start_in_background(run, call, effect.deadline, budgets, world)
        delegated = [call for call in calls if isinstance(call, ChildCallRun) and call.outcome is None]
        for call in delegated:
            call.start(world.clock.now(), effect.deadline)
        yield from self._run_children(run, delegated, budgets, world)
        for call in delegated:
            call.close_finished(world.clock.now())
        outcomes: list[Outcome | None] = []
        for call in calls:
            if not isinstance(call, ChildCallRun) and run.plan.spec.children.specs and self._dice.once_in(4):
                yield from self._delegate_from_tool(run, call, effect.deadline, budgets, world)
            if call.children:
                done = Success(call_id=call.call.id, tool=call.call.name, content="4", children=call.children)
                outcomes.append(done)
            else:
                outcomes.append(call.outcome or world.outcome(call.call.id, call.call.name))
        return outcomes

    def _start_in_background(
        self, run: DrivenRun, call: BackgroundCallRun, deadline: float, budgets: ChildBudgets, world: World
    ) -> None:
        call.start(world.clock.now(), deadline)
        for task in distinct_tasks(call.tasks):
            running: list[tuple[World, Steps]] = []
            self._start_child(run, task, deadline, budgets, world, running, self._dice.once_in(20))
            if running:
                world.background.append((task, *running[0]))
            else:
                world.ended.append(task)
        call.close_started(world.clock.now())

    def _delegate_from_tool(
        self, run: DrivenRun, call: ToolCallRun, deadline: float, budgets: ChildBudgets, world: World
    ) -> Steps:
        """Drive a child run that a tool starts with `ctx.delegate`, if the budgets allow it."""
        call.start(world.clock.now(), deadline)
        try:
            task = budgets.claim_child(call, run.plan.spec.children.specs[0].name, "Go.", "")
        except BudgetExceeded:
            return
        run.has_tool_children = True
        if run.shared_budget is not None:
            self.postings.append(Posting(run.shared_budget, run.plan.run_id, Grant({"children": 1}), True))
        running: list[tuple[World, Steps]] = []
        self._start_child(run, task, call.deadline, budgets, world, running, False)
        for _, steps in running:
            yield from steps
        assert task.own_result is not None, "a child run that was driven has ended"
        budgets.add_result(call, task, task.own_result, world.clock.now())

    def _run_children(
        self, run: DrivenRun, calls: Sequence[ChildCallRun], budgets: ChildBudgets, world: World
    ) -> Steps:
        waiting = [(call, task) for call in calls for task in distinct_tasks(call.tasks)]
        running: list[tuple[World, Steps]] = []
        is_interrupted = False
        while waiting or running:
            while waiting and len(running) < run.plan.spec.children.max_concurrent:
                call, task = waiting.pop(0)
                self._start_child(run, task, call.deadline, budgets, world, running, is_interrupted)
            if running:
                chosen = self._dice.pick(*running)
                try:
                    next(chosen[1])
                    yield
                except StopIteration:
                    running.remove(chosen)
            if self._dice.once_in(60):
                is_interrupted = True
                for child, _ in running:
                    child.is_interrupted = True

    def _start_child(
        self,
        parent: DrivenRun,
        task: ChildTask,
        until: float,
        budgets: ChildBudgets,
        world: World,
        running: list[tuple[World, Steps]],
        is_interrupted: bool,
    ) -> None:
        if is_interrupted:
            self._skip_child(task, budgets, world, End(Stop.CANCELLED, by="parent"))
            return
        try:
            plan, shared_budget = budgets.build_plan(task, world.clock, until)
        except Exception as error:
            self._skip_child(task, budgets, world, End(Stop.FAILED, error=describe_error(error)))
            return
        agent = next(
            child.agent for child in cast("Sequence[Any]", parent.agent.children) if child.agent.name == task.spec.name
        )
        run = DrivenRun(agent, plan, parent, shared_budget, task)
        recorder = budgets.build_recorder(task, plan)
        own_budgets = ChildBudgets(
            recorder=recorder,
            shared_budget=shared_budget,
            tree_budget=budgets.tree_budget,
            resolve_child=plan.spec.children.resolve,
        )
        start = len(self.runs) * 37 % len(self._comes)
        own = World(Dice(self._comes[start:]), plan, ManualClock(wall=plan.started_at), world)
        running.append((own, self._finish_child(task, run, recorder, own_budgets, own)))

    def _skip_child(self, task: ChildTask, budgets: ChildBudgets, world: World, end: End) -> None:
        task.own_result = budgets.build_unstarted_result(task, world.clock.wall(), end)
        self.unstarted.append((task, task.own_result))

    def _finish_child(
        self, task: ChildTask, run: DrivenRun, recorder: Recorder, budgets: ChildBudgets, world: World
    ) -> Steps:
        yield from self._drive(run, recorder, budgets, world)
        task.own_result = run.result

    def _claim_for_others(self) -> None:
        """Let another run claim from the shared budget, between two effects of this tree."""
        shared = self._shared_budget
        if shared is None or not self._dice.once_in(8):
            return
        name, amount = self._dice.pick(("turns", 1), ("tool_calls", 1), ("tokens", 700), ("children", 1))
        is_granted = shared.budgets[name].consume(amount)
        self.postings.append(Posting(shared, "", Grant({name: amount}), is_granted))


def replay(run: DrivenRun) -> tuple[Result, list[int]]:
    """Replay a run from its answers. Return its result and the fingerprints of its effects."""
    plan, prints, mark = replace(run.plan, state=dict(run.plan.state)), list[int](), Fingerprint()
    header = Header(plan.run_id, plan.session_id, plan.started_at, plan.metadata, plan.parent_run_id)
    player = LoopPlayer(plan, Recorder(header, run.sinks))

    def matches(n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        prints.append(mark.add(effect))
        return True

    sent = player.replay(run.answers, matches)
    assert sent == len(run.answers)
    assert player.result is not None, "the answers end before the run does"
    return player.result, prints
