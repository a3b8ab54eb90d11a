"""Servers for tests: one made with the SDK, over pipes and HTTP, and a plain one that starts fast and misbehaves."""

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flyball import Agent, Result
from flyball.testing import until

HERE = Path(__file__).parent
LONG = 60.0


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended and that nobody has fetched does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        pass
    if sys.platform == "linux":
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture(scope="session")
def plain() -> list[str]:
    """The command of the plain server; what it shall do may be added."""
    return [sys.executable, "-S", "-E", str(HERE / "plain_server.py")]


class Pids:
    """The processes that plain servers have told of, by the file that they write them to."""

    def __init__(self, path: Path) -> None:
        self.env = {"PIDS": str(path)}
        self._path = path

    @property
    def all(self) -> list[int]:
        return [int(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []

    @property
    def left(self) -> list[int]:
        return [pid for pid in self.all if is_alive(pid)]

    def assert_gone(self, count: int | None = 1) -> None:
        """That so many were started, and none of them is left."""
        assert count in (None, len(self.all))
        assert self.left == []


@pytest.fixture
def pids(tmp_path: Path) -> Pids:
    return Pids(tmp_path / "pids.txt")


@pytest.fixture(scope="session")
def all_pids(tmp_path_factory: pytest.TempPathFactory) -> Pids:
    """The same for servers that several tests look at."""
    return Pids(tmp_path_factory.mktemp("pids") / "pids.txt")


@pytest.fixture(params=["sync", "asyncio", "trio"])
def door(request: pytest.FixtureRequest) -> str:
    """The name of one of the three doors."""
    return request.param


@pytest.fixture
def run(door: str, through: Callable[[str], Callable[[Agent], Result]]) -> Callable[[Agent], Result]:
    """Runs an agent through one of them."""
    return through(door)


@contextmanager
def listening() -> Generator[str]:
    command = [sys.executable, str(HERE / "sdk_server.py"), "http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        finally:
            process.kill()
    until(lambda: not is_alive(process.pid))


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where a server that is made with the SDK listens."""
    with listening() as url:
        yield url


@pytest.fixture
def own_url() -> Iterator[str]:
    """The same for one that the test may end."""
    with listening() as url:
        yield url
