"""Claude Code."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..environment import check_ways_around
from .launch import KnownProgram, Launch, SideRequest
from .settings_files import Json, get_nested, get_table

_MANAGED = (Path("/etc/claude-code"), Path("/Library/Application Support/ClaudeCode"))
"""Folders of settings that an administrator wrote. They beat everything else."""
_ADDRESS, _HEADERS = "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS"
_KEYS = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN")


def _prepare(launch: Launch) -> None:
    for path in _list_project_files(launch):
        launch.check_address("anthropic", _ADDRESS, get_nested(launch.read_json(path), "env", _ADDRESS), path)
    settings = list(_iter_settings(launch))
    variables, managed = _merge_env(settings), _merge_env(_iter_managed(launch))
    check_ways_around(variables | managed, "the settings of Claude Code")
    for name in (_ADDRESS, _HEADERS, *_KEYS):
        if variables.get(name):
            launch.environment[name] = variables[name]
    if managed.keys() & {_ADDRESS, _HEADERS, *_KEYS}:
        raise launch.refuse(
            "the settings of its administrator name an address or a key, and beat all others",
            "ask for settings without them",
        )
    has_key = any(launch.environment.get(name) for name in _KEYS[:2]) or any(
        "apiKeyHelper" in each for each in settings
    )
    has_login = (_find_folder(launch) / ".credentials.json").is_file() or sys.platform == "darwin"  # there, a keychain
    launch.is_plan = not has_key and (has_login or bool(launch.environment.get(_KEYS[2])))


def _find_folder(launch: Launch) -> Path:
    return launch.find_folder("CLAUDE_CONFIG_DIR", ".claude")


def _iter_settings(launch: Launch) -> Iterator[Json]:
    """Yield the settings of the user, the project and the command line, the strongest last."""
    for path in (_find_folder(launch) / "settings.json", *_list_project_files(launch)):
        yield launch.read_json(path)
    yield _read_option(launch)


def _list_project_files(launch: Launch) -> list[Path]:
    folder = launch.folder / ".claude"
    files = [folder / "settings.json", folder / "settings.local.json"]
    return files if folder != _find_folder(launch) else []


def _iter_managed(launch: Launch) -> Iterator[Json]:
    for folder in _MANAGED:
        more = sorted((folder / "managed-settings.d").glob("*.json"))
        yield from map(launch.read_json, (folder / "managed-settings.json", *more))


def _read_option(launch: Launch) -> Json:
    """Return the settings that the command line names, as a file or as JSON."""
    given = launch.get_option("--settings")
    if given is None:
        return {}
    return launch.parse_json(given, "--settings") if given.lstrip().startswith("{") else launch.read_json(Path(given))


def _merge_env(settings: Iterable[Json]) -> dict[str, str]:
    merged: dict[str, str] = {}
    for each in settings:
        merged |= {name: str(value) for name, value in get_table(each, "env").items()}
    return merged


def _point(launch: Launch) -> None:
    address, settings = launch.addresses["anthropic"], _read_option(launch)
    own = _merge_env(_iter_settings(launch))
    headers = [launch.environment.get(_HEADERS, ""), *(f"{name}: {value}" for name, value in address.headers.items())]
    variables = {_ADDRESS: address.url, _HEADERS: "\n".join(filter(None, headers))}
    for name in _KEYS:
        if name in own and name in launch.governed:
            variables[name] = launch.governed[name]
    launch.pop_option("--settings")
    merged = settings | {"env": _merge_env([settings]) | variables}
    launch.add_arguments("--settings", str(launch.write_file("settings.json", json.dumps(merged))))
    for name in variables:
        launch.set(name, variables[name])
    launch.changes.append(f"--settings with {_ADDRESS} was added")


CLAUDE_CODE = KnownProgram(
    name="claude",
    title="Claude Code",
    version="2.1.327",
    wires=("messages",),
    example='claude -p "fix the failing test"',
    enforced="all limits, also in its sub-agents",
    pointed_by="--settings with the address, which beats its settings files",
    escapes=("under a limit of money, each request may make five web searches at most",),
    elsewhere=(
        "--bg",
        "--background",
        "--cloud",
        "--environment",
        "--desktop",
        "agents",
        "attach",
        "respawn",
        "remote-control",
        "ultrareview",
    ),
    packages=("@anthropic-ai/claude-code", "@anthropic-ai/claude-agent-sdk"),
    prepare=_prepare,
    point=_point,
    side_requests=(
        SideRequest(name="quota probe", agents=("claude-cli/",), text="quota", max_output_tokens=1),
        SideRequest(name="title", agents=("claude-cli/",), text="sentence-case title"),
        SideRequest(name="title", agents=("claude-cli/",), text="You are naming a coding session"),
        SideRequest(name="topic", agents=("claude-cli/",), text="indicates a new conversation topic"),
        SideRequest(
            name="compaction",
            agents=("claude-cli/",),
            text="create a detailed summary of the conversation so far",
            is_compaction=True,
        ),
    ),
)
