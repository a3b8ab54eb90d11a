"""Calls of toolbox tools as a run makes them, and a folder with something outside that must never be seen."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flyball.outcome import Outcome
from flyball.request import Call
from flyball.tools import BoundedToolExecutor, Tool

SECRET = "outside-and-never-shown"

Made = Callable[..., Outcome]


class House(NamedTuple):
    """A root, and what is next to it."""

    root: Path
    outside: Path


@pytest.fixture
def house(tmp_path: Path) -> House:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (outside / "folder").mkdir()
    (outside / "folder" / "secret.txt").write_text(SECRET)
    return House(root, outside)


@pytest.fixture(scope="session")
def made() -> Callable[[list[Tool]], Made]:
    """What makes calls of some tools: `call = made(tools)`, then `call("read_file", path="a")`."""

    def with_tools(tools: list[Tool]) -> Made:
        executor = BoundedToolExecutor(tools)

        def call(name: str, **arguments: Any) -> Outcome:
            [outcome] = executor.execute(Call("c1", name, arguments))
            return outcome

        return call

    return with_tools
