"""The page about known programs says what the table in the code says."""

import runpy
from pathlib import Path
from typing import Any

from flyball.gateway.programs import KNOWN_PROGRAMS

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_facts_of_the_table() -> None:
    tool: dict[str, Any] = runpy.run_path(str(ROOT / "tools" / "programs_page.py"))
    page: str = tool["PAGE"].read_text()
    assert tool["write_facts"](page) == page, "run python tools/programs_page.py"
    assert page.count("\n## ") == len(KNOWN_PROGRAMS)
    assert all(program.enforced in page for program in KNOWN_PROGRAMS)
