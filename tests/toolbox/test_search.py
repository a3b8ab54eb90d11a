from collections.abc import Callable
from typing import Any

import pytest

from flyball import Deadline, DeadlineToken
from flyball.outcome import Failure, Outcome
from flyball.toolbox import files
from flyball.toolbox.search import make_regex_finder
from flyball.tools import Tool

Call = Callable[..., Outcome]
CATASTROPHE = "(a+)+$"
VICTIM = "a" * 60 + "!"


@pytest.fixture
def call(house: Any, made: Callable[[list[Tool]], Call]) -> Call:
    return made(files(house.root))


def test_a_text_is_found_with_its_place(house: Any, call: Call, snapshot: Callable[..., None]) -> None:
    (house.root / "sub").mkdir()
    (house.root / "b.py").write_text("x = 1\nneedle = (2)\n")
    (house.root / "sub" / "a.txt").write_text("a needle (2) in the hay\n")
    *found, summary = call("search_files", text="needle").text.splitlines()
    assert found == ["b.py:2: needle = (2)", "sub/a.txt:1: a needle (2) in the hay"]
    snapshot(summary)
    assert call("search_files", text="(2)", path="sub").text.splitlines()[0].startswith("sub/a.txt:1:")
    assert call("search_files", text="needle", names="*.py").text.splitlines()[-1].startswith("(1 ")
    assert call("search_files", text="absent").text.startswith("(0 ")


def test_an_expression_is_one_only_when_asked_for(house: Any, call: Call) -> None:
    (house.root / "a").write_text("aXb\na.b\n")
    assert "a:2: a.b\n(1" in call("search_files", text="a.b").text
    assert "a:1: aXb\na:2: a.b\n(2" in call("search_files", text="^a.b$", regex=True).text


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", "(?P<x>a)(?P<x>b)", "\\"])
def test_a_wrong_regular_expression_is_refused(house: Any, call: Call, pattern: str) -> None:
    (house.root / "a").write_text("a")
    outcome = call("search_files", text=pattern, regex=True)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "ArgumentError"


def test_an_expression_that_would_never_end_is_killed_in_time(house: Any, made: Callable[[list[Tool]], Call]) -> None:
    (house.root / "a").write_text(VICTIM)
    found = made(files(house.root, timeout=0.5))("search_files", text=CATASTROPHE, regex=True)
    assert found.status == "timed_out" or found.text.startswith("(0 ")


def test_an_expression_that_would_never_end_can_be_cancelled() -> None:
    token = DeadlineToken(Deadline.after(60))
    token.cancel()
    with pytest.raises(TimeoutError, match="cancelled"):
        make_regex_finder(CATASTROPHE, token)([VICTIM])


def test_results_are_capped_and_it_says_so(house: Any, call: Call) -> None:
    for number in range(3):
        (house.root / f"{number}").write_text("needle\n" * 90)
    for regex in (False, True):
        lines = call("search_files", text="needle", regex=regex).text.splitlines()
        assert len(lines) == 101
        assert lines[-1].startswith("(100 ")
    (house.root / "0").write_text("needle " + "x" * 10_000)
    assert len(call("search_files", text="needle").text.splitlines()[0]) < 300


def test_binary_and_huge_files_are_left_out(house: Any, call: Call) -> None:
    (house.root / "binary").write_bytes(b"needle\0")
    (house.root / "huge").write_bytes(b"needle\n" * 700_000)
    text = call("search_files", text="needle").text
    assert text.startswith("(0 ")
    assert "huge" in text
    assert "4,194,304" in text
    (house.root / "latin").write_bytes(b"caf\xe9 needle")
    assert "latin:1: caf\ufffd needle" in call("search_files", text="needle").text
