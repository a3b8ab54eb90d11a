"""The real command lines of `make test-exec`, and their stories."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from exec_programs import PROMPT, REPORT, CommandLine, Outcome, enter_home, run_bounded, write_files
from exec_stand_in import PRELOAD, StandIn

from flyball.models.scripted import Line
from flyball.testing import call, say
from flyball.testing.server import LoopingProvider

Json = dict[str, Any]

_SHELL = {"command": "echo {n}", "description": "count"}
_CN_CONFIG = """name: test
version: 0.0.1
schema: v1
models:
  - name: test
    provider: anthropic
    model: claude-sonnet-4-5
    apiKey: sk-ant-api03-no-real-key
"""
CLAUDE = CommandLine("claude", ("claude", "-p", PROMPT, "--allowedTools", "Bash"), tool="Bash", arguments=_SHELL)
CODEX = CommandLine("codex", ("codex", "exec", "--skip-git-repo-check", PROMPT), arguments={"input": "text('{n}')"})
OPENCODE = CommandLine("opencode", ("opencode", "run", PROMPT), tool="bash", arguments=_SHELL, side_requests=1)
GEMINI = CommandLine("gemini", ("gemini", "--skip-trust", "-y", "-p", PROMPT), side_requests=1)
QWEN = CommandLine(
    "qwen",
    ("qwen", "-y", "-p", PROMPT, "--auth-type", "openai", "-m", "gpt-4o"),
    tool="run_shell_command",
    arguments=_SHELL,
    environment={"NODE_OPTIONS": f"--require {PRELOAD}"},  # its proxy is taken out
)
PI = CommandLine("pi", ("pi", "--provider", "anthropic", "-p", PROMPT), tool="bash", arguments=_SHELL)
COPILOT = CommandLine(
    "copilot",
    ("copilot", "-p", PROMPT, "--allow-all-tools"),
    tool="bash",
    arguments=_SHELL,
    environment={
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_WIRE_API": "responses",
        "COPILOT_PROVIDER_BASE_URL": "{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "sk-no-real-key",
        "COPILOT_MODEL": "gpt-5.4",
    },
)
CONTINUE = CommandLine(
    "cn",
    ("cn", "--config", "../cn.yaml", "--auto", "-p", PROMPT),
    tool="Bash",
    arguments=_SHELL,
    files={"cn.yaml": _CN_CONFIG},
)
_CLINE_LOGIN = {
    "version": 1,
    "modes": {},
    "lastUsedProvider": "openai-native",
    "providers": {
        "openai-native": {
            "settings": {"provider": "openai-native", "apiKey": "sk-no-real-key", "model": "gpt-5.4"},
            "updatedAt": "2026-01-01T00:00:00.000Z",
            "tokenSource": "manual",
        }
    },
}
CLINE = CommandLine(
    "cline",
    ("cline", PROMPT),
    tool="run_commands",
    arguments={"commands": ["echo {n}"]},
    files={".cline/data/settings/providers.json": json.dumps(_CLINE_LOGIN)},
)
MINI = CommandLine(
    "mini",
    ("mini", "-y", "-m", "openai/gpt-4o", "-t", PROMPT, "--exit-immediately"),
    arguments=_SHELL,
    environment={"MSWEA_CONFIGURED": "1", "MSWEA_COST_TRACKING": "ignore_errors"},
)
LLM = CommandLine("llm", ("llm", "-m", "gpt-4o", "--cl", "0", "-T", "llm_version", PROMPT))

NOT_TRIED = {
    "interpreter": "html2text, which Open Interpreter needs, has no wheel",
    "aider": "it has no loop of its own",
    "amp": "it is refused before the start",
}
"""Known programs without a lock, with the reason."""
PROGRAMS = (CLAUDE, CODEX, OPENCODE, GEMINI, QWEN, PI, COPILOT, CONTINUE, CLINE, MINI, LLM)


def _compact(tool: str, result_chars: int, tokens_per_byte: float) -> Callable[[], LoopingProvider]:
    """Return a provider whose conversation grows until the program compacts it."""
    arguments = {"command": f"printf '%0{result_chars}d' {{n}}", "description": "count"}

    def answer(body: Json) -> Line | None:
        newest = json.dumps((body.get("messages") or body.get("input") or [None])[-1])
        is_compaction = "Do NOT call any tools" in newest  # Claude Code offers its tools all the same
        return say("<analysis>Counted.</analysis>\n<summary>The count goes on.</summary>") if is_compaction else None

    return lambda: LoopingProvider(
        answer, report=REPORT, tool=tool, arguments=arguments, tokens_per_byte=tokens_per_byte
    )


def _delegate(count: int) -> Callable[[], LoopingProvider]:
    """Return a provider that starts sub-agents in the background before it goes on."""

    def build() -> LoopingProvider:
        started: list[int] = []

        def answer(body: Json) -> Line | None:
            if len(started) == count or not any(tool.get("name") == "Agent" for tool in body.get("tools", ())):
                return None
            started.append(len(started))
            return call(
                "Agent", description="count", prompt=f"Count, part {len(started)}.", subagent_type="general-purpose",
                run_in_background=True,
            )  # fmt: skip

        return LoopingProvider(answer, report=REPORT, tool="Bash", arguments=_SHELL)

    return build


def _check_conversations(count: int) -> Callable[[Outcome], Iterator[str]]:
    def check(outcome: Outcome) -> Iterator[str]:
        if len(outcome.execution.conversations) < count:
            yield f"{len(outcome.execution.conversations)} conversations; expected {count}"

    return check


def _check_websocket(outcome: Outcome) -> Iterator[str]:
    if "failed to connect to Responses WebSocket" not in outcome.output:
        yield "it did not try a websocket"


def _check_zstd(outcome: Outcome) -> Iterator[str]:
    """Ask a server without a gateway, to see how the program encodes its bodies."""
    line = outcome.line
    with StandIn() as stand_in, LoopingProvider() as provider, enter_home(line, stand_in) as environment:
        write_files(line, Path(environment["HOME"]), provider.url)
        address = ("-c", f'openai_base_url="{provider.url}/v1"')
        run_bounded([*line.command, *address], environment)
        if [request.headers.get("content-encoding") for request in provider.requests[:1]] != ["zstd"]:
            yield "its bodies are not zstd"


def _encode(data: Json) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).decode().rstrip("=")


def _build_login() -> str:
    """Return a login file of Codex, with a token that only looks like one."""
    claims = {"email": "user@example.com", "exp": 4_102_444_800}
    account = {"chatgpt_plan_type": "pro", "chatgpt_account_id": "account", "chatgpt_user_id": "user"}
    token = ".".join(
        (_encode({"alg": "none", "typ": "JWT"}), _encode({**claims, "https://api.openai.com/auth": account}), "c2ln")
    )
    tokens = {"id_token": token, "access_token": token, "refresh_token": "none", "account_id": "account"}
    return json.dumps(
        {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2099-01-01T00:00:00Z"}
    )


def _to_text(content: str | Json) -> str:
    return content if isinstance(content, str) else json.dumps(content)


_OPENCODE_SCHEMA = {"$schema": "https://opencode.ai/config.json"}
"""Without it, opencode writes it into its file."""
_OPENCODE_CONFIG = _OPENCODE_SCHEMA | {
    "provider": {"anthropic": {"models": {"claude-sonnet-4-6": {"limit": {"context": 100_000, "output": 8_000}}}}}
}
_CODEX_LOGIN = replace(
    CODEX,
    story="login, zstd body",
    command=(*CODEX.command[:-1], "-c", "features.enable_request_compression=true", PROMPT),
    files={".codex/auth.json": _build_login()},
    has_keys=False,
    upstream="openai",
    check=_check_zstd,
)
_SK, _SK_ANT = "sk-no-real-key", "sk-ant-api03-no-real-key"
_PI_LOGIN = {"anthropic": {"type": "api_key", "key": _SK_ANT}}
OWN_SETTINGS = tuple(
    replace(line, story="own settings", has_keys=False, files={path: _to_text(each) for path, each in files.items()})
    for line, files in (
        (CLAUDE, {".claude/settings.json": {"env": {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": _SK_ANT}}}),
        (
            CODEX,
            {
                ".codex/config.toml": 'openai_base_url = "{url}/v1"\n',
                ".codex/auth.json": {"auth_mode": "apikey", "OPENAI_API_KEY": _SK},
            },
        ),
        (
            OPENCODE,
            {
                ".config/opencode/opencode.json": _OPENCODE_SCHEMA
                | {
                    "model": "anthropic/claude-sonnet-4-5",
                    "provider": {"anthropic": {"options": {"baseURL": "{url}/v1"}}},
                },
                ".local/share/opencode/auth.json": {"anthropic": {"type": "api", "key": _SK_ANT}},
            },
        ),
        (
            GEMINI,
            {
                ".gemini/settings.json": {"security": {"auth": {"selectedType": "oauth-personal"}}},
                ".gemini/.env": "GEMINI_API_KEY=AIza-no-real-key\nGOOGLE_GEMINI_BASE_URL={url}\n",
            },
        ),
        (
            QWEN,
            {
                ".qwen/settings.json": {
                    "$version": 4,  # of an older one it would write a newer one
                    "security": {"auth": {"selectedType": "openai", "apiKey": _SK, "baseUrl": "{url}/v1"}},
                }
            },
        ),
        (
            PI,
            {
                ".pi/agent/auth.json": _PI_LOGIN,
                ".pi/agent/models.json": {"providers": {"anthropic": {"baseUrl": "{url}"}}},
            },
        ),
        (LLM, {".config/io.datasette.llm/keys.json": {"openai": _SK}}),
    )
)
STORIES = (
    *OWN_SETTINGS,
    replace(
        CLAUDE,
        story="compaction",
        provider=_compact("Bash", 8_000, 1.0),
        environment={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"},
        side_requests=None,
    ),
    replace(CLAUDE, story="background sub-agent", provider=_delegate(1), check=_check_conversations(2)),
    replace(CLAUDE, story="5 background sub-agents", provider=_delegate(5), check=_check_conversations(5)),
    replace(CODEX, story="websocket first", check=_check_websocket),
    replace(
        CODEX,
        story="compaction",
        command=(*CODEX.command[:-1], "-c", "model_auto_compact_token_limit=17400", PROMPT),
        side_requests=None,
    ),
    _CODEX_LOGIN,
    replace(
        OPENCODE,
        story="compaction",
        provider=_compact("bash", 30_000, 1.0),
        files={".config/opencode/opencode.json": json.dumps(_OPENCODE_CONFIG)},
        side_requests=2,
    ),
    replace(QWEN, story="compaction", provider=_compact("run_shell_command", 20_000, 0.9), side_requests=None),
    replace(PI, story="compaction", provider=_compact("bash", 20_000, 20.0), side_requests=None),
    replace(PI, story="responses", command=("pi", "--provider", "openai", "-p", PROMPT)),
    replace(
        COPILOT,
        story="chat",
        environment={**COPILOT.environment, "COPILOT_PROVIDER_WIRE_API": "completions", "COPILOT_MODEL": "gpt-4o"},
    ),
    replace(
        COPILOT,
        story="messages",
        environment={
            **COPILOT.environment,
            "COPILOT_PROVIDER_TYPE": "anthropic",
            "COPILOT_PROVIDER_BASE_URL": "{url}",
            "COPILOT_PROVIDER_API_KEY": "sk-ant-api03-no-real-key",
            "COPILOT_MODEL": "claude-sonnet-4.5",
        },
    ),
)
