"""Known command lines, each a stand-in that finds its address as the real one does."""

import json
import runpy
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flyball import Limits
from flyball.errors import Ungoverned
from flyball.gateway.execution import Execution, execute
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.gateway.programs import KNOWN_PROGRAMS, create_launch
from flyball.gateway.programs.recognition import identify
from flyball.testing.server import LoopingProvider

from .conftest import PROGRAMS, environment_for

CODING_CLI = runpy.run_path(str(PROGRAMS / "coding_cli.py"))
TURNS = 2
REPORT = "The report: the task is not finished."
REAL_KEYS = ("sk-real", "sk-ant-api03-real", "AIza-real")


class Machine:
    """A home with settings, the stand-ins on a PATH, a provider, and a server where programs would go directly."""

    def __init__(self, folder: Path, provider: LoopingProvider, direct: LoopingProvider) -> None:
        self.home, self.provider, self.direct = folder / "home", provider, direct
        self.home.mkdir()
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.changes: tuple[str, ...] = ()
        for name in ("claude", "codex", "opencode", "gemini", "copilot", "qwen", "cn", "pi", "cline", "mini", "llm",
                     "interpreter", "aider", "amp"):  # fmt: skip
            script = self.bin / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "coding_cli.py"} {name} "$@"\n')
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def write(self, path: str, content: Any) -> None:
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))

    def environment(self, **more: str | None) -> dict[str, str]:
        given = environment_for(
            self.provider,
            OPENAI_API_KEY="sk-real",
            ANTHROPIC_API_KEY="sk-ant-api03-real",
            GEMINI_API_KEY="AIza-real",
            HOME=str(self.home),
            PATH=f"{self.bin}:/usr/bin:/bin",
            DIRECT_URL=self.direct.url,
        )
        for name in ("CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "CLAUDE_CONFIG_DIR"):
            given.pop(name, None)
        merged = given | {name: value for name, value in more.items() if value is not None}
        return {name: value for name, value in merged.items() if name not in more or more[name] is not None}

    def run(self, *command: str, **more: str | None) -> Execution:
        """Run a stand-in in a process of its own."""
        options = GatewayOptions(limits=Limits(turns=TURNS), environment=self.environment(**more))

        def note(gateway: Gateway) -> None:
            self.changes = tuple(gateway.changes)

        return execute(list(command), options, note)

    def play(self, *command: str, **more: str | None) -> tuple[str, Gateway]:
        """Run a stand-in in this process, which is faster. Returns its text and the gateway."""
        with create_launch([str(self.bin / command[0]), *command[1:]], self.environment(**more)) as launch:
            launch.prepare()
            options = GatewayOptions(
                limits=Limits(turns=TURNS), environment=launch.environment, own_keys=launch.own_keys
            )
            with Gateway(options) as gateway:
                launch.point(gateway.environment, gateway.addresses)
                self.changes = launch.describe_changes()
                return CODING_CLI["run"](command[0], launch.arguments, launch.governed), gateway

    def read_files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.home.rglob("*") if path.is_file()}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    with LoopingProvider() as provider, LoopingProvider() as direct:
        yield Machine(tmp_path, provider, direct)


