"""What only a process of its own can show: Ctrl-C, an exit while something hangs, and a fork."""

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from threading import Timer

import pytest

LONG = 60.0

BEGINNING = """
    import atexit, os, signal, sys, threading, time, anyio
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever starts us in the background has it ignored
    # Python does not see a signal that comes just before its main thread begins to wait; another one wakes it.
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)
    from flyball import Agent, Limits, tool
    from flyball.testing import ScriptedModel, call, say, together
    @tool
    async def wait():
        print("busy", flush=True)
        await anyio.sleep(60)
    @tool
    def hang():
        print("busy", flush=True)
        threading.Event().wait()
    class Slow(ScriptedModel):
        async def ask(self, request, tell=None, /):
            tell("So far")
            print("busy", flush=True)
            await anyio.sleep(60)
    class Hanging:
        name, provider, price = "hanging", None, None
        def ready(self): return None
        def ask(self, request, tell, /):
            tell("So far")
            print("busy", flush=True)
            threading.Event().wait()
    def show(result):
        kinds = [event.kind for event in result.events]
        pairs = [(kinds.count(kind + "_started"), kinds.count(kind + "_ended")) for kind in ("run", "turn", "tool")]
        closed = all(started == ended for started, ended in pairs) and kinds[-1] == "run_ended"
        print(result.stop.value, result.stopped_by, repr(result.text), closed, flush=True)
    MODELS = {"wait": lambda: ScriptedModel(call("wait")), "hang": lambda: ScriptedModel(call("hang")),
              "model": Slow, "def model": Hanging}
    def agent(doing): return Agent(model=MODELS[doing](), tools=[wait, hang])
"""


