"""The program that crash tests kill: an agent with a store, whose tools leave marks, and a nursery that forks it.

`python program.py` imports once and then forks a process for each line of its input, as starting an interpreter anew
for every kill would take longer than all the rest.
"""

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from flyball import Agent, Limits, Result, tool
from flyball.errors import CallClosed, ConfigError
from flyball.person import Question
from flyball.request import Reply, Request
from flyball.store import Entry, Step, open_store
from flyball.testing import Line, ScriptedModel, call, say, together
from flyball.tools import ToolContext

LONG = 60.0
HELP = call("delegate", tasks=[{"child": "helper", "goal": "Mark it."}])
HELP_TWICE = call("delegate", tasks=[{"child": "helper", "goal": "One."}, {"child": "helper", "goal": "Two."}])
SCRIPT = (
    call("mark", text="a"),
    together(call("note", text="b"), call("put", text="c"), call("note", text="d")),
    together(call("remember", text="e"), call("put", text="f")),
    HELP,
    call("erase", text="g"),
    together(HELP_TWICE, call("mark", text="h")),
    say("Done."),
)
CHILDS_SCRIPT = (together(call("note", text="i"), call("put", text="j")), call("mark", text="k"), say("Marked."))


def allow(question: Question) -> bool:
    """A person who has no objections."""
    return True


class Doomed:
    """A store that kills its own process at a chosen commit: before it, or right after it."""

    def __init__(self, store: Any, at: int, after: bool) -> None:
        self._store = store
        self._at = at
        self._after = after
        self._kept = 0
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def keep(self, step: Step) -> None:
        with self._lock:  # else another thread could commit between the count and the kill
            self._die_at(False)
            self._store.keep(step)
            self._die_at(True)
            self._kept += 1

    def keep_all(self, steps: Sequence[Step]) -> list[Exception | None]:
        """Keep each step in a commit of its own, so that a kill can come at every one."""
        for step in steps:
            self.keep(step)
        return [None] * len(steps)

    def keep_now(self, steps: Sequence[Step]) -> Sequence[Exception | None] | None:
        if len(steps) > 1:
            return self.keep_all(steps)
        with self._lock:
            self._die_at(False)
            errors = self._store.keep_now(steps)
            if errors == [None]:
                self._die_at(True)
                self._kept += 1
            return errors

    def _die_at(self, after: bool) -> None:
        if self._kept == self._at and after is self._after:
            os.kill(os.getpid(), signal.SIGKILL)


