"""Asking on the terminal: what a line means, and a real terminal."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from flyball.person import About, Verdict, allow, deny, edit, extend, parse_answer_line

EXAMPLE = Path(__file__).parents[2] / "examples" / "11_approval.py"


@pytest.mark.parametrize(
    ("line", "about", "meant"),
    [
        ("y", About.CALL, allow()),
        (" YES  main ", About.CALL, allow("main")),
        ("n", About.LIMIT, deny()),
        ("no not on a Friday", About.CALL, deny("not on a Friday")),
        ('e {"path": "b"}', About.CALL, edit(path="b")),
        ("e {}", About.CALL, edit()),
        ("10", About.LIMIT, extend(10)),
        ("0.5", About.LIMIT, extend(0.5)),
        ("", About.CALL, None),
        ("maybe", About.CALL, None),
        ("yep", About.CALL, None),
        ("10", About.CALL, None),
        ("0", About.LIMIT, None),
        ("-3", About.LIMIT, None),
        ("nan", About.LIMIT, None),
        ("inf", About.LIMIT, None),
        ("e {", About.CALL, None),
        ("e [1]", About.CALL, None),
        ("e " + "[" * 100_000, About.CALL, None),
    ],
)
def test_only_a_clear_line_is_an_answer(line: str, about: About, meant: Verdict | None) -> None:
    assert parse_answer_line(line, about) == meant


def answered(typed: str) -> str:
    """What the example prints, from the question on, to somebody who types that at a real terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, EXAMPLE], stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True)
    os.close(theirs)
    patience = Timer(60, process.kill)
    patience.start()
    printed, sent = b"", False
    try:
        while True:
            if not sent and printed.endswith(b") "):
                os.write(ours, typed.encode())
                sent = True
            try:
                piece = os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            printed += piece
    finally:
        patience.cancel()
        os.close(ours)
        assert process.wait(60) == 0, printed
    return printed.decode().replace("\r\n", "\n")


def test_a_person_at_a_terminal_allows_a_call() -> None:
    assert "\ndelete: deleted draft.txt\n" in answered("what?\ny\n")


def test_a_person_at_a_terminal_denies_it_with_a_reason() -> None:
    assert "(approval): keep it\n" in answered("n keep it\n")


def test_a_person_at_a_terminal_changes_the_arguments() -> None:
    assert "deleted old.txt\n" in answered('e {"path": "old.txt"}\n')
