"""Writes the facts of the table of known programs into docs/programs.md. A test compares them.

Usage: python tools/programs_page.py
"""

from __future__ import annotations

import re
from pathlib import Path

from flyball.gateway.programs import KNOWN_PROGRAMS, KnownProgram

PAGE = Path(__file__).parents[1] / "docs" / "programs.md"
_TABLE = re.compile(r"(?<=\|---\|---\|---\|---\|\n)(?:\|.*\n)+")


def write_facts(page: str) -> str:
    """Return the page with the facts of the table. Its other texts stay."""
    page = _TABLE.sub("".join(map(_write_row, KNOWN_PROGRAMS)), page)
    for program in KNOWN_PROGRAMS:
        head = f"\n## {program.title}\n"
        before, separator, after = page.partition(head)
        section, next_head, rest = after.partition("\n## ")
        if not separator:
            section, next_head, rest = "", "", ""
        kept = re.sub(r"\A\n```text\nflyball exec .*\n```\n", "", section)
        kept = re.sub(r"\A\n(?:- .*\n(?:  .*\n)*)+", "", kept)
        page = f"{before.rstrip()}\n{head}{_write_section(program)}{kept}{next_head}{rest}"
    return page


def _write_row(program: KnownProgram) -> str:
    anchor = program.title.lower().replace(" ", "-")
    wires = ", ".join(program.wires) or "its own"
    return f"| [{program.title}](#{anchor}) | {program.version} | {wires} | {program.enforced} |\n"


def _write_section(program: KnownProgram) -> str:
    lines = [f"- Enforced: {program.enforced}."]
    if program.pointed_by:
        lines = ["```text", f"flyball exec --turns 20 --usd 5 -- {program.example}", "```", "", *lines]
        lines.append(f"- Done to the command: {program.pointed_by}.")
    lines += [f"- Exception: {escape}." for escape in program.escapes]
    return "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(write_facts(PAGE.read_text()))
