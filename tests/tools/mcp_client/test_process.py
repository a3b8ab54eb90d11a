"""Servers that are processes of ours: whatever they do, and however a run ends, none of them is left."""

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result
from flyball.errors import SourceError
from flyball.testing import ScriptedModel, call, say, together, until
from flyball.tools import Tool, mcp

LONG = 60.0
Door = Callable[[Agent], Result]


def adding() -> ScriptedModel:
    return ScriptedModel(call("add", a=1, b=2), say("It is 3."))


def failure(result: Result) -> str:
    assert (result.stop, result.requests) == ("failed", 0)
    assert result.error is not None
    assert (result.error["code"], result.error["kind"]) == ("source_failed", "SourceError")
    return result.error["message"]


@pytest.fixture(scope="module")
def waited(plain: list[str], all_pids: Any) -> dict[str, Result]:
    """Runs that must wait, side by side: for servers that do not answer or hear, and for a call until the deadline."""
    agents = {
        behaviour: Agent(
            model=ScriptedModel(call("hang"), say("Not done.")),
            tools=[mcp([*plain, behaviour], env=all_pids.env, connect_timeout=1.5, name="the server")],
            limits=Limits() if behaviour else Limits(seconds=2),
        )
        for behaviour in ("silent", "nonsense", "deaf", "")
    }
    runs = {behaviour: agent.start("go") for behaviour, agent in agents.items()}
    return {behaviour: run.result(LONG) for behaviour, run in runs.items()}


class TestAServerThatWorks:
    def test_is_started_with_the_run_and_stopped_with_it(self, plain: list[str], pids: Any, run: Door) -> None:
        result = run(Agent(model=adding(), tools=[mcp(plain, env=pids.env)]))
        assert (result.stop, [outcome.text for outcome in result.tool_results]) == ("completed", ["3"])
        pids.assert_gone()

    def test_each_of_two_runs_at_once_has_its_own_server(
        self, plain: list[str], pids: Any, run: Door, door: str
    ) -> None:
        model = ScriptedModel.looping(together(call("pid"), call("pid")), grace=say("done"))
        agent = Agent(model=model, tools=[mcp(plain, env=pids.env)], limits=Limits(turns=1))
        if door == "sync":
            results = [handle.result(LONG) for handle in [agent.start("go"), agent.start("go")]]
        else:
            results = self.both(agent, door)
        told = [{outcome.text for outcome in result.tool_results} for result in results]
        assert [len(one) for one in told] == [1, 1]
        assert told[0] | told[1] == {str(pid) for pid in pids.all}
        pids.assert_gone(2)

    def both(self, agent: Agent, backend: str) -> list[Result]:
        results: list[Result] = []

        async def one() -> None:
            results.append(await agent.arun("go"))

        async def both() -> None:
            with anyio.fail_after(LONG):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(one)
                    tasks.start_soon(one)

        anyio.run(both, backend=backend)
        return results

    def test_can_be_a_text_that_is_split_as_a_shell_would(self, plain: list[str]) -> None:
        assert Agent(model=adding(), tools=[mcp(shlex.join(plain))]).run("go").stop == "completed"

    def test_has_names_that_providers_understand(self, plain: list[str]) -> None:
        model = ScriptedModel(say("nothing"))
        Agent(model=model, tools=[mcp(plain, prefix="p.", only=["odd.name/it has"])]).run("go")
        model.assert_offered("p_odd_name_it_has")


class TestAServerThatDies:
    def test_in_a_call_is_a_failed_outcome_and_the_run_goes_on(self, plain: list[str], pids: Any, run: Door) -> None:
        model = ScriptedModel(call("die"), call("add", a=1, b=2), say("It died."))
        result = run(Agent(model=model, tools=[mcp(plain, env=pids.env, name="the server")]))
        assert (result.stop, result.text) == ("completed", "It died.")
        assert [outcome.status for outcome in result.tool_results] == ["failed"] * 2
        for outcome in result.tool_results:
            assert outcome.text.startswith("SourceError: the server: ")
            assert "SIGKILL" in outcome.text
        pids.assert_gone()

    def test_between_calls_is_a_failed_outcome_too(self, plain: list[str], pids: Any) -> None:
        def kill() -> str:
            """Kill the server."""
            os.kill(pids.all[0], signal.SIGKILL)
            return "killed"

        model = ScriptedModel(call("kill"), call("add", a=1, b=2), say("It died."))
        result = Agent(model=model, tools=[kill, mcp(plain, env=pids.env)]).run("go")
        assert [outcome.status for outcome in result.tool_results] == ["done", "failed"]

    def test_at_once_fails_the_run_with_its_words(
        self, plain: list[str], pids: Any, run: Door, snapshot: Callable[..., None]
    ) -> None:
        source = mcp([*plain, "dies"], env=pids.env, name="the server")
        said = failure(run(Agent(model=adding(), tools=[source])))
        assert "exit code 1" in said
        assert said.endswith(": no such database")
        snapshot(said)
        pids.assert_gone()


