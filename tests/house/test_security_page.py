"""docs/security.md gives each bound with the number that the code has."""

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
ROWS = re.findall(r"^\| (.+?) \| ([\d,]+)[^|]*\| `([\w.]+)\.(\w+)` \|$", PAGE.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("number", "module", "name"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_a_bound_on_the_page_is_the_number_in_the_code(number: str, module: str, name: str) -> None:
    assert getattr(import_module(f"flyball.{module}"), name) == int(number.replace(",", ""))


def test_every_row_with_a_constant_is_read() -> None:
    assert len(ROWS) == PAGE.read_text().count("` |\n")
