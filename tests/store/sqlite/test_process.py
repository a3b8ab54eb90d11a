"""Several processes on one file, and what becomes of those that are killed, stopped or forked."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from flyball.message import Message
from flyball.store import Guard, SqliteStore, Start
from flyball.testing import until

Begin = Callable[..., "subprocess.Popen[str]"]
Hold = Callable[..., Guard]
Said = Callable[..., list[Message]]


def out(process: subprocess.Popen[str]) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def tell(process: subprocess.Popen[str]) -> None:
    """Let it go on."""
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def ended(process: subprocess.Popen[str]) -> str:
    """What else it printed; it must have ended well."""
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return printed


WRITES = """
    with SqliteStore(path) as store:
        guard = store.lease.acquire(name, name, 600)
        store.runs.start(name, Start(at=1.0, session=name), guard)
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(int(sys.argv[3])):
            store.keep(step(n, guard))
            print(n, flush=True)
"""


def test_four_processes_write_to_one_file_and_nothing_is_lost(path: Path, start: Begin) -> None:
    names = [f"p{n}" for n in range(4)]
    processes = [start(WRITES, name, "50") for name in names]
    for process in processes:
        assert out(process).readline() == "ready\n"
    for process in processes:
        tell(process)
    for process in processes:
        assert ended(process).split() == [str(n) for n in range(50)]
    with SqliteStore(path) as store:
        for name in names:
            said = [message.content for message in store.transcript.read(name)]
            assert said == [f"{name}.{n}" for n in range(50)]
            assert [row.n for row in store.journal.read(name)] == list(range(50))


@pytest.mark.parametrize("acknowledged", [1, 7, 40])
def test_what_was_acknowledged_outlives_a_kill(acknowledged: int, path: Path, start: Begin) -> None:
    process = start(WRITES, "r", "100000")
    assert out(process).readline() == "ready\n"
    tell(process)
    for _ in range(acknowledged):
        out(process).readline()
    process.kill()
    rest = out(process).read().split("\n")
    last = acknowledged + len([line for line in rest[:-1] if line]) - 1
    process.wait(60)
    with SqliteStore(path) as store:
        kept = [int(message.content.removeprefix("r.")) for message in store.transcript.read("r")]
        assert kept == list(range(len(kept)))
        assert len(kept) in (last + 1, last + 2)  # one may be kept of which nobody has heard
        assert [row.n for row in store.journal.read("r")] == kept
        assert store.lease.holder("r") is not None


def test_one_of_four_gets_the_lease_and_the_others_hear_who(start: Begin) -> None:
    program = """
        with SqliteStore(path) as store:
            print("ready", flush=True)
            sys.stdin.readline()
            got = store.lease.acquire("s", name, 600)
            print(name if isinstance(got, Guard) else got.owner, isinstance(got, Guard), flush=True)
    """
    processes = [start(program, f"p{n}") for n in range(4)]
    for process in processes:
        assert out(process).readline() == "ready\n"
    for process in processes:
        tell(process)
    told = [ended(process).split() for process in processes]
    assert sorted(line[1] for line in told) == ["False", "False", "False", "True"]
    assert len({line[0] for line in told}) == 1


def test_many_may_open_a_new_file_at_once(path: Path, start: Begin) -> None:
    program = """
        sys.stdin.readline()
        with SqliteStore(path) as store:
            store.transcript.title(name, "here")
    """
    processes = [start(program, f"p{n}") for n in range(6)]
    for process in processes:
        tell(process)
    for process in processes:
        ended(process)
    with SqliteStore(path) as store:
        assert len(store.transcript.sessions()) == 6


def test_a_holder_that_was_stopped_past_its_lease_writes_nothing(path: Path, start: Begin, hold: Hold) -> None:
    process = start(
        """
        with SqliteStore(path) as store:
            guard = store.lease.acquire("s", name, 0.5)
            store.runs.start(name, Start(at=1.0, session="s"), guard)
            store.keep(step(0, guard))
            print("ready", flush=True)
            sys.stdin.readline()
            for act in (lambda: store.keep(step(1, guard)), lambda: store.state.put(guard, {})):
                try:
                    print("kept", act())
                except Exception as error:
                    print(type(error).__name__)
            print(store.lease.renew(guard, 600), store.lease.release(guard))
        """
    )
    assert out(process).readline() == "ready\n"
    os.kill(process.pid, signal.SIGSTOP)
    with SqliteStore(path) as store:
        until(lambda: store.lease.holder("s") is None)
        guard = hold(store)
        store.state.put(guard, {"a": 1})
        os.kill(process.pid, signal.SIGCONT)
        tell(process)
        assert ended(process).split() == ["StaleFence", "StaleFence", "False", "False"]
        assert [message.content for message in store.transcript.read("s")] == ["r.0"]
        assert store.state.get("s") == {"a": 1}


def test_an_exit_without_closing_loses_nothing_and_does_not_hang(path: Path, start: Begin) -> None:
    process = start(
        """
        store = SqliteStore(path)
        guard = store.lease.acquire("s", name, 600)
        store.transcript.append(guard, [said(0)])
        store.transcript.read("s")
        """
    )
    assert ended(process) == ""
    assert list(path.parent.iterdir()) == [path]
    with SqliteStore(path) as store:
        assert [message.content for message in store.transcript.read("s")] == ["r.0"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_was_forked_opens_its_own(path: Path, start: Begin) -> None:
    process = start(
        """
        import warnings; warnings.simplefilter("ignore")
        store = SqliteStore(path)
        guard = store.lease.acquire("s", name, 600)
        if os.fork() == 0:
            for act in (lambda: store.transcript.append(guard, [said(0)]), lambda: store.transcript.read("s")):
                try:
                    act()
                except Exception as error:
                    print(error, flush=True)
            with SqliteStore(path) as own:
                own.transcript.append(guard, [said(1)])
            store.close()
            sys.exit()
        os.wait()
        store.transcript.append(guard, [said(2)])
        print(*[message.content for message in store.transcript.read("s")])
        """
    )
    first, second, last = ended(process).splitlines()
    assert first == second
    assert first.startswith(f"{path}: ")
    assert "fork" in first
    assert last == "r.1 r.2"


def test_a_file_that_may_not_grow_any_more_refuses_the_step(path: Path, start: Begin, said: Said) -> None:
    resource = pytest.importorskip("resource")
    assert resource
    process = start(
        """
        import resource
        with SqliteStore(path) as store:
            guard = store.lease.acquire("s", name, 600)
            store.transcript.append(guard, [said(0)])
            resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
            big = Message(name, 1, 1.0, MessageType.TEXT, Role.USER, "x" * 1_000_000)
            try:
                store.transcript.append(guard, [big])
            except Exception as error:
                print(type(error).__name__, error, flush=True)
            store.transcript.append(guard, [said(2)])
            print(*[message.content for message in store.transcript.read("s")], flush=True)
        """
    )
    refused, kept = ended(process).splitlines()
    assert refused.startswith(f"StoreError {path}: ")
    assert "full" in refused
    assert kept == "r.0 r.2"


def test_readers_see_whole_steps_while_others_write(path: Path, start: Begin) -> None:
    with SqliteStore(path) as store:
        process = start(WRITES, "r", "300")
        assert out(process).readline() == "ready\n"
        tell(process)
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.001)
            rows = len(store.journal.read("r"))
            assert len(store.transcript.read("r")) >= rows
        ended(process)
        assert len(store.journal.read("r")) == 300
        store.runs.start("later", Start(at=2.0))