def test_a_server_that_hears_nothing_more_is_a_failed_outcome(waited: dict[str, Result]) -> None:
    outcome = waited["deaf"].tool_results[0]
    assert outcome.status == "failed"
    assert outcome.text.startswith("SourceError: the server: ")
    assert waited["deaf"].stop == "completed"


class TestAServerThatCannotBeHad:
    def test_a_server_without_a_program_fails_the_run(self, run: Door) -> None:
        said = failure(run(Agent(model=adding(), tools=[mcp("no-such-program --port 1")])))
        assert said.startswith("MCP server 'no-such-program --port 1': ")

    def test_a_server_that_is_silent_fails_the_run(self, waited: dict[str, Result]) -> None:
        assert "1.5" in failure(waited["silent"])

    def test_a_server_that_speaks_nonsense_fails_the_run(self, waited: dict[str, Result]) -> None:
        assert "Hello, I am a web server." in failure(waited["nonsense"])

    def test_servers_that_fail_their_runs_leave_no_process(self, waited: dict[str, Result], all_pids: Any) -> None:
        all_pids.assert_gone(len(waited))

    def test_a_server_without_a_wanted_tool_fails_the_run(self, plain: list[str], pids: Any) -> None:
        source = mcp(plain, env=pids.env, only=["ad"], name="the server")
        said = failure(Agent(model=adding(), tools=[source]).run("go"))
        assert "'ad'" in said
        assert said.endswith(": add")
        pids.assert_gone()

    def test_beside_one_that_can_stops_both(self, plain: list[str], pids: Any) -> None:
        sources = [mcp(plain, env=pids.env, prefix="a_"), mcp([*plain, "dies"], env=pids.env)]
        assert "no such database" in failure(Agent(model=adding(), tools=sources).run("go"))
        pids.assert_gone(None)


class TestARunThatIsCutShort:
    def test_a_cancelled_run_stops_its_server(self, plain: list[str], pids: Any) -> None:
        agent = Agent(model=ScriptedModel(call("hang"), say("x")), tools=[mcp(plain, env=pids.env)])
        with agent.start("go") as run:
            for event in run:
                if event.kind == "tool_started":
                    assert run.cancel()
            result = run.result(LONG)
        assert (result.stop, result.tool_results[0].status) == ("cancelled", "cancelled")
        pids.assert_gone()

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    @pytest.mark.parametrize("behaviour", ["", "silent"])
    def test_a_run_whose_task_is_cancelled_stops_its_server(
        self, plain: list[str], pids: Any, backend: str, behaviour: str
    ) -> None:
        source = mcp([*plain, behaviour], env=pids.env)
        agent = Agent(model=ScriptedModel(call("hang"), say("x")), tools=[source])

        async def cancelled() -> None:
            with anyio.fail_after(LONG):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(agent.arun, "go")
                    while not pids.all:
                        await anyio.sleep(0.001)
                    tasks.cancel_scope.cancel()

        anyio.run(cancelled, backend=backend)
        pids.assert_gone()

    def test_a_run_whose_call_hangs_until_the_deadline_reports(self, waited: dict[str, Result]) -> None:
        result = waited[""]
        assert (result.stop, result.tool_results[0].status, result.text) == ("deadline", "timed_out", "Not done.")

    def test_a_run_ended_by_ctrl_c_stops_its_server(self, plain: list[str], pids: Any) -> None:
        program = (
            "import signal\n"
            "from flyball import Agent\n"
            "from flyball.testing import ScriptedModel, call, say\n"
            "from flyball.tools import mcp\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what is started in the background\n"
            f"source = mcp({plain!r}, env={pids.env!r})\n"
            "agent = Agent(model=ScriptedModel(call('hang'), say('x')), tools=[source],\n"
            "              sinks=[lambda event: event.kind == 'tool_started' and print('started', flush=True)])\n"
            "try:\n"
            "    agent.run('go')\n"
            "except KeyboardInterrupt as interrupt:\n"
            "    print(interrupt.result.stop)\n"
        )
        command = [sys.executable, "-c", program]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            process.send_signal(signal.SIGINT)
            told = process.communicate(timeout=LONG)
        assert told == ("cancelled\n", "")
        pids.assert_gone()


