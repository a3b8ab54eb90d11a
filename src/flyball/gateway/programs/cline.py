"""Cline."""

from __future__ import annotations

import json
from pathlib import Path

from .launch import KnownProgram, Launch
from .settings_files import Json, get_nested, get_table

_VARIABLE = "CLINE_PROVIDER_SETTINGS_PATH"
_OPENAI = frozenset({"openai-native", "openai", "openai-compatible"})
"""Providers whose address can be set."""


def _find_file(launch: Launch) -> Path:
    named = launch.environment.get(_VARIABLE)
    data, own = launch.environment.get("CLINE_DATA_DIR"), launch.get_option("--config")
    folder = Path(data) if data else Path(own or launch.find_folder("CLINE_DIR", ".cline")) / "data"
    return Path(named) if named else folder / "settings" / "providers.json"


def _find_provider(launch: Launch) -> str:
    stored = launch.read_json(_find_file(launch))
    given = (
        launch.get_option("--provider", "-P")
        or launch.environment.get("CLINE_PROVIDER")
        or stored.get("lastUsedProvider")
    )
    if given is None:
        raise launch.refuse("it has no provider", "choose one with `cline auth -p openai-native -k KEY`")
    return str(given)


def _get_settings(launch: Launch) -> tuple[Json, Json, Json]:
    """Return the stored state, and in it the entry and the settings of the provider."""
    stored = launch.read_json(_find_file(launch))
    entry = get_table(stored, "providers", _find_provider(launch))
    return stored, entry, get_table(entry, "settings")


def _prepare(launch: Launch) -> None:
    if launch.environment.get("CLINE_SANDBOX") == "1":
        raise launch.refuse("CLINE_SANDBOX gives it settings of its own", "use CLINE_DATA_DIR instead")
    data = launch.pop_option("--data-dir")  # it would beat the variable that names the settings
    if data is not None:
        launch.environment["CLINE_DATA_DIR"] = data
    given = launch.pop_option("--key", "-k")
    provider = _find_provider(launch)
    if provider not in _OPENAI:
        raise launch.refuse(
            f"its provider {provider!r} has no address that can be set",
            "use `cline auth -p openai-native -k KEY`, which works",
        )
    _, _, settings = _get_settings(launch)
    if isinstance(settings.get("baseUrl"), str):
        launch.environment["OPENAI_BASE_URL"] = settings["baseUrl"]
    key = given or settings.get("apiKey") or get_nested(settings, "auth", "apiKey")
    if isinstance(key, str) and key:
        launch.environment["OPENAI_API_KEY"] = key


def _point(launch: Launch) -> None:
    stored, entry, settings = _get_settings(launch)
    provider = _find_provider(launch)
    changed: Json = {"provider": provider} | settings | {"baseUrl": launch.addresses["openai"].full_url}
    if "OPENAI_API_KEY" in launch.governed:
        changed["apiKey"] = launch.governed["OPENAI_API_KEY"]
        changed.pop("auth", None)
    changed_entry = {"updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"} | entry | {"settings": changed}
    state = (
        {"version": 1, "modes": {}} | stored | {"lastUsedProvider": provider, "providers": {provider: changed_entry}}
    )
    launch.set(_VARIABLE, str(launch.write_file("providers.json", json.dumps(state))))
    launch.set("CLINE_SESSION_BACKEND_MODE", "local")  # its hub may run already, without the gateway
    launch.changes.append(f"{_VARIABLE} names a temporary copy with the address; its hub is not used")


CLINE = KnownProgram(
    name="cline",
    title="Cline",
    version="3.0.65",
    wires=("responses",),
    example='cline "fix the failing test"',
    enforced="all limits, with OpenAI",
    pointed_by="a temporary copy of its provider settings with the address; its background hub is not used",
    escapes=("Anthropic and other providers are refused before the start: it has no address for them",),
    elsewhere=("-z", "--zen", "--kanban", "kanban", "hub", "dashboard", "schedule", "connect"),
    packages=("cline",),
    prepare=_prepare,
    point=_point,
)
