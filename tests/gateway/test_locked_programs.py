"""The table of known programs names the versions that `make test-exec` installs."""

import json
import re

import exec_install
import pytest
from exec_table import NOT_TRIED, PROGRAMS, STORIES

from flyball.gateway.programs import KNOWN_PROGRAMS, KnownProgram

LOCKED = [program for program in KNOWN_PROGRAMS if program.name not in NOT_TRIED]


@pytest.mark.parametrize("program", LOCKED, ids=lambda program: program.name)
def test_the_tested_version_of_a_program_is_that_of_its_lock(program: KnownProgram) -> None:
    versions = [exec_install.find_version(program.name, package) for package in program.packages]
    assert program.version in versions


def test_each_known_program_is_locked_or_named_as_an_exception() -> None:
    locked = {folder.name for folder in exec_install.LOCKS.iterdir()}
    assert locked == {program.name for program in LOCKED} == {line.name for line in PROGRAMS}
    assert {line.name for line in STORIES} <= locked


@pytest.mark.parametrize("name", sorted(program.name for program in LOCKED))
def test_each_locked_package_has_a_hash_and_names_no_index(name: str) -> None:
    folder = exec_install.LOCKS / name
    if (folder / "package-lock.json").exists():
        packages = json.loads((folder / "package-lock.json").read_text())["packages"]
        assert [path for path, entry in packages.items() if path and not entry.get("integrity")] == []
        assert [path for path, entry in packages.items() if "resolved" in entry] == []
    else:
        pins = re.split(r"\n(?=\S)", (folder / "requirements.txt").read_text().strip())
        assert [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin] == []
