"""Nothing that a command has started is left, however it tries to stay and however the call ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from flyball import Agent, Deadline, DeadlineToken
from flyball.errors import CommandFailed
from flyball.outcome import Outcome, Status
from flyball.testing import ScriptedModel, call, say, until
from flyball.toolbox import process, shell
from flyball.tools import Tool

Made = Callable[[list[Tool]], Callable[..., Outcome]]

DAEMON = f"""{sys.executable} -c '
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for number in range(3): os.close(number)
open("pid.part", "w").write(str(os.getpid()))
os.rename("pid.part", "pid")
time.sleep(300)
'"""
"""A daemon as the books have it: two forks, a session of its own, no streams."""
STAY = "sh -c 'echo $$ > pid.part; mv pid.part pid; exec sleep 300'"
WAYS = {
    "in the background": f"{STAY} &",
    "deaf to hang-ups": f"nohup {STAY} > /dev/null 2>&1 &",
    "in a session of its own": f"setsid {STAY} &",
    "as a grandchild of nobody": f"(setsid nohup {STAY} > /dev/null 2>&1 &)",
    "as a daemon": DAEMON,
    "deaf to what is not a kill": f"""(trap "" TERM HUP INT; {STAY}) &""",
}
WAIT = "while [ ! -e pid ]; do sleep 0.01; done"

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")


def alive(pid: int) -> bool:
    """Whether it is there, and not only waiting for its new parent to hear of its end."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_in(folder: Path) -> int:
    until(lambda: (folder / "pid").exists())
    return int((folder / "pid").read_text())


@linux
class TestAll:
    @pytest.mark.parametrize("way", WAYS)
    def test_are_dead_when_the_command_has_ended(self, tmp_path: Path, made: Made, way: str) -> None:
        outcome = made(shell(tmp_path, approve=False))("shell", command=f"{WAYS[way]}\n{WAIT}; echo done")
        assert outcome.text == "exit code 0\ndone"
        assert not alive(pid_in(tmp_path))

    @pytest.mark.parametrize("way", ["in the background", "as a daemon"])
    def test_are_dead_after_the_deadline(self, tmp_path: Path, made: Made, way: str) -> None:
        outcome = made(shell(tmp_path, approve=False, timeout=0.4))("shell", command=f"{WAYS[way]}\nsleep 300")
        assert outcome.status in (Status.FAILED, Status.TIMED_OUT)
        if (tmp_path / "pid").exists():  # on a slow machine it was killed before that
            until(lambda: not alive(pid_in(tmp_path)))

    @pytest.mark.parametrize("way", ["deaf to hang-ups", "in a session of its own", "as a daemon"])
    def test_are_dead_after_a_cancel(self, tmp_path: Path, way: str) -> None:
        model = ScriptedModel(call("shell", command=f"{WAYS[way]}\nsleep 300"), say("x"))
        run = Agent(model=model, tools=shell(tmp_path, approve=False)).start("Go.")
        pid = pid_in(tmp_path)
        assert alive(pid)
        assert run.cancel()
        assert run.result().stop == "cancelled"
        until(lambda: not alive(pid))


def test_what_was_said_before_it_was_killed_is_told(tmp_path: Path) -> None:
    token = DeadlineToken(Deadline.after(60))
    command = ["/bin/sh", "-c", f"echo first; echo second >&2; {STAY}"]
    with ThreadPoolExecutor() as pool:
        ended = pool.submit(process.run_command, command, cwd=str(tmp_path), env=os.environ, token=token)
        pid = pid_in(tmp_path)
        token.cancel()
        with pytest.raises(CommandFailed, match=r"killed.*\nfirst\nstderr:\nsecond"):
            ended.result(60)
    assert not alive(pid)


PROGRAM = """
import sys
from flyball.request import Call
from flyball.toolbox import shell
from flyball.tools import BoundedToolExecutor

tools = shell(sys.argv[1], approve=False)
BoundedToolExecutor(tools).execute(Call("1", "shell", {"command": sys.argv[2]}))
"""


@linux
def test_a_command_dies_with_the_process_that_had_it_run(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), f"{DAEMON}; sleep 300"]
    with subprocess.Popen(command) as parent:
        pid = pid_in(tmp_path)
        parent.send_signal(signal.SIGKILL)
        parent.wait(60)
    until(lambda: not alive(pid))


@linux
@pytest.mark.parametrize("blow", ["KILL", "STOP", "TERM"])
def test_who_attacks_the_supervisor_gains_nothing(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch, blow: str
) -> None:
    monkeypatch.setattr(process, "_KILL_S", 0.5)
    shells = made(shell(tmp_path, approve=False, timeout=1 if blow == "STOP" else 60))
    outcome = shells("shell", command=f"{STAY} & {WAIT}; kill -{blow} $PPID; sleep 300")
    assert not outcome.ok
    if blow != "STOP" or (tmp_path / "pid").exists():  # on a slow machine it was killed before that
        until(lambda: not alive(pid_in(tmp_path)))


SWARM = """
import os, time
for _ in range(4):
    os.fork()
    if os.getpid() != os.getpgid(0): os.setsid()
open(str(os.getpid()), "w").close()
time.sleep(300)
"""


@linux
def test_a_swarm_of_processes_ends_with_its_command(tmp_path: Path, made: Made) -> None:
    (tmp_path / "swarm.py").write_text(SWARM)
    command = f"mkdir pids; (cd pids; {sys.executable} ../swarm.py) & while [ $(ls pids | wc -l) -lt 16 ]; do :; done"
    outcome = made(shell(tmp_path, approve=False))("shell", command=command)
    assert outcome.text.startswith("exit code 0")
    pids = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    assert (len(pids), [pid for pid in pids if alive(pid)]) == (16, [])


def test_nothing_is_left_open(tmp_path: Path, made: Made) -> None:
    shells = made(shell(tmp_path, approve=False, timeout=5))
    shells("shell", command="true")
    before = len(list(Path("/dev/fd").iterdir()))
    for _ in range(5):
        shells("shell", command="echo x; false")
    assert len(list(Path("/dev/fd").iterdir())) == before
