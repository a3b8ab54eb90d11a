"""Who may import whom: a module sees those above it in the table, and those to its left on its own line."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import flyball

TABLE = """
    unit quote errors check clock jsonable
    toml settings
    snapshot budget registry
    deadline envelope usage price limits steadiness
    message pair wire outcome event schema recorder request person terminal
    result record evidence caller chain progress path entry proof assertion nudge asserted toolrule rules
    purse ruling turn governor bound
    store
    worker tools models
    loop drive
    run option keeping output brief delegate offer inheritance agent conversation
    serve
    toolbox
    testing otel
    doctor
    cli
"""
HEAVY = {
    "agent", "brief", "cli", "conversation", "delegate", "drive", "models", "otel", "output", "run", "serve", "testing",
    "toolbox", "tools", "worker",
}  # fmt: skip
"""All other rooms need nothing but the standard library."""

ROOT = Path(flyball.__file__).parent
RANK = {room: rank for rank, room in enumerate(TABLE.split())}
DOORS = {"__init__", "__main__"}
"""The package's own door, which names everything, and the command's, which only calls it."""


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it and also for type checking, by its full name."""
    package = ["flyball", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *(node.module or "").split(".")]).strip(".")
            yield from ([f"{base}.{alias.name}" for alias in node.names] if base == "flyball" else [base])


def test_every_module_has_its_place_in_the_table() -> None:
    assert {room(path) for path in modules()} - DOORS == set(RANK)


@pytest.mark.parametrize("path", [path for path in modules() if room(path) not in DOORS], ids=str)
def test_imports_point_upwards(path: Path) -> None:
    rooms = [name.split(".")[1] for name in imported(path) if name.startswith("flyball.")]
    wrong = [name for name in rooms if name != room(path) and name != "__version__" and RANK[name] > RANK[room(path)]]
    assert wrong == []


@pytest.mark.parametrize("path", [path for path in modules() if room(path) not in HEAVY], ids=str)
def test_the_first_rooms_need_nothing_but_the_standard_library(path: Path) -> None:
    tops = {name.split(".")[0] for name in imported(path)}
    assert tops <= {*sys.stdlib_module_names, "flyball"}


def test_importing_the_budgets_loads_nothing_heavy() -> None:
    program = (
        "import sys; before = set(sys.modules)\n"
        "from flyball import IterationBudget, IterationBudgetRegistry, Settings\n"
        "IterationBudgetRegistry(settings={}).create('conversation_turns').consume()\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(done.stdout.split())
    assert "flyball" in loaded
    assert not loaded & {"asyncio", "anyio", "pydantic", "httpx", "httpx2", "tomllib", "typer", "rich", "difflib"}


def test_importing_the_package_alone_loads_none_of_its_rooms() -> None:
    program = "import sys, flyball; print(*[name for name in sys.modules if name.startswith('flyball.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
