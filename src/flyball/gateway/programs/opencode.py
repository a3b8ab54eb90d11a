"""opencode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from .launch import KnownProgram, Launch, SideRequest
from .settings_files import Json, get_nested, get_table

_VARIABLES = {
    "anthropic": ("ANTHROPIC_BASE_URL", ("ANTHROPIC_API_KEY",)),
    "openai": ("OPENAI_BASE_URL", ("OPENAI_API_KEY",)),
    "google": ("GOOGLE_GEMINI_BASE_URL", ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY")),
}
"""Variables of address and key by provider."""
_MANAGED = (Path("/etc/opencode"), Path("/Library/Application Support/opencode"))
_CONTENT, _LOGINS = "OPENCODE_CONFIG_CONTENT", "OPENCODE_AUTH_CONTENT"


def _prepare(launch: Launch) -> None:
    for folder in _MANAGED:
        if any({"provider", "enabled_providers"} & config.keys() for config in _iter_folder(launch, folder)):
            raise launch.refuse(f"{folder} names providers, and beats all other settings", "ask its administrator")
    logins = _read_logins(launch)
    for folder in _list_project_folders(launch):
        for config in _iter_folder(launch, folder):
            for name, (variable, _) in _VARIABLES.items():
                url = get_nested(config, "provider", name, "options", "baseURL")
                launch.check_address(name, variable, url, folder / "opencode.json")
    for config in _iter_configs(launch):
        for name, (variable, _) in _VARIABLES.items():
            url = get_nested(config, "provider", name, "options", "baseURL")
            if isinstance(url, str) and url.startswith("http"):
                launch.environment[variable] = url
    for name, (_, variables) in _VARIABLES.items():
        key = get_nested(logins, name, "key")
        if isinstance(key, str) and key:
            launch.environment[variables[0]] = key
    model = _find_model(launch)
    provider = model.partition("/")[0] if model else None
    if provider is not None and provider not in _list_providers(launch):
        reason = "its login with a subscription" if provider in _VARIABLES else f"its provider {provider!r}"
        raise launch.refuse(
            f"{reason} is asked without the gateway",
            f"use --model with {', '.join(f'{name}/…' for name in _VARIABLES)} and an API key",
        )


def _read_logins(launch: Launch) -> Json:
    given = launch.environment.get(_LOGINS)
    if given:
        return launch.parse_json(given, _LOGINS)
    return launch.read_json(launch.find_folder("XDG_DATA_HOME", ".local", "share") / "opencode" / "auth.json")


def _iter_configs(launch: Launch) -> Iterator[Json]:
    """Yield the configurations, the strongest last."""
    home = launch.find_folder("XDG_CONFIG_HOME", ".config") / "opencode"
    yield launch.read_json(home / "config.json")
    yield from _iter_folder(launch, home)
    named = launch.environment.get("OPENCODE_CONFIG")
    if named:
        yield launch.read_json(Path(named))
    own = launch.environment.get("OPENCODE_CONFIG_DIR")
    for folder in (*_list_project_folders(launch), *([Path(own)] if own else [])):
        yield from _iter_folder(launch, folder)
    yield launch.parse_json(launch.environment.get(_CONTENT, ""), _CONTENT)


def _list_project_folders(launch: Launch) -> list[Path]:
    here = (*reversed(launch.folder.parents), launch.folder)
    return [*here, *(parent / ".opencode" for parent in here)]


def _iter_folder(launch: Launch, folder: Path) -> Iterator[Json]:
    for name in ("opencode.json", "opencode.jsonc"):
        yield launch.read_json(folder / name)


def _find_model(launch: Launch) -> str | None:
    given = launch.get_option("--model", "-m")
    configured = [config["model"] for config in _iter_configs(launch) if isinstance(config.get("model"), str)]
    return given or (configured[-1] if configured else None)


def _list_providers(launch: Launch) -> list[str]:
    """Return the providers that are asked with an API key."""
    logins = _read_logins(launch)
    usable = [name for name in _VARIABLES if get_nested(logins, name, "type") != "oauth"]
    keyed = [name for name in usable if any(launch.environment.get(variable) for variable in _VARIABLES[name][1])]
    return keyed or usable


def _point(launch: Launch) -> None:
    config = launch.parse_json(launch.environment.get(_CONTENT, ""), _CONTENT)
    providers = get_table(config, "provider")
    for name in _list_providers(launch):
        address = launch.addresses[name]
        entry = get_table(providers, name)
        options: Json = get_table(entry, "options")
        options |= {"baseURL": address.versioned_url, "headers": get_table(options, "headers") | address.headers}
        stand_ins = [launch.governed[each] for each in _VARIABLES[name][1] if each in launch.governed]
        if stand_ins:
            options["apiKey"] = stand_ins[0]
        providers[name] = entry | {"options": options}
    config |= {"provider": providers, "enabled_providers": _list_providers(launch)}
    launch.set(_CONTENT, json.dumps(config))
    launch.changes.append(
        f"{_CONTENT} with the addresses was set; only {', '.join(_list_providers(launch))} can be used"
    )


OPENCODE = KnownProgram(
    name="opencode",
    title="opencode",
    version="1.18.33",
    wires=("messages", "responses"),
    example='opencode run --model anthropic/claude-sonnet-4-5 "fix the failing test"',
    enforced="all limits, with API keys of Anthropic, OpenAI and Google",
    pointed_by="OPENCODE_CONFIG_CONTENT with the addresses, which beats its config files",
    escapes=("other providers and logins with a subscription are refused or disabled",),
    elsewhere=("attach", "--attach"),
    packages=("opencode-ai",),
    prepare=_prepare,
    point=_point,
    side_requests=(
        SideRequest(name="title", agents=("opencode/",), text="You are a title generator"),
        SideRequest(
            name="compaction",
            agents=("opencode/",),
            text="AI assistant tasked with summarizing conversations",
            is_compaction=True,
        ),
        SideRequest(
            name="compaction",
            agents=("opencode/",),
            text="You are a context summarization agent",
            is_compaction=True,
        ),
    ),
)
