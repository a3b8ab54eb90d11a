"""Checks of an installation: Python, extras, models, tools, MCP and core rules."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from tempfile import TemporaryDirectory

from .._internal.distribution import DISTRIBUTION, format_install
from ..agent.agent import Agent
from ..errors import FlyballError
from ..models.by_name import KEY_VARIABLES
from ..outcome import Outcome
from ..request import Call
from ..rules import RuleSet
from ..rules.trial import failures
from ..settings import Settings
from ..testing import ScriptedModel, call, say
from ..tools import BoundedToolExecutor, Tool
from .check import Check, Hint

LOCAL = "local:smollm2"
OLDEST = (3, 11)
CORE = (
    "iteration-budget-warning", "last-turn-warning", "token-budget-warning", "cost-budget-warning",
    "deadline-budget-warning", "repeated-failure-warning", "large-result-hint",
)  # fmt: skip
_REQUIREMENT = re.compile(r"([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w-]+)['\"]")
_SERVER_CODE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("doctor", log_level="ERROR")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""


def installation_checks() -> list[Check]:
    """Return all checks; none uses the network."""
    tools = {"files": _check_files, "python": _check_python_tool, "shell": _check_shell, "fetch": _check_fetch}
    tool_names = ["fetch"] if sys.platform == "win32" else [*tools]
    return [
        Check(f"python {platform.python_version()}", _check_python_version),
        *[Check(f"extra {name}", partial(_check_extra, name, packages)) for name, packages in read_extras().items()],
        *[Check(f"key of {provider}", partial(_check_key, variable)) for provider, variable in KEY_VARIABLES.items()],
        Check(f"model {LOCAL}", _check_local_model),
        Check("model that is asked by default", _check_default_model),
        *[Check(f"toolbox {name}", tools[name]) for name in tool_names],
        Check("tools of an MCP server", _check_mcp),
        Check("core rules load", _check_core_loads),
        Check("core rules pass their own tests", _check_core_tests),
    ]


def read_extras() -> dict[str, list[str]]:
    """Return the packages of each extra, from the metadata of the installed package."""
    try:
        required = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # runs from a source folder
        return {}
    extras: dict[str, list[str]] = {}
    for requirement in required:
        if parsed := _REQUIREMENT.match(requirement):
            extras.setdefault(parsed[2], []).append(parsed[1])
    return extras


def _check_python_version() -> Iterator[str]:
    if sys.version_info < OLDEST:
        yield f"found {platform.python_version()}; expected {'.'.join(map(str, OLDEST))} or later"


def _check_extra(name: str, packages: Sequence[str]) -> Iterator[str]:
    missing = [package for package in packages if not _is_installed(package)]
    if missing:
        yield Hint(f"{', '.join(missing)} missing; {format_install(name)}")


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _check_key(variable: str) -> Iterator[str]:
    if not os.environ.get(variable):
        yield Hint(f"{variable} is not set")


def _check_local_model() -> Iterator[str]:
    from ..models import named

    try:
        missing = named(LOCAL).ready()
    except FlyballError:
        missing = "not available in this version"
    if missing:
        yield Hint(missing)


def _check_default_model() -> Iterator[str]:
    """Check whether the model named in the settings can be asked."""
    from ..models import named

    setting = Settings.load().find("model")
    if setting is None:
        yield Hint("not set; use FLYBALL_MODEL, model in flyball.toml, or --model")
    elif not isinstance(setting.value, str):
        yield str(setting.error("the name of a model"))
    elif missing := named(setting.value, setting.source).ready():
        yield f"{setting.value} ({setting.source}): {missing}"


def _check_files() -> Iterator[str]:
    from ..toolbox import files, write

    with TemporaryDirectory(prefix="flyball-doctor-") as folder:
        tools = [*files(folder), *write(folder)]
        written, read, outside = _call_tools(
            tools,
            ("write_file", {"path": "a.txt", "text": "steam"}),
            ("read_file", {"path": "a.txt"}),
            ("read_file", {"path": "../a.txt"}),
        )
        yield from _report_failure("write", written.ok, written)
        yield from _report_failure("read", "steam" in read.text, read)
        yield from _report_failure("stay below its root", not outside.ok, outside)


def _check_python_tool() -> Iterator[str]:
    from ..toolbox import python

    yield from _check_program(python, "python", {"code": "print(6 * 7)"})


def _check_shell() -> Iterator[str]:
    from ..toolbox import shell

    yield from _check_program(shell, "shell", {"command": "echo 42"})


def _check_program(make: Callable[..., list[Tool]], name: str, arguments: Mapping[str, str]) -> Iterator[str]:
    with TemporaryDirectory(prefix="flyball-doctor-") as folder:
        [ran] = _call_tools(make(folder, approve=False), (name, arguments))
        yield from _report_failure("run a program", ran.ok and "42" in ran.text, ran)


def _check_fetch() -> Iterator[str]:
    from ..toolbox import fetch

    [refused] = _call_tools(fetch(), ("fetch", {"url": "http://127.0.0.1:9/"}))
    yield from _report_failure(
        "refuse an address of this machine", "expected a public or allowed address" in refused.text, refused
    )


def _check_mcp() -> Iterator[str]:
    """Check that a freshly started MCP server answers a call."""
    if not _is_installed("mcp"):
        yield Hint(f"needs the extra 'mcp': {format_install('mcp')}")
        return
    from ..tools import mcp

    server = mcp([sys.executable, "-c", _SERVER_CODE], name="the doctor's server")
    agent = Agent(model=ScriptedModel(call("add", a=40, b=2), say("42")), tools=[server], settings=Settings())
    result = agent.run("What is 40 + 2?")
    if not (result.completed and result.tool_results[0].ok):
        yield result.explain()


def _check_core_loads() -> Iterator[str]:
    """Check that the rule files were installed with the package."""
    core = RuleSet.core()
    yield from map(str, core.problems)
    enabled_ids = {rule.id for rule in core if rule.core and rule.enabled}
    yield from (f"{id_} is missing or disabled" for id_ in CORE if id_ not in enabled_ids)


def _check_core_tests() -> Iterator[str]:
    for rule in RuleSet.core():
        yield from failures(rule)


def _call_tools(tools: Sequence[Tool], *calls: tuple[str, Mapping[str, str]]) -> Sequence[Outcome]:
    requested = [Call(str(n), name, dict(arguments)) for n, (name, arguments) in enumerate(calls)]
    return BoundedToolExecutor(tools).execute(*requested)


def _report_failure(action: str, succeeded: bool, outcome: Outcome) -> Iterator[str]:
    if not succeeded:
        yield f"could not {action}: {outcome.text}"
