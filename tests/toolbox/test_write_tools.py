import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Deadline, DeadlineToken
from flyball.errors import CallClosed
from flyball.outcome import Cancelled, Outcome
from flyball.person import deny
from flyball.testing import ScriptedModel, say
from flyball.testing import call as calls
from flyball.toolbox import write
from flyball.tools import OutcomeSlot, Tool, ToolContext

Call = Callable[..., Outcome]


@pytest.fixture
def call(house: Any, made: Callable[[list[Tool]], Call]) -> Call:
    return made(write(house.root))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_each_is_marked_as_a_write(house: Any) -> None:
    assert [(tool.name, tool.writes, tool.idempotent, tool.may_need_approval) for tool in write(house.root)] == [
        ("write_file", True, True, False),
        ("edit_file", True, False, False),
    ]


def test_a_file_is_made_with_its_folders_and_then_replaced(
    house: Any, call: Call, snapshot: Callable[..., None]
) -> None:
    made = call("write_file", path="a/b/c.txt", text="grüße\n").text
    replaced = call("write_file", path="a/b/c.txt", text="").text
    assert "a/b/c.txt: 8" in made
    assert "a/b/c.txt: 0" in replaced
    snapshot(f"{made}\n{replaced}")
    assert (house.root / "a" / "b" / "c.txt").read_bytes() == b""
    assert names(house.root / "a" / "b") == ["c.txt"]


def test_the_mode_of_a_written_file_stays_without_its_special_bits(house: Any, call: Call) -> None:
    script = house.root / "run.sh"
    script.write_text("old")
    script.chmod(0o4750)
    call("write_file", path="run.sh", text="new")
    assert script.stat().st_mode & 0o7777 == 0o750
    call("edit_file", path="run.sh", old="new", new="newer")
    assert (script.stat().st_mode & 0o7777, script.read_text()) == (0o750, "newer")


def test_a_hard_link_outside_keeps_what_it_has(house: Any, call: Call) -> None:
    os.link(house.outside / "secret.txt", house.root / "hard")
    assert call("write_file", path="hard", text="new").ok
    assert (house.outside / "secret.txt").read_text() == "outside-and-never-shown"


@pytest.mark.parametrize("path", ["folder", "folder/", ".", "", "pipe", "file/inside", "read-only"])
def test_what_is_no_file_that_may_be_written_is_left_alone(house: Any, call: Call, path: str) -> None:
    (house.root / "folder").mkdir()
    (house.root / "file").write_text("x")
    (house.root / "read-only").write_text("x")
    (house.root / "read-only").chmod(0o444)
    os.mkfifo(house.root / "pipe")
    before = names(house.root)
    assert call("write_file", path=path, text="new").text.startswith("FileRefused: ")
    assert call("edit_file", path=path, old="x", new="new").text.startswith("FileRefused: ")
    assert names(house.root) == before
    assert (house.root / "read-only").read_text() == "x"


def test_an_edit_needs_exactly_one_place(house: Any, call: Call, snapshot: Callable[..., None]) -> None:
    file = house.root / "a.py"
    file.write_bytes(b"one = 1\r\ntwo = 1\r\n\xff")
    twice = call("edit_file", path="a.py", old="= 1", new="= 3").text
    never = call("edit_file", path="a.py", old="x", new="y").text
    missing = call("edit_file", path="missing", old="x", new="y").text
    assert all(text.startswith("FileRefused: ") for text in (twice, never, missing))
    assert " 2 " in twice
    assert " 0 " in never
    snapshot("\n".join([twice, never, missing]))
    assert file.read_bytes() == b"one = 1\r\ntwo = 1\r\n\xff"
    assert call("edit_file", path="a.py", old="one = 1", new=r"\1 = 2").ok
    assert file.read_bytes() == b"\\1 = 2\r\ntwo = 1\r\n\xff"


def test_a_call_that_is_dead_writes_nothing(house: Any) -> None:
    (house.root / "a.txt").write_text("old")
    gate = OutcomeSlot()
    gate.close(Cancelled(call_id="c", tool="write_file"))
    context = ToolContext(
        token=DeadlineToken(Deadline.after(60)), run_id="r", call_id="c", idempotency_key="r:c", gate=gate
    )
    write_file, edit_file = write(house.root)
    for attempt in (
        lambda: write_file(context, "a.txt", "new"),
        lambda: write_file(context, "new/folder/a.txt", "new"),
        lambda: edit_file(context, "a.txt", "old", "new"),
    ):
        with pytest.raises(CallClosed):
            attempt()
    assert (names(house.root), (house.root / "a.txt").read_text()) == (["a.txt"], "old")


def test_a_person_may_be_asked_first(house: Any) -> None:
    model = ScriptedModel(calls("write_file", path="a.txt", text="x"), say("Then not."))
    agent = Agent(model=model, tools=write(house.root, approve=True), approver=lambda _: deny("No."))
    [outcome] = agent.run("Write.").tool_results
    assert (outcome.status, "No." in outcome.text) == ("denied", True)
    assert names(house.root) == []