@pytest.fixture
def bounded() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are ended with the test, or when a minute is over."""
    processes: list[subprocess.Popen[str]] = []
    deadline = Timer(LONG, lambda: [process.kill() for process in processes])
    deadline.start()
    yield processes
    deadline.cancel()
    for process in processes:
        process.kill()
        process.communicate()


Bounded = list[subprocess.Popen[str]]


def started(bounded: Bounded, program: str) -> subprocess.Popen[str]:
    text = textwrap.dedent(BEGINNING) + textwrap.dedent(program)
    process = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", text],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    bounded.append(process)
    return process


def interrupted(bounded: Bounded, program: str, times: int = 1) -> tuple[list[str], str, int]:
    """Press Ctrl-C whenever the program says that it is busy; what else it says, and how it ends."""
    process, said = started(bounded, program), list[str]()
    assert process.stdout is not None
    for _ in range(times):
        while (line := process.stdout.readline()) != "busy\n":
            assert line, "it ended too soon"
            said.append(line.strip())
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    return said + out.splitlines(), err, process.returncode


def test_ctrl_c_cancels_a_run_and_is_raised_with_its_result(bounded: Bounded) -> None:
    program = """
    for doing in ("wait", "hang", "model", "def model"):
        try: agent(doing).run("go")
        except KeyboardInterrupt as interrupt: show(interrupt.result)
    quiet = Agent(model=ScriptedModel(say("").after(60)))
    for way in ("in the wait for the next event", "in the block"):
        try:
            with quiet.start("go") as run:
                for event in run:
                    if event.kind == "model_requested": print("busy", flush=True)
                    if way == "in the block" and event.kind == "model_requested": time.sleep(60)
        except KeyboardInterrupt as interrupt: show(interrupt.result)
    """
    said, err, code = interrupted(bounded, program, 6)
    assert (err, code) == ("", 0)
    texts = ["''", "''", "'So far'", "'So far'", "''", "''"]
    assert said == [f"cancelled ctrl-c {text} True" for text in texts]


def test_an_uncaught_ctrl_c_ends_the_process_though_a_tool_hangs(bounded: Bounded) -> None:
    program = """agent("hang").run("go")"""
    out, err, code = interrupted(bounded, program)
    if code == -signal.SIGABRT:  # CPython 3.11 may abort while it finalizes beside a daemon thread: once in 200 runs
        out, err, code = interrupted(bounded, program)
    assert (out, err.splitlines()[-1]) == ([], "KeyboardInterrupt"), (code, err)
    assert code == -signal.SIGINT, err


def test_a_second_ctrl_c_stops_waiting_for_a_run_that_does_not_close(bounded: Bounded) -> None:
    program = """
    import flyball.agent.run
    flyball.agent.run._CLOSING_S = 600
    def sink(event):
        if event.kind == "tool_ended":
            os.kill(os.getpid(), signal.SIGINT)  # the second one, while the first is waited for
            threading.Event().wait()             # a sink that must not block, and does
    stuck = Agent(model=ScriptedModel(call("wait")), tools=[wait], sinks=[sink])
    try: stuck.run("go")
    except KeyboardInterrupt as interrupt: print(interrupt.result, flush=True)
    """
    assert interrupted(bounded, program) == (["None"], "", 0)


def test_a_second_ctrl_c_leaves_the_block_of_a_run_that_does_not_close(bounded: Bounded) -> None:
    program = """
    import flyball.agent.run
    flyball.agent.run._CLOSING_S = 600
    def sink(event):
        if event.kind == "tool_ended":
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait()
    stuck = Agent(model=ScriptedModel(call("wait")), tools=[wait], sinks=[sink])
    try:
        with stuck.start("go") as run:
            for event in run: pass
    except KeyboardInterrupt as interrupt: print(interrupt.result, flush=True)
    """
    assert interrupted(bounded, program) == (["None"], "", 0)


def test_ctrl_c_in_an_inner_run_closes_the_outer_run_whose_block_it_leaves(bounded: Bounded) -> None:
    program = """
    try:
        with Agent(model=ScriptedModel(say("").after(60))).start("go") as outer: agent("wait").run("go")
    except KeyboardInterrupt as interrupt: show(interrupt.result)
    show(outer.result())
    """
    said, err, code = interrupted(bounded, program)
    assert (said, err, code) == (["cancelled ctrl-c '' True", "cancelled left '' True"], "", 0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_ctrl_c_closes_a_run_in_the_callers_event_loop(bounded: Bounded, backend: str) -> None:
    program = f"""
    for doing in ("wait", "hang", "model"):
        kinds = []
        busy = Agent(model=MODELS[doing](), tools=[wait, hang], sinks=[lambda event: kinds.append(event.kind)])
        try: anyio.run(busy.arun, "go", backend={backend!r})
        except KeyboardInterrupt: print(kinds[-1], kinds.count("run_ended"), flush=True)
    """
    assert interrupted(bounded, program, 3) == (["run_ended 1"] * 3, "", 0)


def test_tools_and_models_that_hang_do_not_keep_a_process_from_exiting(bounded: Bounded) -> None:
    program = """
    hang = tool(name="hang", timeout=0.05)(lambda: threading.Event().wait())
    result = Agent(model=ScriptedModel(call("hang"), say("done")), tools=[hang]).run("go")
    print(result.stop.value, result.hung, flush=True)
    started = agent("def model").start("go")
    """
    process = started(bounded, program)
    out, err = process.communicate(timeout=LONG)
    assert (out.replace("busy\n", ""), err, process.returncode) == ("completed 1\n", "", 0)


def test_a_forked_process_runs_agents_and_refuses_the_handles_of_its_parent(bounded: Bounded) -> None:
    program = """
    import warnings
    from flyball import ConfigError
    warnings.simplefilter("ignore", DeprecationWarning)  # that forking with threads is dangerous is the point
    @tool
    def add(a: int, b: int): return a + b
    adding = Agent(model=ScriptedModel(call("add", a=1, b=2), say("3")), tools=[add])
    assert adding.run("go").text == "3"
    under_way = agent("wait").start("go")
    for event in under_way:
        if event.kind == "tool_started": break
    child = os.fork()
    if child == 0:
        for wrong in (under_way.result, under_way.cancel, lambda: under_way.steer("x"), lambda: list(under_way)):
            try: wrong()
            except ConfigError: pass
            else: os._exit(1)
        fine = [adding.run("go").text for _ in range(3)] == ["3"] * 3 and adding.start("go").result(60).completed
        os._exit(0 if fine else 2)
    print("child", os.waitpid(child, 0)[1], flush=True)
    print(under_way.ended, under_way.cancel("parent"), under_way.result(60).stopped_by, flush=True)
    """
    process = started(bounded, program)
    out, err = process.communicate(timeout=LONG)
    assert (out.replace("busy\n", ""), err) == ("child 0\nFalse True parent\n", "")


def test_a_process_that_a_tool_forked_runs_agents(bounded: Bounded) -> None:
    program = """
    import warnings
    warnings.simplefilter("ignore", DeprecationWarning)
    inner = Agent(model=ScriptedModel(say("inner")))
    @tool
    def fork() -> int:
        child = os.fork()
        if child == 0: os._exit(0 if inner.run("go").text == "inner" else 1)
        return os.waitpid(child, 0)[1]
    outer = Agent(model=ScriptedModel(call("fork"), say("done")), tools=[fork])
    print(outer.run("go").tool_results[0].text)
    """
    out, err = started(bounded, program).communicate(timeout=LONG)
    assert (out, err) == ("0\n", "")
