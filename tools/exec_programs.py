"""Real command lines under `flyball exec`: their commands, stories, and what must come of them.

Each runs in an empty home, with a scripted provider and a stand-in for everything outside this machine.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exec_install import NotInstalled, find_node, install
from exec_stand_in import Arrival, StandIn

from flyball import FlyballError, Limits
from flyball.gateway import Execution, GatewayOptions, execute
from flyball.testing import LoopingProvider
from flyball.testing.server import ReceivedRequest

TURNS = 5
REPORT = "The report: the task is not finished."
PROMPT = "Count for ever."
_SECONDS = 100.0
_DIRECT_S = 30.0
TOKEN = re.compile(r"flyball-[0-9a-f]{20,}|127\.0\.0\.1:\d+/[0-9a-f]{20,}")
"""Stand-in key, or address with a token."""
KEYS = {
    "OPENAI_API_KEY": "sk-no-real-key",
    "ANTHROPIC_API_KEY": "sk-ant-api03-no-real-key",
    "GEMINI_API_KEY": "AIza-no-real-key",
}


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Program with its command, as a user types it, and what its story expects."""

    name: str
    """Name of its lock."""
    command: tuple[str, ...]
    story: str = ""
    tool: str | None = None
    """Tool that the model calls. None means the first one."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """More variables. `{url}` is the address of the provider."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Files of the home, by path. `{url}` is the address of the provider. They must not be changed."""
    has_keys: bool = True
    """Whether the environment has the keys. Otherwise the files have them."""
    provider: Callable[[], LoopingProvider] | None = None
    """Builds the provider of its story."""
    upstream: str | None = None
    """Provider that `--upstream` names."""
    side_requests: int | None = 0
    """Requests beside the loop that it makes. None means at least one."""
    check: Callable[[Outcome], Iterator[str]] | None = None
    """What the story must show."""

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.name}, {self.story}" if self.story else self.name

    def build_provider(self) -> LoopingProvider:
        """Return the provider of the story."""
        if self.provider is not None:
            return self.provider()
        return LoopingProvider(report=REPORT, tool=self.tool, arguments=self.arguments)


@dataclass(slots=True)
class Outcome:
    """Outcome of a program under the gateway."""

    line: CommandLine
    execution: Execution
    requests: Sequence[ReceivedRequest]
    reports: int
    refused: Sequence[str]
    arrivals: Sequence[Arrival]
    output: str
    changed_files: Sequence[str]
    """Files of the user that are not as they were."""
    seconds: float

    @property
    def side_requests(self) -> int:
        """Number of requests that were no turn and no report."""
        return len(self.requests) - self.reports - self.execution.result.turns

    def iter_problems(self) -> Iterator[str]:
        """Yield how the program deviates from what it must do."""
        execution, counted = self.execution, [chat for chat in self.execution.conversations if chat.turns]
        if execution.exit_code != 0:
            yield f"exit {execution.exit_code}"
        if execution.result.turns != TURNS:
            yield f"{execution.result.turns} turns"
        expected = max(1, self.side_requests) if self.line.side_requests is None else self.line.side_requests
        if self.side_requests != expected:
            yield f"{self.side_requests} requests beside the loop; expected {expected}"
        if self.reports != len(counted):
            yield f"{self.reports} reports for {len(counted)} conversations"
        yield from (f"refused: {reason}" for reason in self.refused)
        yield from (f"changed {name}" for name in self.changed_files)
        if TOKEN.search(self.output):
            yield "it printed a token"
        yield from (f"went out: {arrival}" for arrival in self.arrivals if arrival.asks_model)
        if execution.result.text != REPORT:
            yield f"the report of the run is {execution.result.text[:60]!r}"
        yield from () if self.line.check is None else self.line.check(self)

    def __str__(self) -> str:
        problems, result = "; ".join(self.iter_problems()), self.execution.result
        parts = [f"{result.turns} turns", f"{self.reports} for a report"]
        parts += [f"{self.side_requests} beside"] if self.side_requests else []
        parts += [f"{len(self.execution.conversations)} conversations", f"exit {self.execution.exit_code}"]
        hosts = sorted({arrival.host for arrival in self.arrivals})
        parts += [f"{self.seconds:.0f} s", *([f"tried {' '.join(hosts)}"] if hosts else [])]
        verdict = "FAIL" if problems else "ok  "
        return f"{verdict} {self.line.label:34} {', '.join(parts)}{f': {problems}' if problems else ''}"


