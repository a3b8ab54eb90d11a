"""Ways out of a root, each really tried."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from flyball.outcome import Failure, Outcome, Status
from flyball.toolbox import files, folder, write
from flyball.tools import Tool

Call = Callable[..., Outcome]
SECRET = "outside-and-never-shown"


@pytest.fixture
def call(house: Any, made: Callable[[list[Tool]], Call]) -> Call:
    return made([*files(house.root), *write(house.root)])


def everything(call: Call, path: str) -> list[Outcome]:
    """Every tool, with one path."""
    return [
        call("list_files", path=path, depth=5),
        call("read_file", path=path),
        call("search_files", path=path, text="never"),
        call("search_files", path=path, text="ne[v]er", regex=True),
        call("write_file", path=path, text="broken"),
        call("edit_file", path=path, old=SECRET, new="broken"),
    ]


def intact(house: Any) -> bool:
    found = sorted(path for path in house.outside.rglob("*") if path.is_file())
    wanted = [house.outside / "folder" / "secret.txt", house.outside / "secret.txt"]
    return found == wanted and all(path.read_text() == SECRET for path in found)


@pytest.mark.parametrize(
    "path",
    [
        "../outside", "../outside/secret.txt", "..", "a/../../outside/secret.txt", "./../outside", "/etc/passwd",
        "//etc", "{outside}/secret.txt", "{root}/../outside/secret.txt", "a\0b", "secret.txt\0", "\0", "\udc00x",
        "x" * 300, "x/" * 300, "x" * 10_000, "a/" * 5_000 + "..",
    ],
)  # fmt: skip
def test_no_path_leads_out(house: Any, call: Call, path: str) -> None:
    (house.root / "a").mkdir()
    asked = path.format(outside=house.outside, root=house.root)
    for outcome in everything(call, asked):
        assert (isinstance(outcome, Failure) and outcome.kind == "FileRefused") or outcome.status is Status.DENIED
        assert SECRET not in outcome.text
    assert intact(house)


@pytest.mark.parametrize("target", ["{outside}", "../outside", "{outside}/folder/..", "/proc/self/cwd/../outside"])
def test_a_link_to_a_folder_is_not_followed_at_the_end_nor_on_the_way(house: Any, call: Call, target: str) -> None:
    (house.root / "in").mkdir()
    target = target.format(outside=house.outside)
    (house.root / "link").symlink_to(target)
    (house.root / "in" / "link").symlink_to(target if target.startswith("/") else f"../{target}")
    for path in ("link", "in/link", "link/secret.txt", "in/link/secret.txt", "link/folder/secret.txt", "link/new/x"):
        for outcome in everything(call, path):
            assert isinstance(outcome, Failure), path
            assert outcome.kind == "FileRefused"
            assert "link" in outcome.error
    assert intact(house)


@pytest.mark.parametrize("target", ["{outside}/secret.txt", "../outside/secret.txt", "/proc/self/environ", "nowhere"])
def test_a_link_to_a_file_is_not_followed(house: Any, call: Call, target: str) -> None:
    (house.root / "link").symlink_to(target.format(outside=house.outside))
    for outcome in everything(call, "link"):
        assert "link" in outcome.text
    assert SECRET not in call("search_files", text="never").text
    assert (house.root / "link").is_symlink()
    assert intact(house)


def test_the_links_of_the_kernel_are_links_too(made: Callable[[list[Tool]], Call]) -> None:
    call = made(files("/proc/self"))
    for path in ("root/etc/passwd", "cwd", "exe", "fd/0"):
        assert "link" in call("read_file", path=path).text


def test_a_root_that_becomes_a_link_is_not_followed(house: Any, call: Call) -> None:
    house.root.rename(house.root.with_name("moved"))
    house.root.symlink_to(house.outside)
    for outcome in everything(call, "secret.txt"):
        assert not outcome.ok
        assert SECRET not in outcome.text
    assert intact(house)


@contextmanager
def swapping(swap: Callable[[], None]) -> Generator[None]:
    """Somebody who changes the folders again and again, until we are done."""
    over = Event()

    def work() -> None:
        while not over.is_set():
            with suppress(OSError):
                swap()

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
        assert not thread.is_alive()


def exchange(folder: Path, link: Path, spare: Path) -> None:
    """A folder and a link take turns at having one name."""
    folder.rename(spare)
    link.rename(folder)
    folder.rename(link)
    spare.rename(folder)


def test_who_swaps_a_folder_for_a_link_again_and_again_gets_nothing_out_or_in(house: Any, call: Call) -> None:
    inside, link, spare = house.root / "folder", house.root / "link", house.root / "spare"
    inside.mkdir()
    (inside / "secret.txt").write_text("inside")
    link.symlink_to(house.outside / "folder")
    seen: set[bool] = set()
    with swapping(lambda: exchange(inside, link, spare)):
        for number in range(60):
            call("write_file", path=f"folder/{number}.txt", text="broken")
            call("edit_file", path="folder/secret.txt", old=SECRET, new="broken")
            for outcome in (
                call("read_file", path="folder/secret.txt"),
                call("list_files", path=".", depth=5),
                call("search_files", text="s"),
            ):
                assert SECRET not in outcome.text
                seen.add(outcome.ok)
    assert True in seen
    assert intact(house)


@pytest.mark.parametrize(("other", "words"), [("link", "link"), ("pipe", "pipe")])
def test_who_swaps_a_file_right_after_it_was_looked_at_gets_nothing_out(
    house: Any, call: Call, other: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = house.root / "file"
    file.write_text("inside")
    (house.root / "link").symlink_to(house.outside / "secret.txt")
    os.mkfifo(house.root / "pipe")
    look = folder.stat_file

    def look_and_swap(handle: int, name: str) -> os.stat_result:
        facts = look(handle, name)
        (house.root / other).replace(file)
        return facts

    monkeypatch.setattr(folder, "stat_file", look_and_swap)
    outcome = call("read_file", path="file")
    assert isinstance(outcome, Failure)
    assert (outcome.kind, words in outcome.error) == ("FileRefused", True)


def test_who_swaps_a_file_for_a_link_or_a_pipe_again_and_again_gets_nothing_out_or_in(house: Any, call: Call) -> None:
    file, link, pipe = house.root / "file", house.root / "link", house.root / "pipe"
    file.write_text("inside")
    link.symlink_to(house.outside / "secret.txt")
    os.mkfifo(pipe)

    def swap() -> None:
        copy = house.root / "copy"
        for other in (link, pipe):
            os.link(other, copy, follow_symlinks=False)
            copy.replace(file)
        copy.write_text("inside")
        copy.replace(file)

    with swapping(swap):
        for _ in range(60):
            for outcome in everything(call, "file"):
                assert SECRET not in outcome.text
    assert intact(house)
