"""What is installed here is what is locked, and the lock names no host."""

import re
from importlib.metadata import distributions
from pathlib import Path

from flyball._internal.distribution import DISTRIBUTION

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_installed_package_has_its_locked_version() -> None:
    locked = {canonical(name): version for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", LOCK, re.MULTILINE)}
    installed = {canonical(found.name): found.version for found in distributions()}
    ours = {DISTRIBUTION, "pip", "setuptools"}  # itself, and what `python -m venv` brings
    assert {name: version for name, version in installed.items() if name not in ours} == {
        name: locked.get(name) for name in installed if name not in ours
    }


def test_every_locked_package_has_its_hashes() -> None:
    blocks = re.split(r"^(?=[\w.-]+==)", LOCK, flags=re.MULTILINE)[1:]
    assert len(blocks) > 10
    assert [block.split("==")[0] for block in blocks if "--hash=sha256:" not in block] == []


def test_the_lock_names_no_host() -> None:
    assert "://" not in LOCK
