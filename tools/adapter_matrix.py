"""Test each adapter with the oldest and the newest release of its framework: `make test-adapters`.

Each release has an environment of its own below `.venv/adapters`, made from a package index. Its tests are those of the
adapter, its stories, and its programs in docs/adapters.md. A test that is skipped fails. The table at the end has a
line for each environment.

`make test-adapters ARGS="litellm claude"` tests some, `ARGS=litellm-newest` one environment. With `SNAPSHOTS=write` the
stories store their verdicts and write the table of docs/adapters.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.adapters import frameworks
from flyball.adapters.frameworks import Framework

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".venv" / "adapters"
TIMEOUT_S = 600
TOOLS = ("pytest", "hypothesis", "anyio", "trio")
"""Packages of the tests, in their locked versions."""
EXTRAS = "cli,gateway"
OFFLINE = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}
"""Variables without which frameworks ask the network for what no test needs."""


@dataclass(frozen=True)
class Adapted:
    """Framework, with what its tests need besides: packages for the oldest and for the newest release."""

    framework: Framework
    with_oldest: tuple[str, ...] = ()
    with_newest: tuple[str, ...] = ()
    extra: str = ""
    """Extra of the framework's package."""


CREWAI = Framework("CrewAI", "crewai", "crewai", "1.10.1", "1.15.30")
AGNO = Framework("Agno", "agno", "agno", "2.5.0", "3.1.10")
SMOLAGENTS = Framework("smolagents", "smolagents", "smolagents", "1.20.0", "1.26.0")
ADAPTED = {
    "openai_agents": Adapted(frameworks.OPENAI_AGENTS, ("openai==2.30.0",)),
    "langchain": Adapted(
        frameworks.LANGCHAIN,
        ("langchain-openai==1.0.0", "langchain-anthropic==1.0.0"),
        ("langchain-openai==1.7.3", "langchain-anthropic==1.7.7"),
    ),
    "pydantic_ai": Adapted(
        frameworks.PYDANTIC_AI,
        ("openai==2.45.0", "anthropic==0.108.0"),
        ("openai==3.51.0", "anthropic==2.10.0"),
        "[openai,anthropic]",
    ),
    "litellm": Adapted(frameworks.LITELLM, ("openai==2.30.0",), ("mcp==2.3.0",)),
    "claude": Adapted(frameworks.CLAUDE),
    "crewai": Adapted(CREWAI),
    "agno": Adapted(AGNO, ("openai==2.54.0",), ("openai==3.51.0",)),
    "smolagents": Adapted(SMOLAGENTS, ("openai==2.54.0",), ("openai==3.51.0",), "[openai]"),
}


@dataclass(frozen=True)
class Environment:
    """Environment of one release of a framework."""

    module: str
    age: str
    version: str
    packages: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.module}-{self.age}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return ENVIRONMENTS / self.name / "bin" / "python"

    def install(self, uv: str) -> None:
        """Make the environment, unless it is there with the same packages."""
        ready, wanted = ENVIRONMENTS / self.name / "ready", "\n".join((*self.packages, *read_locked(TOOLS)))
        if ready.exists() and ready.read_text() == wanted:
            return
        subprocess.run([uv, "venv", "-q", "--clear", ENVIRONMENTS / self.name], check=True)
        install = [uv, "pip", "install", "-q", "-p", self.python, "-e", f"{ROOT}[{EXTRAS}]"]
        subprocess.run([*install, *wanted.splitlines()], check=True, timeout=TIMEOUT_S)
        ready.write_text(wanted)

    def test(self) -> Row:
        """Run the tests of the adapter in this environment."""
        report, started = ENVIRONMENTS / self.name / "report.xml", time.monotonic()
        report.unlink(missing_ok=True)
        paths = [f"tests/adapters/{name}" for name in (f"test_{self.module}.py", f"test_stories_{self.module}.py")]
        command = [
            self.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default", f"--junitxml={report}",
            *(path for path in paths if (ROOT / path).exists()), "tests/adapters/test_programs.py",
        ]  # fmt: skip
        environment = os.environ | OFFLINE | {"ADAPTER_UNDER_TEST": self.module}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
        row = Row(self, *count(report), time.monotonic() - started)
        if not row.is_good:
            print(done.stdout[-20_000:], done.stderr[-5_000:], sep="\n", flush=True)
        return row


@dataclass(frozen=True)
class Row:
    """Outcome of the tests in one environment."""

    environment: Environment
    tests: int
    stories: int
    programs: int
    failed: int
    skipped: int
    seconds: float

    @property
    def is_good(self) -> bool:
        """Whether all tests ran and passed, and there were some."""
        return self.tests + self.programs > 0 and not self.failed and not self.skipped

    def __str__(self) -> str:
        one = self.environment
        verdict = "ok  " if self.is_good else "FAIL"
        return (
            f"{verdict} {one.module:14} {one.age:7} {one.version:9} {self.tests:5} {self.stories:7} {self.programs:8} "
            f"{self.failed:6} {self.skipped:7} {self.seconds:5.0f}"
        )


HEADER = "     adapter        release version   tests stories programs failed skipped     s"


def count(report: Path) -> tuple[int, int, int, int, int]:
    """Return the numbers of tests, stories, programs, failures and skipped tests of a report."""
    if not report.exists():
        return 0, 0, 0, 1, 0
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    stories = sum("stories" in case.get("classname", "") for case in cases)
    programs = sum("programs" in case.get("classname", "") for case in cases)
    failed = sum(case.find("failure") is not None or case.find("error") is not None for case in cases)
    skipped = sum(case.find("skipped") is not None for case in cases)
    return len(cases) - stories - programs, stories, programs, failed, skipped


def read_locked(names: Sequence[str]) -> list[str]:
    """Return packages in their locked versions, such as `pytest==9.2.0`."""
    lock = (ROOT / "requirements.lock").read_text()
    return [found[0] for name in names for found in re.finditer(rf"^{name}==[^\s;]+", lock, re.MULTILINE)]


def iter_environments(names: Sequence[str]) -> Iterator[Environment]:
    """Yield the environments of these names, or all. An adapter's name means both of its environments."""
    for module, adapted in ADAPTED.items():
        framework = adapted.framework
        releases = {
            "oldest": (framework.oldest, adapted.with_oldest),
            "newest": (framework.newest, adapted.with_newest),
        }
        if framework.oldest == framework.newest:
            del releases["oldest"]
        for age, (version, packages) in releases.items():
            wanted = (f"{framework.package}{adapted.extra}=={version}", *packages)
            environment = Environment(module, age, version, wanted)
            if not names or module in names or environment.name in names:
                yield environment


def main() -> int:
    """Test the adapters named, or all, and return the exit code."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    environments = list(iter_environments(sys.argv[1:]))
    if not environments:
        sys.exit(f"unknown adapter; there are {', '.join(ADAPTED)}, each also with -oldest or -newest")
    rows: list[Row] = []
    for environment in environments:
        environment.install(uv)
        rows.append(environment.test())
        print(rows[-1], flush=True)
    if os.environ.get("SNAPSHOTS") == "write":
        subprocess.run([sys.executable, ROOT / "tests" / "adapters" / "stories" / "table.py"], check=True)
    print("", HEADER, *rows, sep="\n")
    good = sum(row.is_good for row in rows)
    print(f"{good} of {len(rows)} environments in {sum(row.seconds for row in rows):.0f} s")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
