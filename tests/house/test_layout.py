"""The layout of the package: layers are folders, imports go to lower layers, names are unique.

There is one test for each rule, and it lists every place that breaks the rule.
"""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import flyball
from flyball._internal.syntax import parse_python

LAYERS = """
    _deprecated errors unit
    settings _internal
    budget
    message request outcome event recorder progress person steadiness display result record chain
    completion otel rules store tool_rules tools wire
    governor loop models toolbox
    runtime
    agent
    history
    gateway serve testing
    adapters
    doctor
    cli
"""
"""Lowest first. A line may import from the lines above it. On one line, packages may import each other one way."""
MAY_IMPORT_PACKAGES = {
    "_internal", "adapters", "agent", "cli", "gateway", "models", "otel", "runtime", "serve", "store", "testing",
    "toolbox", "tools",
}  # fmt: skip
"""Folders that may import third-party packages. All others need the standard library only."""
MAX_LINES, MAX_README_LINES, MAX_ROOT_MODULES = 600, 100, 16
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "types"}

PACKAGE = Path(flyball.__file__).parent
PROJECT = Path(__file__).parents[2]
RANK = {name: rank for rank, line in enumerate(LAYERS.strip().splitlines()) for name in line.split()}


class Import(NamedTuple):
    """One imported module."""

    source: str
    target: str
    line: int
    comment: str

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.target}"


@cache
def sources() -> Mapping[str, Path]:
    """Return the files of the package by their module names."""

    def name_of(path: Path) -> str:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        return ".".join(("flyball", *parts)).removesuffix(".__init__")

    return {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def top(module: str) -> str:
    """Return the module or folder right below `flyball` that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


@cache
def imports() -> tuple[Import, ...]:
    """Return all imports of the package, wherever they stand, also those for type checkers."""
    return tuple(found for module, path in sources().items() for found in imports_of(module, path))


def imports_of(module: str, path: Path) -> Iterator[Import]:
    text = path.read_text()
    lines = text.splitlines()
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(parse_python(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            comment = lines[node.lineno - 1].partition("#")[2].strip()
            for target in targets_of(node, package):
                yield Import(module, target, node.lineno, comment)


def targets_of(node: ast.Import | ast.ImportFrom, package: list[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    above = package[: len(package) - node.level + 1] if node.level else []
    base = ".".join([*above, *filter(None, [node.module])])
    for alias in node.names:
        name = f"{base}.{alias.name}"
        yield name if name in sources() else base


def inner_imports() -> list[Import]:
    """Return the imports between modules, without those of the package's own `__init__` and `__main__`."""
    outer = {"flyball", "flyball.__main__"}
    return [found for found in imports() if found.target.startswith("flyball.") and found.source not in outer]


def test_every_module_has_a_layer() -> None:
    assert {top(module) for module in sources()} - {"", "__main__"} == set(RANK)


def test_imports_go_to_lower_layers() -> None:
    assert [str(found) for found in inner_imports() if RANK[top(found.target)] > RANK[top(found.source)]] == []


def test_folders_of_one_layer_import_each_other_one_way() -> None:
    """An import whose comment begins with `cycle:` and gives a reason does not count."""
    counted = [found for found in inner_imports() if not found.comment.startswith("cycle: ")]
    pairs = {(top(found.source), top(found.target)): str(found) for found in counted}
    both = [text for (source, target), text in pairs.items() if source != target and (target, source) in pairs]
    assert both == []


def test_no_modules_import_each_other_in_a_cycle() -> None:
    """Type-only imports count. An import whose comment begins with `cycle:` and gives a reason does not."""
    graph: dict[str, set[str]] = defaultdict(set)
    for found in inner_imports():
        if not found.comment.startswith("cycle: "):
            graph[found.source].add(found.target)
    assert find_cycles(graph) == []


def find_cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that reach each other (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(graph.get(node, ())):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1 or node in graph.get(node, ()):
                found.append(sorted(group))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def test_lower_folders_need_the_standard_library_only() -> None:
    known = {*sys.stdlib_module_names, "flyball"}
    foreign = [found for found in imports() if found.target.split(".")[0] not in known]
    assert [str(found) for found in foreign if top(found.source) not in MAY_IMPORT_PACKAGES] == []


def test_the_root_has_few_modules() -> None:
    modules = sorted(path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__"))
    assert len(modules) <= MAX_ROOT_MODULES, modules


def test_module_names_are_plain_and_used_at_most_twice() -> None:
    commands = PACKAGE / "cli" / "commands"
    paths = [path for path in sources().values() if path.name != "__init__.py" and commands not in path.parents]
    counts = Counter(path.stem for path in paths)
    assert [name for name, count in counts.items() if count > 2 or name in VAGUE_NAMES] == []


def test_class_names_are_unique() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sources().values():
        for node in ast.walk(parse_python(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_files_are_not_too_long() -> None:
    folders = ("src", "tests", "benchmarks", "examples")
    paths = [path for folder in folders for path in sorted((PROJECT / folder).rglob("*.py"))]
    lengths = {str(path.relative_to(PROJECT)): len(path.read_text().splitlines()) for path in paths}
    assert {path: lines for path, lines in lengths.items() if lines > MAX_LINES} == {}
    assert len((PROJECT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def printed_by(program: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_importing_budgets_loads_nothing_heavy() -> None:
    loaded = printed_by(
        "import sys; before = set(sys.modules)\n"
        "from flyball import IterationBudget, IterationBudgetRegistry, Settings\n"
        "IterationBudgetRegistry(settings={}).create('conversation_turns').consume()\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    assert "flyball" in loaded
    assert not loaded & {"asyncio", "anyio", "pydantic", "httpx", "httpx2", "tomllib", "typer", "rich", "difflib"}


@pytest.mark.parametrize("statement", ["from flyball import Agent", "from flyball import govern, Limits"])
def test_importing_an_entry_point_loads_nothing_that_only_a_run_needs(statement: str) -> None:
    loaded = printed_by(f"import sys; before = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))")
    packages = {"anyio", "genai_prices", "httpx2", "pydantic", "pydantic_core"}
    library = {"asyncio", "email", "logging", "pathlib", "sqlite3", "ssl", "subprocess", "tempfile", "tomllib"}
    ours = {f"flyball.{name}" for name in ("event", "loop", "message", "models", "rules", "runtime", "store", "tools")}
    assert "flyball.budget.limits" in loaded
    assert loaded & (packages | library | ours) == set()


def test_importing_the_package_alone_loads_no_module_of_it() -> None:
    program = "import sys, flyball; print(*[name for name in sys.modules if name.startswith('flyball.')])"
    assert printed_by(program) == set()
