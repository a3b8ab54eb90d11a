"""A file for a store, and what is said in it."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from threading import Timer

import pytest

from flyball.message import Message, MessageType, Role
from flyball.store import Guard, Store

LONG = 60.0

BEGINNING = """
    import os, signal, sys, time
    from flyball.message import Message, MessageType, Role
    from flyball.store import Guard, Kind, Row, SqliteStore, Start, Step
    path, name = sys.argv[1], sys.argv[2]
    def said(n): return Message(name, n, 1.0, MessageType.TEXT, Role.USER, f"{name}.{n}")
    def step(n, guard): return Step(run_id=name, guard=guard, rows=[Row(n, Kind.ANSWER)], messages=[said(n)])
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


@pytest.fixture
def hold() -> Callable[..., Guard]:
    def take(store: Store, session: str = "s", seconds: float = 600.0) -> Guard:
        guard = store.lease.acquire(session, "a test", seconds)
        assert isinstance(guard, Guard)
        return guard

    return take


@pytest.fixture
def said() -> Callable[..., list[Message]]:
    def say(*texts: str) -> list[Message]:
        return [Message("r", n, 1.0, MessageType.TEXT, Role.USER, text) for n, text in enumerate(texts)]

    return say


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    """Starts programs on the file; they are ended with the test, or when a minute is over."""
    processes: list[subprocess.Popen[str]] = []

    def begin(program: str, name: str = "r", *arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-W",
            "error",
            "-c",
            dedent(BEGINNING) + dedent(program),
            str(path),
            name,
            *arguments,
        ]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    deadline = Timer(LONG, lambda: [process.kill() for process in processes])
    deadline.start()
    yield begin
    deadline.cancel()
    for process in processes:
        process.kill()
        process.communicate()
