"""Names and module paths that earlier versions documented still work, and say what they are called now."""

import json
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent
from flyball._deprecated import MODULES, NAMES
from flyball.loop.effects import Cancel
from flyball.testing import ScriptDriver, ScriptedModel, say
from flyball.toolbox import fetch

DOCUMENTED = json.loads(Path(__file__).with_name("public-names.json").read_text())
"""What the documentation of the first version imported, by module."""


def test_every_documented_name_can_be_imported() -> None:
    missing: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module, names in DOCUMENTED.items():
            missing += [f"{module}.{name}" for name in names if not hasattr(import_module(module), name)]
    assert missing == []


def warned_by(program: str) -> list[str]:
    """Return the warnings of a new interpreter."""
    command = [sys.executable, "-W", "always::DeprecationWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [line for line in done.stderr.splitlines() if "DeprecationWarning" in line]


def test_an_old_module_path_warns_once_and_names_the_new_one() -> None:
    program = "".join(f"import {old}\nimport {old}\n" for old in MODULES)
    warned = warned_by(program)
    assert len(warned) == len(MODULES)
    for (old, new), line in zip(MODULES.items(), warned, strict=True):
        assert f"the module {old} is now {new}" in line


def test_an_old_class_name_warns_once_and_names_the_new_one() -> None:
    pairs = [(module, old, new) for module, names in NAMES.items() for old, new in names.items()]
    program = "".join(f"from {module} import {old}\nfrom {module} import {old}\n" for module, old, _ in pairs)
    warned = warned_by(program)
    assert len(warned) == len(pairs)
    for (module, old, new), line in zip(pairs, warned, strict=True):
        assert f"{module}.{old} is now {module}.{new}" in line


def test_an_old_name_is_the_same_class() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for module, names in NAMES.items():
            found = import_module(module)
            assert [old for old, new in names.items() if getattr(found, old) is not getattr(found, new)] == []


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        import_module("flyball.never_was")


def test_an_old_keyword_warns_and_works() -> None:
    untyped: Any = fetch
    with pytest.warns(DeprecationWarning, match="most_bytes is now max_bytes"):
        assert [tool.name for tool in untyped(most_bytes=5)] == ["fetch"]
    untyped = ScriptDriver
    agent = Agent(model=ScriptedModel(say("never said")))
    with pytest.warns(DeprecationWarning, match="mail is now signals"):
        driver = untyped(agent, mail={0: [Cancel()]})
    assert driver.run("Go.").stop == "cancelled"