class Place:
    """The folder of one life: the file of the store, and the marks that tools leave."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.address = f"sqlite:///{self.folder / 'runs.db'}"

    def mark(self, name: str, *words: str) -> None:
        """Write one line, whole or not at all."""
        file = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, (" ".join(words) + "\n").encode())
        os.close(file)

    def wait_for(self, wanted: str) -> None:
        """Wait until a line is marked, or so many: `name word` or `name 3`; not for ever."""
        name, _, word = wanted.partition(" ")
        until = time.monotonic() + LONG
        while time.monotonic() < until:
            found = (self.folder / name).read_text().split("\n") if (self.folder / name).exists() else []
            if len(found) - 1 >= int(word) if word.isdigit() else any(line.split()[:1] == [word] for line in found):
                return
            time.sleep(0.005)
        raise TimeoutError(wanted)


class Slow(ScriptedModel):
    """Says its script, and marks each request."""

    def __init__(self, place: Place, pause_s: float, *lines: Line) -> None:
        super().__init__(*[line.after(pause_s) for line in lines])
        self._place = place

    async def ask(self, request: Request, tell: object = None, /) -> Reply:
        self._place.mark("requests", request.run_id)
        return await super().ask(request, tell)


def tools_of(place: Place, pause_s: float) -> list[Any]:
    """Tools whose effect can be counted afterwards."""

    def leave_a_mark(text: str, ctx: ToolContext) -> str:
        time.sleep(pause_s)
        place.mark("marks", ctx.idempotency_key, text)
        time.sleep(pause_s)
        return f"marked {text}"

    mark = tool(name="mark")(leave_a_mark)
    note = tool(name="note", effects="read")(leave_a_mark)  # so that several of them go side by side

    @tool(idempotent=True, effects="read")
    async def put(text: str, ctx: ToolContext) -> str:
        place.mark("puts", ctx.idempotency_key, text)
        return f"put {text}"

    @tool
    def remember(text: str, ctx: ToolContext) -> str:
        ctx.state["remembered"] = text
        return f"remembered {text}"

    @tool(approve=True)
    def erase(text: str, ctx: ToolContext) -> str:
        place.mark("marks", ctx.idempotency_key, text)
        return f"erased {text}"

    return [mark, note, put, remember, erase]


def agent_of(place: Place, store: Any, pause_s: float = 0.0, **options: Any) -> Agent:
    """The agent that is killed."""
    tools = tools_of(place, pause_s)
    helper = Agent(
        name="helper",
        model=Slow(place, pause_s, *CHILDS_SCRIPT),
        tools=tools[:3],
        max_output_tokens=500,  # a request that was interrupted is booked with all that it may have said
        settings={},
    )
    return Agent(
        name="clerk",
        model=Slow(place, pause_s, *SCRIPT),
        tools=tools,
        children=[helper],
        limits=Limits(turns=20, tool_calls=50, tokens=200_000),
        max_output_tokens=500,
        settings={},
        store=store,
        **options,
    )


def live(
    folder: str, pause_s: float = 0.0, kill_at: int = -1, after: bool = False, asked: bool = False
) -> Result | None:
    """Begin the run, or go on with it where it was left, until it has its end; nothing of one that has.

    A person is there and is `asked`, or the run pauses until it is taken up again with the answer.
    """
    place = Place(folder)
    with open_store(place.address) as store:
        agent = agent_of(place, Doomed(store, kill_at, after), pause_s, approver=allow if asked else None)
        try:
            result = _begun(agent, store.runs.get("run"))
            while result is not None and result.stop == "paused":
                result = agent.resume("run", {question.id: True for question in result.questions})
            return result
        except ConfigError:  # another process has answered, or brought it to its end, meanwhile
            return None


def _begun(agent: Agent, entry: Entry | None) -> Result | None:
    if entry is None:
        return agent.run("Do it.", run_id="run", session="desk", state={"begun": True})
    if entry.finish is None:
        return agent.resume("run")
    return agent.resume("run", _answers(entry.finish.record)) if entry.finish.stop == "paused" else None


def _answers(record: Any) -> dict[str, bool]:
    return {row["id"]: True for row in record["questions"]}


def talk(
    folder: str, name: str, waits_for: str = "", lease_seconds: float = 300.0, wait_seconds: float = 0.0
) -> Result:
    """One run of several on one session. Its tool holds on until there are as many marks as it waits for."""
    place = Place(folder)

    @tool(timeout=None)
    def grip(ctx: ToolContext) -> str:
        place.mark("begun", name)
        if waits_for:
            place.wait_for(waits_for)
        try:
            ctx.commit()
            place.mark("ended", name)
        except CallClosed as error:
            place.mark("refused", name, str(error))
        return "held"

    with open_store(place.address) as store:
        script = Slow(place, 0.0, call("grip"), say(f"{name} is done."))
        agent = Agent(model=script, tools=[grip], settings={}, store=store, lease_seconds=lease_seconds)
        result = agent.run(f"Go, {name}.", run_id=name, session="desk", wait_seconds=wait_seconds)
        place.mark(result.stop.value, name)
        if result.hung:
            place.wait_for(f"refused {name}")
        return result


def batch(folder: str) -> Result:
    """Calls side by side, one of which does not end before somebody says so."""
    place = Place(folder)

    @tool(effects="read")
    def quick(ctx: ToolContext) -> str:
        place.mark("marks", ctx.idempotency_key)
        return "quick"

    @tool(effects="read", idempotent=True, timeout=None)
    def slow(ctx: ToolContext) -> str:
        place.mark("puts", ctx.idempotency_key)
        place.wait_for("go 1")
        return "slow"

    with open_store(place.address) as store:
        script = ScriptedModel(together(call("quick"), call("slow")), say("Done."))
        agent = Agent(model=script, tools=[quick, slow], settings={}, store=store)
        known = store.runs.get("run") is not None
        return agent.resume("run") if known else agent.run("Go.", run_id="run", session="desk")


def stretch(folder: str, kill_at: int = -1, after: bool = False) -> Result | None:
    """A run that meets its limit of turns and is given more; nothing of one that has completed."""
    place = Place(folder)
    with open_store(place.address) as store:
        lines = [call("mark", text=text) for text in "abcd"]
        script = ScriptedModel(*lines, say("Done."), grace=say("I report."))
        tools = tools_of(place, 0.0)[:1]
        doomed: Any = Doomed(store, kill_at, after)
        agent = Agent(model=script, tools=tools, limits=Limits(turns=2), settings={}, store=doomed)
        entry = store.runs.get("run")
        result = agent.run("Go.", run_id="run", session="desk") if entry is None else None
        if entry is not None and entry.finish is None:
            result = agent.resume("run")
        stop = result.stop.value if result is not None else entry and entry.finish and entry.finish.stop
        return agent.resume("run", extend={"turns": 5}) if stop == "budget" else result


def background(
    folder: str, kill_at: int = -1, after: bool = False, held: bool = False, collects: bool = True
) -> Result | None:
    """A run with two child runs in the background; nothing of one that has completed.

    If `held`, a tool of the child runs waits until a test lets it go on. The model collects the results, or gives an
    answer too early, so that the run waits for them.
    """
    place = Place(folder)

    @tool(timeout=None)
    def grip(text: str, ctx: ToolContext) -> str:
        place.mark("marks", ctx.idempotency_key, text)
        if held:
            place.wait_for("go 1")
        return f"gripped {text}"

    with open_store(place.address) as store:
        doomed: Any = Doomed(store, kill_at, after)
        tasks = [{"child": "helper", "goal": "One."}, {"child": "helper", "goal": "Two."}]
        put, mark = (one for name in ("put", "mark") for one in tools_of(place, 0.0) if one.name == name)
        helper = Agent(
            name="helper",
            model=Slow(place, 0.0, call("put", text="i"), call("grip", text="j"), say("Marked.")),
            tools=[put, grip],
            max_output_tokens=500,
            settings={},
        )
        wait = call("collect") if collects else say("I wait.")
        lines = [call("delegate", tasks=tasks, background=True), call("mark", text="a"), wait, say("Done.")]
        agent = Agent(
            name="clerk",
            model=Slow(place, 0.0, *lines),
            tools=[mark],
            children=[helper],
            background_children=True,
            limits=Limits(turns=20, tool_calls=50, tokens=200_000),
            max_output_tokens=500,
            settings={},
            store=doomed,
        )
        entry = store.runs.get("run")
        if entry is None:
            return agent.run("Do it.", run_id="run", session="desk")
        return agent.resume("run") if entry.finish is None else None


WORK: dict[str, Callable[..., Result | None]] = {
    "live": live,
    "talk": talk,
    "batch": batch,
    "stretch": stretch,
    "background": background,
}


def tell(value: object) -> None:
    """Say something to whoever started us."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def born(order: Sequence[Any]) -> None:
    """Do one piece of work in a process of its own, and say what came of it."""
    folder, name, work, options = order
    said = os.open(Path(folder) / f"{name}.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    try:
        result = WORK[work](folder, **options)
        tell(None if result is None else result.to_dict())
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def nurse() -> None:
    """Fork a process for each order; tell how it ended when that is asked."""
    agent_of(Place("."), "memory:")  # all that is imported late is imported now
    tell("ready")
    for line in sys.stdin:
        order = json.loads(line)
        if isinstance(order, int):
            tell(os.waitstatus_to_exitcode(os.waitpid(order, 0)[1]))
            continue
        pid = os.fork()
        if pid == 0:
            born(order)
        tell(pid)


if __name__ == "__main__":
    nurse()