class TestAServerThatWillNotGo:
    def test_is_killed_through_every_door(self, plain: list[str], pids: Any) -> None:
        """Side by side, because each takes two seconds."""
        source = mcp([*plain, "stubborn"], env=pids.env)
        stops: list[str] = []

        def run(door: str) -> None:
            agent = Agent(model=adding(), tools=[source])
            result = agent.run("go") if door == "sync" else anyio.run(agent.arun, "go", backend=door)
            stops.append(result.stop)

        threads = [threading.Thread(target=run, args=(door,)) for door in ("sync", "asyncio", "trio")]
        for thread in threads:
            thread.start()
        agent = Agent(model=adding(), tools=[mcp([*plain, "parent"], env=pids.env)])
        stops.append(agent.run("go").stop)
        for thread in threads:
            thread.join(LONG)
        assert stops == ["completed"] * 4
        until(lambda: not pids.left)  # the child was killed, but nobody of us waits for it
        pids.assert_gone(5)

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
    def test_its_child_in_a_session_of_its_own_is_killed(self, plain: list[str], pids: Any, run: Door) -> None:
        assert run(Agent(model=adding(), tools=[mcp([*plain, "daemon"], env=pids.env)])).stop == "completed"
        pids.assert_gone(2)

    def test_it_is_killed_with_its_child_when_this_process_is_killed(self, plain: list[str], pids: Any) -> None:
        program = (
            "from flyball import Agent\n"
            "from flyball.testing import ScriptedModel, call, say\n"
            "from flyball.tools import mcp\n"
            f"source = mcp({[*plain, 'daemon']!r}, env={pids.env!r})\n"
            "Agent(model=ScriptedModel(call('hang'), say('x')), tools=[source],\n"
            "      sinks=[lambda event: event.kind == 'tool_started' and print('started', flush=True)]).run('go')\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            process.kill()
        until(lambda: not pids.left)
        pids.assert_gone(2)


class TestAServerWithRudeTexts:
    @pytest.mark.parametrize("name", ["fail", "refuse"])
    def test_an_error_is_shown_shortened_and_without_control_characters(self, plain: list[str], name: str) -> None:
        model = ScriptedModel(call(name), say("It failed."))
        result = Agent(model=model, tools=[mcp([*plain, "rude"])]).run("go")
        [outcome] = result.tool_results
        assert (outcome.status, len(outcome.text) <= 12_100) == ("failed", True)
        assert [char for char in outcome.text if char in "\x1b\x9b\u202e"] == []

    def test_a_long_description_is_cut(self, plain: list[str]) -> None:
        model = ScriptedModel(say("ok"))
        Agent(model=model, tools=[mcp([*plain, "rude"])]).run("go")
        assert max(len(tool["description"]) for tool in model.requests[0].tools) <= 10_001

    def test_its_last_output_has_no_control_characters(self, plain: list[str]) -> None:
        source = mcp([sys.executable, "-c", "import sys; sys.exit('y' * 100_000 + chr(27) + '[2J')"])
        said = failure(Agent(model=adding(), tools=[source]).run("go"))
        assert ("\x1b" in said, len(said) < 3_000) == (False, True)


class TestAnOpenSource:
    @pytest.mark.anyio
    async def test_an_open_source_that_breaks_is_told_as_such(self, plain: list[str]) -> None:
        async with mcp(plain, name="the server").open() as tools:
            die: Tool = next(tool for tool in tools if tool.name == "die")
            with pytest.raises(SourceError, match=r"the server: .*SIGKILL"):
                await die()


def test_a_server_does_not_speak_to_the_terminal(plain: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert "no such database" in failure(Agent(model=adding(), tools=[mcp([*plain, "dies"])]).run("go"))
    assert capfd.readouterr() == ("", "")