CLINE_STATE = {
    "version": 1,
    "lastUsedProvider": "openai-native",
    "modes": {},
    "providers": {"openai-native": {"settings": {"provider": "openai-native", "apiKey": "sk-real"}}},
}
CONTINUE_CONFIG = """\
models:
  - name: claude
    provider: anthropic
    model: claude-sonnet-4-5
    apiKey: sk-ant-api03-real
"""
CASES: dict[str, tuple[list[str], dict[str, Any], dict[str, str | None]]] = {
    "claude": (["claude", "-p", "x"], {}, {}),
    "claude, settings": (
        ["claude", "-p", "x"],
        {".claude/settings.json": {"env": {"ANTHROPIC_BASE_URL": "DIRECT", "ANTHROPIC_API_KEY": "sk-ant-api03-real"}}},
        {"ANTHROPIC_API_KEY": None},
    ),
    "codex": (["codex", "exec", "x"], {}, {}),
    "codex, own key": (
        ["codex", "exec", "x"],
        {".codex/auth.json": {"OPENAI_API_KEY": "sk-real", "tokens": None}},
        {"OPENAI_API_KEY": None},
    ),
    "codex, own provider": (
        ["codex", "-c", 'model_provider="acme"', "exec", "x"],
        {".codex/config.toml": '[model_providers.acme]\nbase_url = "DIRECT"\nenv_key = "ACME_KEY"\n'},
        {"ACME_KEY": "sk-real", "OPENAI_API_KEY": None},
    ),
    "opencode": (["opencode", "run", "x"], {}, {}),
    "opencode, own key": (
        ["opencode", "run", "x"],
        {".local/share/opencode/auth.json": {"anthropic": {"type": "api", "key": "sk-ant-api03-real"}}},
        {"ANTHROPIC_API_KEY": None},
    ),
    "gemini": (
        ["gemini", "-p", "x"],
        {".gemini/settings.json": {"security": {"auth": {"selectedType": "oauth-personal"}}}},
        {},
    ),
    "gemini, .env": (["gemini", "-p", "x"], {".gemini/.env": "GEMINI_API_KEY=AIza-real"}, {"GEMINI_API_KEY": None}),
    "copilot": (
        ["copilot", "-p", "x"],
        {},
        {"COPILOT_PROVIDER_BASE_URL": "PROVIDER/v1", "COPILOT_PROVIDER_API_KEY": "sk-real", "OPENAI_API_KEY": None},
    ),
    "qwen": (["qwen", "-p", "x"], {}, {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}),
    "cn": (["cn", "-p", "x"], {".continue/config.yaml": CONTINUE_CONFIG}, {}),
    "cn, no file": (["cn", "-p", "x"], {}, {}),
    "pi": (["pi", "-p", "x"], {}, {}),
    "pi, own key": (
        ["pi", "-p", "x"],
        {".pi/agent/auth.json": {"anthropic": {"type": "api_key", "key": "sk-ant-api03-real"}}},
        {"ANTHROPIC_API_KEY": None},
    ),
    "cline": (["cline", "x"], {".cline/data/settings/providers.json": CLINE_STATE}, {"OPENAI_API_KEY": None}),
    "mini": (["mini", "-t", "x"], {}, {}),
    "llm": (["llm", "x"], {".config/io.datasette.llm/keys.json": {"openai": "sk-real"}}, {"OPENAI_API_KEY": None}),
    "interpreter": (["interpreter", "-y"], {}, {}),
    "aider": (["aider", "--message", "x"], {".env": "OPENAI_API_KEY=sk-real"}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_known_program_asks_the_gateway_and_its_files_stay(machine: Machine, case: str) -> None:
    command, files, variables = CASES[case]
    for path, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        machine.write(path, text.replace("DIRECT", f"{machine.provider.url}{'/v1' if 'toml' in path else ''}"))
    before = machine.read_files()
    given = {name: value and value.replace("PROVIDER", machine.provider.url) for name, value in variables.items()}
    text, gateway = machine.play(*command, **given)
    assert text == REPORT
    assert machine.direct.requests == []
    assert (len(machine.provider.requests), machine.provider.last_requests) == (TURNS + 1, 1)
    assert (gateway.result.turns, len(gateway.chats)) == (TURNS, 1)
    sent = [request.headers for request in machine.provider.requests]
    assert all(any(key in str(headers) for key in REAL_KEYS) for headers in sent)
    assert not any("flyball" in str(headers) for headers in sent)
    after = machine.read_files()
    assert before == {path: content for path, content in after.items() if not path.endswith("sessions.txt")}
    if case.startswith("pi"):
        assert (machine.home / ".pi/agent/sessions.txt").read_text() == "a session"
    assert not any("127.0.0.1" in change for change in machine.changes)


@pytest.mark.parametrize("command", [["claude", "-p", "x"], ["codex", "exec", "x"]], ids=lambda command: command[0])
def test_a_known_program_ends_by_itself_with_its_report(
    machine: Machine, capfd: pytest.CaptureFixture[str], command: list[str]
) -> None:
    execution = machine.run(*command)
    assert capfd.readouterr().out.strip() == REPORT
    assert (execution.exit_code, execution.result.stop.value) == (0, "budget")
    assert len(machine.changes) == 1
    assert machine.direct.requests == []


REFUSALS: dict[str, tuple[list[str], dict[str, Any], dict[str, str | None], str]] = {
    "amp": (["amp", "-x", "x"], {}, {}, "its loop runs at its vendor"),
    "codex, ChatGPT": (
        ["codex", "exec", "x"],
        {".codex/auth.json": {"tokens": {"access_token": "jwt"}}},
        {"OPENAI_API_KEY": None},
        "set CODEX_API_KEY",
    ),
    "codex, cloud": (["codex", "-m", "x", "cloud", "exec"], {}, {}, "runs at its vendor"),
    "codex, profile": (
        ["codex", "-p", "mine", "exec", "x"],
        {".codex/mine.config.toml": 'model_provider = "ollama"'},
        {},
        "on this machine",
    ),
    "codex, project": (
        ["codex", "exec", "x"],
        {"../work/.codex/config.toml": 'model_provider = "acme"'},
        {},
        "names a provider",
    ),
    "codex, local": (["codex", "--oss", "exec", "x"], {}, {}, "leave out --oss"),
    "copilot": (["copilot", "-p", "x"], {}, {}, "COPILOT_PROVIDER_BASE_URL"),
    "gemini": (["gemini", "-p", "x"], {}, {"GEMINI_API_KEY": None}, "set GEMINI_API_KEY"),
    "gemini, Vertex": (["gemini"], {".gemini/.env": "GOOGLE_GENAI_USE_VERTEXAI=true"}, {}, "Vertex"),
    "qwen": (["qwen", "-p", "x"], {}, {"OPENAI_API_KEY": None}, "login with Qwen"),
    "qwen, own": (
        ["qwen"],
        {".qwen/settings.json": {"modelProviders": {"openai": [{"id": "x"}]}}},
        {},
        "modelProviders",
    ),
    "cline": (
        ["cline", "x"],
        {".cline/data/settings/providers.json": {"lastUsedProvider": "anthropic"}},
        {},
        "cline auth",
    ),
    "claude, Bedrock": (
        ["claude", "-p", "x"],
        {".claude/settings.json": '{"env": {"CLAUDE_CODE_USE_BEDROCK": "1"}} // for work'},
        {},
        "CLAUDE_CODE_USE_BEDROCK (Bedrock) in the settings of Claude Code",
    ),
    "claude, unreadable": (["claude"], {".claude/settings.json": "{env"}, {}, "is no JSON object"),
    "opencode": (["opencode", "run", "-m", "groq/x"], {}, {}, "anthropic/…"),
    "opencode, login": (
        ["opencode", "run", "-m", "openai/gpt-5"],
        {".local/share/opencode/auth.json": {"openai": {"type": "oauth"}}},
        {},
        "login with a subscription",
    ),
    "pi": (["pi", "--provider", "github-copilot", "x"], {}, {}, "github-copilot"),
    "cn": (["cn"], {".continue/config.yaml": "models:\n  - uses: anthropic/x\n"}, {}, "hub"),
    "cn, other": (["cn"], {".continue/config.yaml": "models:\n  - provider: bedrock\n"}, {}, "bedrock"),
    "mini": (["mini", "-m", "bedrock/x"], {}, {}, "bedrock/x"),
    "aider": (["aider"], {".env": "OPENAI_API_BASE=http://x"}, {}, "beats the environment"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_known_program_that_would_go_around_is_refused_before_the_start_with_what_works(
    machine: Machine, case: str
) -> None:
    command, files, variables, reason = REFUSALS[case]
    for path, content in files.items():
        machine.write(path, content)
    with pytest.raises(Ungoverned) as caught:
        machine.run(*command, **variables)
    message = str(caught.value)
    assert message.startswith("NOT GOVERNED: ")
    assert reason in message
    assert "\n" not in message
    assert "--allow-ungoverned" in message
    assert machine.direct.requests == machine.provider.requests == []


@pytest.mark.parametrize(
    ("command", "name", "start"),
    [
        ("codex exec x", "codex", 1),
        ("/opt/bin/codex exec x", "codex", 1),
        ("npx codex exec x", "codex", 2),
        ("npx -y @openai/codex@latest exec x", "codex", 3),
        ("npm exec -- @anthropic-ai/claude-code -p x", "claude", 4),
        ("pnpm dlx opencode-ai run x", "opencode", 3),
        ("bunx @google/gemini-cli -p x", "gemini", 2),
        ("uvx --from mini-swe-agent mini -t x", "mini", 4),
        ("uvx llm x", "llm", 2),
        ("uv run aider x", "aider", 3),
        ("uv run python -m aider x", "aider", 5),
        ("python3.12 -m minisweagent.run.mini x", "mini", 3),
        ("python /venv/bin/interpreter -y", "interpreter", 2),
        ("node /x/node_modules/@qwen-code/qwen-code/cli.js -p x", "qwen", 2),
        ("env A=1 cn -p x", "cn", 3),
    ],
)
def test_a_known_program_is_recognised_however_it_is_started(command: str, name: str, start: int) -> None:
    program, first = identify(command.split(), KNOWN_PROGRAMS)
    assert program is not None
    assert (program.name, first) == (name, start)


@pytest.mark.parametrize(
    "command",
    ["python agent.py", "node agent.js", "npx vitest", "python -c codex", "uv sync", "npx", "env A=1", "ls codex"],
)
def test_another_program_is_not_taken_for_a_known_one(command: str) -> None:
    assert identify(command.split(), KNOWN_PROGRAMS)[0] is None


def test_a_program_is_recognised_by_the_package_that_its_link_leads_to(tmp_path: Path) -> None:
    script = tmp_path / "node_modules/@openai/codex/bin/codex.js"
    script.parent.mkdir(parents=True)
    script.touch()
    (tmp_path / "my-codex").symlink_to(script)
    program, _ = identify([str(tmp_path / "my-codex")], KNOWN_PROGRAMS)
    assert program is not None
    assert program.name == "codex"


def test_options_of_the_user_that_would_win_are_read_and_replaced(machine: Machine) -> None:
    url = f"{machine.provider.url}/v1"
    command = ["codex", "exec", "-c", f'openai_base_url="{machine.direct.url}"', "-c", "model=x", "task"]
    launch = create_launch(command, machine.environment(), ())
    launch.prepare()
    assert launch.environment["OPENAI_BASE_URL"] == machine.direct.url
    assert launch.command == ["codex", "exec", "-c", "model=x", "task"]
    command = ["claude", "--settings", json.dumps({"env": {"ANTHROPIC_BASE_URL": url}, "model": "opus"}), "-p", "x"]
    launch = create_launch(command, machine.environment(), ())
    launch.prepare()
    assert launch.environment["ANTHROPIC_BASE_URL"] == url
    with Gateway(GatewayOptions(environment=launch.environment)) as gateway, launch:
        launch.point(gateway.environment, gateway.addresses)
        settings = json.loads(Path(launch.command[2]).read_text())
        assert (settings["model"], launch.command[3:]) == ("opus", ["-p", "x"])
        assert settings["env"]["ANTHROPIC_BASE_URL"].startswith("http://127.0.0.1:")
        assert Path(launch.command[2]).stat().st_mode & 0o077 == 0
    assert not Path(launch.command[2]).exists()
