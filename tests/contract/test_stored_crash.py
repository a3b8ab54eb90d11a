"""A run whose process dies at any commit: what was kept is whole, and it goes on from there."""

from collections import Counter
from itertools import pairwise
from types import TracebackType
from typing import Any

import anyio
import pytest

from flyball import Agent, Child, Limits, Result, tool
from flyball.errors import StoreError
from flyball.message import Role, check_pairs
from flyball.outcome import Failure
from flyball.request import Request
from flyball.runtime.lease import SessionLease
from flyball.store import Guard, MemoryStore, Step, Store
from flyball.store.memory import MemoryLease
from flyball.testing import Line, ScriptedModel, assert_honest, call, say, together
from flyball.tools import ToolContext

MARKS: Counter[str] = Counter()


class Mortal:
    """A store that is there until it has kept so much; then it is gone, before or after its last commit.

    What it has then is what a process leaves that dies there.
    """

    def __init__(self, store: MemoryStore, at: int, after: bool) -> None:
        self._store, self._at, self._after = store, at, after
        self.transcript, self.journal, self.lease = store.transcript, store.journal, store.lease
        self.state, self.runs = store.state, store.runs
        self.commits = 0

    def keep(self, step: Step) -> None:
        self.commits += 1
        if self.commits < self._at or (self.commits == self._at and self._after):
            self._store.keep(step)
        if self.commits >= self._at:
            raise StoreError("store", "it is gone")

    def prune(self, before: float) -> Any:
        return self._store.prune(before)

    def close(self) -> None:
        """It lives on."""

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """It lives on."""


class Placed(ScriptedModel):
    """Says the line that the conversation has come to: another process goes on with the script, too."""

    def take_line(self, request: Request) -> tuple[Line, int]:
        self.requests.append(request)
        said = [message.role is Role.ASSISTANT and message.run == request.run_id for message in request.messages]
        place = sum(now and not before for before, now in pairwise([False, *said]))
        return self.lines[place], place


@tool(effects="read", poll=True)
def look(n: int) -> str:
    """Look."""
    return f"seen {n}"


@tool
def mark(name: str, ctx: ToolContext) -> str:
    """Leave a mark that must not be left twice."""
    MARKS[name] += 1
    ctx.state[name] = MARKS[name]
    return f"marked {name}"


@tool(idempotent=True)
def put(name: str, ctx: ToolContext) -> str:
    """Leave a mark that may be left again."""
    MARKS[f"{name} {ctx.idempotency_key}"] = 1
    return f"put {name}"


def agent(store: Store | None, model: ScriptedModel, kid: ScriptedModel, mode: Any) -> Agent:
    below = Agent(model=kid, name="kid", tools=[mark, look], max_output_tokens=100)
    return Agent(
        model=model,
        tools=[look, mark, put],
        children=[Child(below, mode)],
        store=store,
        limits=Limits(turns=20, tokens=100_000),
        max_output_tokens=100,
        settings={},
    )


def models() -> tuple[ScriptedModel, ScriptedModel]:
    tasks = [{"child": "kid", "goal": "Mark."}, {"child": "kid", "goal": "Look."}]
    top = Placed(
        call("mark", name="a"),
        together(call("look", n=1), call("look", n=2), call("look", n=3)),
        call("delegate", tasks=tasks),
        call("put", name="b"),
        call("mark", name="c"),
        say("Done."),
    )
    return top, Placed(call("mark", name="kid"), call("look", n=4), say("Kid done."))


def left_alone(mode: Any) -> tuple[Result, int]:
    """What comes of it when nothing happens, and how many commits that takes."""
    MARKS.clear()
    store = Mortal(MemoryStore(), 10_000, True)
    return agent(store, *models(), mode).run("go", run_id="r", session="talk"), store.commits


def killed(mode: Any, at: int, after: bool) -> tuple[MemoryStore, Result]:
    """The same when the process dies at a commit, and another goes on. How many there are is a matter of threads."""
    MARKS.clear()
    store, both = MemoryStore(), models()
    first = agent(Mortal(store, at, after), *both, mode).run("go", run_id="r", session="talk")
    holder = store.lease.holder("talk")
    if holder is not None:  # as if its process were dead; this one is not
        store.lease.release(Guard("talk", holder.fence))
    anew = agent(store, *both, mode)
    entry = store.runs.get("r")
    if entry is None:
        return store, anew.run("go", run_id="r", session="talk")
    return store, first if entry.finish is not None else anew.resume("r")