@contextlib.contextmanager
def enter_home(line: CommandLine, stand_in: StandIn) -> Generator[dict[str, str]]:
    """Make an empty home with the files of a program, go to a work folder in it, and yield the environment."""
    executables = install(line.name)
    before = Path.cwd()
    home = Path(tempfile.mkdtemp(prefix="flyball-exec-"))
    try:
        work = home / "work"
        work.mkdir()
        os.chdir(work)
        xdg = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
        yield {
            "PATH": os.pathsep.join((str(executables), str(find_node()), "/usr/bin", "/bin")),
            "HOME": str(home),
            "TMPDIR": str(home),
            **{f"XDG_{name}_HOME": str(home / path) for name, path in xdg.items()},
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            **(KEYS if line.has_keys else {}),
            **stand_in.environment,
            **line.environment,
        }
    finally:
        os.chdir(before)
        shutil.rmtree(home, ignore_errors=True)


def write_files(line: CommandLine, home: Path, url: str) -> dict[Path, str]:
    """Write the files of a program into its home, and return what they have."""
    files = {home / name: text.replace("{url}", url) for name, text in line.files.items()}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return files


def govern(line: CommandLine) -> Outcome:
    """Run a program under a gateway. Raises NotInstalled."""
    with StandIn() as stand_in, line.build_provider() as provider, enter_home(line, stand_in) as home:
        named = {name: value.replace("{url}", provider.url) for name, value in line.environment.items()}
        environment = {
            **home,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "ANTHROPIC_BASE_URL": provider.url,
            "GOOGLE_GEMINI_BASE_URL": provider.url,
            **named,
        }
        named_upstreams = {line.upstream: environment[f"{line.upstream.upper()}_BASE_URL"]} if line.upstream else {}
        options = GatewayOptions(
            limits=Limits(turns=TURNS, seconds=_SECONDS), environment=environment, upstreams=named_upstreams
        )
        files = write_files(line, Path(home["HOME"]), provider.url)
        started = time.monotonic()
        with capture_output() as output:
            execution = execute(line.command, options, lambda gateway: None)
        return Outcome(
            line=line,
            execution=execution,
            requests=tuple(provider.requests),
            reports=provider.last_requests,
            refused=tuple(provider.refused),
            arrivals=tuple(stand_in.arrivals),
            output=output(),
            changed_files=[str(path) for path, text in files.items() if path.read_text() != text],
            seconds=time.monotonic() - started,
        )


def run_free(line: CommandLine) -> Sequence[Arrival]:
    """Run a program without a gateway, until it asks a model outside, and return what it asked.

    It proves that the stand-in sees a program that goes around the gateway.
    """
    with StandIn() as stand_in, enter_home(line, stand_in) as environment:
        outside = "https://api.openai.com"
        direct = {name: value.replace("{url}", outside) for name, value in environment.items()}
        write_files(line, Path(environment["HOME"]), outside)
        run_bounded(line.command, direct, stand_in.asked_model)
        return [arrival for arrival in stand_in.arrivals if arrival.asks_model]


def run_bounded(command: Sequence[str], environment: Mapping[str, str], until: threading.Event | None = None) -> None:
    """Run a program without a gateway, until an event is set, it ends, or its time is over."""
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True, executable=shutil.which(command[0], path=environment["PATH"]),
    )  # fmt: skip
    try:
        if until is not None:
            until.wait(_DIRECT_S)
        else:
            process.wait(_DIRECT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def capture_output() -> Generator[Callable[[], str]]:
    """Capture what this process and its children write, and give them no input."""
    with tempfile.TemporaryFile() as file, Path(os.devnull).open("rb") as nothing:
        saved = [os.dup(number) for number in range(3)]
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)

        def read() -> str:
            file.seek(0)
            return file.read().decode(errors="replace")

        texts: list[str] = []
        try:
            yield lambda: texts[0] if texts else ""
        finally:
            for number, copy in enumerate(saved):
                os.dup2(copy, number)
                os.close(copy)
            texts.append(read())


def run_programs(lines: Sequence[CommandLine]) -> tuple[int, int]:
    """Run programs and print a row for each. Return how many were good, and how many were tried."""
    good = tried = 0
    for line in lines:
        tried += 1
        try:
            outcome = govern(line)
        except (NotInstalled, FlyballError) as reason:
            print(f"FAIL {line.label:34} {reason}", flush=True)
            continue
        good += not any(outcome.iter_problems())
        print(outcome, flush=True)
    return good, tried


def check_stand_in(lines: Sequence[CommandLine]) -> tuple[int, int]:
    """Run programs without a gateway: the stand-in must see each. Return how many it saw, and how many were tried."""
    seen = 0
    for line in lines:
        try:
            arrivals = run_free(line)
        except NotInstalled as reason:
            print(f"FAIL {line.label:34} {reason}", flush=True)
            continue
        seen += bool(arrivals)
        verdict = f"seen {line.label:34} {arrivals[0]}" if arrivals else f"FAIL {line.label:34} nothing arrived"
        print(verdict, flush=True)
    return seen, len(lines)
