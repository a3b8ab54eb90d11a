"""Time limits of governed programs: a report in time, and the end of programs that do not end."""

import json
import sys
import time
from pathlib import Path

import pytest

from flyball import Limits
from flyball.gateway.execution import execute
from flyball.gateway.gateway_options import GatewayOptions
from flyball.models.scripted import Line
from flyball.testing import call, say
from flyball.testing.server import LoopingProvider, ModelServer, sent

from .conftest import Run, environment_for

REPORT = "The report: the task is not finished."


SLOW = [("loop", call("add", a=1)), ("stream", say("", call("add", a=1)).streaming(*"It drips and drips."))]


@pytest.mark.parametrize(("mode", "line"), SLOW, ids=["whole", "dripping"])
def test_slow_replies_leave_time_for_a_report(run: Run, mode: str, line: Line) -> None:
    with LoopingProvider(line.after(0.6), report=say("").streaming(*REPORT).after(0.6)) as provider:
        ran = run(provider, "plain_agent.py", mode, limits=Limits(turns=100, seconds=6))
    assert (ran.code, ran.stop) == (0, "deadline")
    [answer] = json.loads(ran.output)["answers"]
    # On a busy machine the report can come too late, and is written without the model then.
    assert answer == REPORT or answer.startswith("Stopped by flyball: Maximum seconds (6 s) reached.")
    assert provider.last_requests == 1 or answer != REPORT
    assert ran.execution.result.seconds < 6.5


def test_a_request_that_hangs_becomes_the_last_one(run: Run) -> None:
    with LoopingProvider(sent(call("add", a=1), "hang")) as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=100, seconds=3))
    assert (ran.code, ran.stop) == (0, "deadline")
    assert (len(provider.requests), provider.last_requests) == (2, 1)
    answer = json.loads(ran.output)["answers"][0]
    assert answer == REPORT


def test_a_provider_that_answers_nothing_at_all_leads_to_a_report_without_it(run: Run) -> None:
    with ModelServer.looping(call("add", a=1), sent(say("never"), "hang"), sent(say("never"), "hang")) as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=100, seconds=3))
    assert (ran.code, ran.stop) == (0, "deadline")
    assert json.loads(ran.output)["answers"][0].startswith("Stopped by flyball: Maximum seconds (3 s) reached.")
    assert ran.execution.result.text == json.loads(ran.output)["answers"][0]
    assert ran.execution.result.seconds < 3.5


def test_a_program_and_a_grandchild_that_ignore_sigterm_are_gone(capfd: pytest.CaptureFixture[str]) -> None:
    program = """
import os, signal, subprocess, sys, time
ignore = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-c", ignore], start_new_session=True)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), child.pid, flush=True)
time.sleep(300)
"""
    with LoopingProvider() as provider:
        options = GatewayOptions(limits=Limits(seconds=1), environment=environment_for(provider))
        started = time.monotonic()
        execution = execute([sys.executable, "-c", program], options, lambda gateway: None)
    assert time.monotonic() - started < 20
    assert (execution.exit_code, execution.result.stop) == (None, "deadline")
    for pid in capfd.readouterr().out.split():
        assert not Path(f"/proc/{pid}").exists()


def test_a_program_that_goes_on_after_its_last_turn_until_the_deadline_has_one_reason(run: Run) -> None:
    with LoopingProvider() as provider:
        ran = run(provider, "plain_agent.py", "idle", limits=Limits(turns=1, seconds=2))
    result = ran.execution.result
    assert (ran.code, ran.stop, len(provider.requests)) == (None, "deadline", 1)
    assert result.warning == "Maximum seconds (2 s) reached."