PLACES = {"independent": range(1, 30, 5), "carved": range(1, 30, 4), "shared": range(1, 42, 4)}
"""How many commits there are is a matter of threads, too; a run that had ended by then is looked at as it is."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("mode", PLACES)
def test_a_run_that_dies_at_any_commit_resumes_from_it(mode: str, after: bool) -> None:
    whole, _ = left_alone(mode)
    for at in PLACES[mode]:
        try:
            check(whole, *killed(mode, at, after))
        except AssertionError as error:
            error.add_note(f"the process died at commit {at}")
            raise


def check(whole: Result, store: MemoryStore, result: Result) -> None:
    """Hold a run that was killed and resumed to the same run that was left alone."""
    assert (result.stop, result.text, result.turns) == ("completed", "Done.", whole.turns)
    assert [one.call_id for one in result.tool_results] == [one.call_id for one in whole.tool_results]
    unknown = {one.tool for one in result.tool_results if isinstance(one, Failure) and one.kind == "Interrupted"}
    below = [one for child in result.children for one in child.tool_results if isinstance(one, Failure)]
    assert len(unknown) <= 1
    assert not (unknown and below)
    once = [MARKS["a"], MARKS["c"]]
    assert set(once) <= {1} | ({0} if "mark" in unknown else set())
    assert 2 - len(below) <= MARKS["kid"] <= 2
    assert "put" not in unknown
    assert check_pairs(result.messages) == []
    kept = store.transcript.read("talk")
    assert kept == list(result.messages)
    assert len({(message.run, message.n) for message in kept}) == len(kept)
    assert store.lease.holder("talk") is None
    for name in ("turns", "tool_calls", "children"):
        assert result.budgets[name].used == whole.budgets[name].used, name
    events = store.runs.events("r")
    assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})
    assert [event["event"] for event in events].count("run_ended") == 1
    assert_honest(result)


def test_a_call_that_is_made_again_after_a_crash_has_its_timeout() -> None:
    @tool(idempotent=True, timeout=0.3)
    async def slow() -> None:
        """Take too long."""
        await anyio.sleep(60)

    store, model = MemoryStore(), Placed(call("slow"), say("Done."))
    Agent(model=model, tools=[slow], store=Mortal(store, 2, True)).run("go", run_id="r")
    result = Agent(model=model, tools=[slow], store=store).resume("r")
    assert (result.stop, [one.status for one in result.tool_results]) == ("completed", ["timed_out"])


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_report_that_was_awaited_at_a_crash_is_asked_for_again(deaths: int) -> None:
    def stubborn(store: Store) -> Agent:
        model = ScriptedModel.looping(call("look", n=1), grace=say("Reported."))
        return Agent(model=model, tools=[look], limits=Limits(turns=1), store=store, max_output_tokens=50)

    store = MemoryStore()
    stubborn(Mortal(store, 3, True)).run("go", run_id="r")  # the report is the third commit
    for _ in range(deaths - 1):
        stubborn(Mortal(store, 1, True)).resume("r")
    result = assert_honest(stubborn(store).resume("r"))
    assert (result.stop, result.text, result.budgets["retries"].used) == ("budget", "Reported.", 0)
    assert result.requests == 2 + deaths
    assert store.transcript.read("r") == list(result.messages)


def test_a_lease_that_this_process_could_not_release_is_taken_over() -> None:
    class Gone(MemoryLease):
        def release(self, guard: Guard) -> bool:
            raise StoreError("store", "it is gone")

    store = MemoryStore()
    good, store.lease = store.lease, Gone(store.tables)
    agent_ = Agent(model=Placed(say("x")), store=store)
    agent_.run("go", session="talk")
    tenure = SessionLease(store, "talk", 300)
    assert tenure.acquire() is None
    tenure.release()  # which it cannot
    assert store.lease.holder("talk") is not None
    store.lease = good
    assert agent_.run("go", session="talk").stop == "completed"
