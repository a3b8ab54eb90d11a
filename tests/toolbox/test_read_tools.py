import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Deadline, DeadlineToken
from flyball.errors import ConfigError
from flyball.outcome import Failure, Outcome, Status
from flyball.toolbox import files
from flyball.tools import Tool, ToolContext

Call = Callable[..., Outcome]
Made = Callable[[list[Tool]], Call]


@pytest.fixture
def call(house: Any, made: Made) -> Call:
    return made(files(house.root))


def test_each_is_marked_as_a_read(house: Any) -> None:
    assert [(tool.name, tool.writes, tool.idempotent, tool.may_need_approval) for tool in files(house.root)] == [
        ("list_files", False, True, False),
        ("read_file", False, True, False),
        ("search_files", False, True, False),
    ]


def test_a_root_must_be_a_folder(house: Any) -> None:
    (house.root / "file").write_text("")
    for root in ("missing", "file", "file\0"):
        with pytest.raises(ConfigError, match="files, root"):
            files(house.root / root)


def test_a_root_may_be_named_by_a_link_and_relative(
    house: Any, made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (house.root / "a.txt").write_text("here")
    (tmp_path / "link").symlink_to(house.root)
    monkeypatch.chdir(tmp_path)
    tools = files("link")
    monkeypatch.chdir("/")
    assert made(tools)("read_file", path="a.txt").text.startswith("here\n")


class TestList:
    def test_a_list_is_in_order_and_shows_hidden_files_links_and_pipes(
        self, house: Any, call: Call, snapshot: Callable[..., None]
    ) -> None:
        for name in ("b", "a", ".hidden"):
            (house.root / name).write_text("1234")
        (house.root / "folder" / "deep").mkdir(parents=True)
        (house.root / "link").symlink_to(house.outside)
        os.mkfifo(house.root / "pipe")
        text = call("list_files").text
        assert [line.split("  ")[0] for line in text.splitlines()] == [".hidden", "a", "b", "folder/", "link", "pipe"]
        snapshot(text)
        assert call("list_files", path="folder/").text == "folder/deep/"
        assert "folder/deep/" in call("list_files", depth=2).text
        snapshot(call("list_files", path="folder/deep").text, "empty")

    def test_names_that_are_no_text_are_escaped_on_one_line(self, house: Any, call: Call) -> None:
        os.close(os.open(os.fsencode(house.root) + b"/\xff\n", os.O_CREAT | os.O_WRONLY))
        assert call("list_files").text.startswith(r"'\udcff\n'  0")

    def test_many_entries_are_cut_and_it_says_so(self, house: Any, call: Call) -> None:
        for number in range(600):
            (house.root / f"{number:03}").touch()
        lines = call("list_files").text.splitlines()
        assert (lines[0].split("  ")[0], len(lines), "500" in lines[-1]) == ("000", 501, True)

    def test_loops_of_links_and_deep_trees_end(self, house: Any, call: Call) -> None:
        (house.root / "loop").symlink_to(".")
        (house.root / "self").symlink_to("self")
        deep = house.root / "/".join(["d"] * 80)
        deep.mkdir(parents=True)
        (deep / "needle").write_text("needle")
        assert call("list_files", depth=10).text.count("\n") == 11
        assert "d/d/d" in call("search_files", text="needle").text, "what was not searched is told"
        assert call("read_file", path="/".join(["d"] * 80) + "/needle").text.startswith("needle")

    def test_a_folder_that_may_not_be_opened_is_told_of(self, house: Any, call: Call) -> None:
        (house.root / "closed").mkdir(mode=0)
        (house.root / "open").touch()
        found = call("list_files", depth=2).text
        assert "open  0" in found
        if os.getuid() != 0:
            assert "'closed'" in found


class TestRead:
    def test_a_file_comes_whole_or_in_pages(self, house: Any, call: Call, snapshot: Callable[..., None]) -> None:
        (house.root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 1001)))
        first = call("read_file", path="a.txt").text.splitlines()
        assert (first[0], first[399], len(first)) == ("line 1", "line 400", 401)
        assert "401" in first[-1], "it says how to go on"
        last = call("read_file", path="a.txt", first=999, count=5).text
        assert last.startswith("line 999\nline 1000\n(")
        beyond = call("read_file", path="a.txt", first=2000).text
        snapshot("\n".join([first[-1], last, beyond]))

    def test_a_page_and_a_line_have_an_end(self, house: Any, call: Call) -> None:
        (house.root / "long").write_text("x" * 5_000_000 + "\nnext\n")
        assert call("read_file", path="long").text.splitlines()[0].rpartition("x …")[2].startswith(" (4,998,001")
        assert "next" in call("read_file", path="long").text
        (house.root / "wide").write_text(("y" * 1_500 + "\n") * 20)
        wide = call("read_file", path="wide").text
        assert len(wide) < 12_000
        assert "1 to 6" in wide.rpartition("\n")[2]

    def test_what_is_no_text_is_refused_and_what_is_no_utf_8_is_shown_as_well_as_it_goes(
        self, house: Any, call: Call
    ) -> None:
        (house.root / "bin").write_bytes(b"\x7fELF\0\0")
        assert call("read_file", path="bin").text.startswith("FileRefused: 'bin': ")
        (house.root / "latin").write_bytes(b"caf\xe9 \x1b[31m\r\n")
        assert call("read_file", path="latin").text.startswith("caf\ufffd \ufffd[31m\r\n")
        (house.root / "empty").touch()
        assert call("read_file", path="empty").ok

    def test_a_large_file_without_an_end_of_line_is_given_up_in_time(self, house: Any) -> None:
        with (house.root / "sparse").open("wb") as file:
            file.write(b"text" * 4_000)
            file.truncate(2**40)
        read_file = files(house.root)[1]
        token = DeadlineToken(Deadline.after(0.05))
        context = ToolContext(token=token, run_id="r", call_id="c", idempotency_key="r:c")
        with pytest.raises(TimeoutError):
            read_file(context, "sparse")

    @pytest.mark.parametrize("path", ["pipe", "socket", "."])
    def test_pipes_sockets_and_folders_are_no_files_and_do_not_block(
        self, house: Any, call: Call, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        os.mkfifo(house.root / "pipe")
        monkeypatch.chdir(house.root)  # the name of a socket must be short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            outcome = call("read_file", path=path)
        assert isinstance(outcome, Failure)
        assert outcome.kind == "FileRefused"

    def test_a_device_is_no_file(self, made: Made) -> None:
        call = made(files("/dev"))
        assert call("read_file", path="zero").text.startswith("FileRefused: ")
        assert call("search_files", text="x", names="zero").text.startswith("(0 matches in 0 files")

    def test_arguments_are_checked(self, call: Call) -> None:
        assert call("read_file", path="a", first=0).status is Status.DENIED
        assert call("list_files", depth=99).status is Status.DENIED
        assert call("search_files", text="").status is Status.DENIED
