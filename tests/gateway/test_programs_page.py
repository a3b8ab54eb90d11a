"""The page about known programs says what the table in the code says."""

from pathlib import Path

import pytest

from flyball.gateway.programs import KNOWN_PROGRAMS, KnownProgram

PAGE = (Path(__file__).parents[2] / "docs" / "programs.md").read_text()


def test_the_table_of_the_page_is_the_table_of_the_code() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| [")]
    assert rows == [
        f"| [{program.title}](#{program.title.lower().replace(' ', '-')}) | {program.version} | "
        f"{', '.join(program.wires) or 'its own'} | {program.enforced} |"
        for program in KNOWN_PROGRAMS
    ]


@pytest.mark.parametrize("program", KNOWN_PROGRAMS, ids=lambda program: program.name)
def test_the_section_of_a_program_has_its_facts(program: KnownProgram) -> None:
    section = PAGE.split(f"\n## {program.title}\n")[1].split("\n## ")[0].splitlines()
    facts = [line for line in section if line.startswith("- ")]
    pointed = [f"- Done to the command: {program.pointed_by}."] if program.pointed_by else []
    assert facts == [
        f"- Enforced: {program.enforced}.",
        *pointed,
        *(f"- Exception: {each}." for each in program.escapes),
    ]
    assert (f"flyball exec --turns 20 --usd 5 -- {program.example}" in section) is bool(pointed)
