"""Codex."""

from __future__ import annotations

import tomllib
from pathlib import Path

from .launch import KnownProgram, Launch, SideRequest
from .settings_files import Json, get_nested, get_table

_LOCAL = frozenset({"ollama", "ollama-chat", "lmstudio", "oss"})
_SYSTEM = Path("/etc/codex/config.toml")


def _prepare(launch: Launch) -> None:
    config = _read_config(launch)
    provider = _get_provider(launch, config)
    if "--oss" in launch.arguments or provider in _LOCAL:
        raise launch.refuse("it would ask a model on this machine directly", "leave out --oss")
    if provider != "openai":
        _read_provider(launch, config, provider)
        return
    url = _pop_config(launch, "openai_base_url") or config.get("openai_base_url")
    if isinstance(url, str):
        launch.environment["OPENAI_BASE_URL"] = url
    login = launch.read_json(launch.find_folder("CODEX_HOME", ".codex") / "auth.json")
    own = login.get("OPENAI_API_KEY")
    given = launch.environment.get("CODEX_API_KEY") or launch.environment.get("OPENAI_API_KEY")
    if isinstance(own, str) and own and not given:
        launch.environment["CODEX_API_KEY"] = own
        launch.own_keys["openai"] = [own]
    elif given:
        launch.environment["CODEX_API_KEY"] = given
    elif login.get("tokens") and "openai" not in launch.named:
        raise launch.refuse(
            "its login with ChatGPT asks another service",
            "set CODEX_API_KEY, or name that service with --upstream openai=https://chatgpt.com/backend-api/codex, "
            "which was tried with a stand-in only",
        )
    else:
        launch.is_plan = bool(login.get("tokens"))


def _read_config(launch: Launch) -> Json:
    """Return the configuration of the system and the user, with the profile that was chosen."""
    folder = launch.find_folder("CODEX_HOME", ".codex")
    config = _read_toml(launch, _SYSTEM)
    if "--ignore-user-config" not in launch.arguments:
        config |= _read_toml(launch, folder / "config.toml")
    profile = launch.get_option("--profile", "-p") or dict(_iter_config(launch)).get("profile") or config.get("profile")
    config |= get_table(config, "profiles", str(profile))  # where older versions have it
    return config | _read_toml(launch, folder / f"{profile}.config.toml")


def _read_toml(launch: Launch, path: Path) -> Json:
    try:
        return tomllib.loads(launch.read_text(path))
    except tomllib.TOMLDecodeError as error:
        raise launch.refuse(f"{path} is not valid TOML ({error})", "correct it") from None


def _check_projects(launch: Launch) -> None:
    """Refuse a project that names a provider, because Codex reads that only if it trusts the project."""
    home = launch.find_folder("CODEX_HOME", ".codex")
    for folder in (launch.folder, *launch.folder.parents):
        path = folder / ".codex" / "config.toml"
        if path.parent != home and _read_toml(launch, path).get("model_provider", "openai") != "openai":
            raise launch.refuse(f"{path} names a provider", "choose one with -c model_provider=openai")


def _get_provider(launch: Launch, config: Json) -> str:
    given = [value for key, value in _iter_config(launch) if key == "model_provider"]
    if given:
        return given[-1]
    _check_projects(launch)
    return str(config.get("model_provider") or "openai")


def _iter_config(launch: Launch) -> list[tuple[str, str]]:
    """Return the pairs of `-c key=value`, with texts as they are meant."""
    pairs = [value.partition("=") for value in launch.iter_options("-c", "--config")]
    return [(key.strip(), _unquote(value)) for key, _, value in pairs]


def _unquote(value: str) -> str:
    return value.strip().strip("\"'")


def _pop_config(launch: Launch, key: str) -> str | None:
    """Take `-c key=value` out of the command, because it would beat what is added. Return the last value."""
    found = launch.pop_option("-c", "--config", fits=lambda pair: pair.partition("=")[0].strip() == key)
    return None if found is None else _unquote(found.partition("=")[2])


def _read_provider(launch: Launch, config: Json, provider: str) -> None:
    """Read a provider that the user defined."""
    table = get_table(config, "model_providers", provider)
    url, variable = table.get("base_url"), table.get("env_key")
    if not isinstance(url, str) or table.get("query_params") or table.get("requires_openai_auth"):
        raise launch.refuse(
            f"its provider {provider!r} cannot be pointed at the gateway", "use -c model_provider=openai"
        )
    launch.environment["OPENAI_BASE_URL"] = url
    if isinstance(variable, str) and launch.environment.get(variable):
        launch.environment["OPENAI_API_KEY"] = launch.environment[variable]


def _point(launch: Launch) -> None:
    config = _read_config(launch)
    provider = _get_provider(launch, config)
    key = "openai_base_url" if provider == "openai" else f"model_providers.{provider}.base_url"
    _pop_config(launch, key)
    launch.add_arguments("-c", f'{key}="{launch.addresses["openai"].full_url}"')
    launch.changes.append(f"-c {key}=… was added")
    if provider != "openai":
        variable = get_nested(config, "model_providers", provider, "env_key")
        if isinstance(variable, str) and "OPENAI_API_KEY" in launch.governed:
            launch.set(variable, launch.governed["OPENAI_API_KEY"])


CODEX = KnownProgram(
    name="codex",
    title="Codex",
    version="0.169.0",
    wires=("responses",),
    example='codex exec "fix the failing test"',
    enforced="all limits, with an API key",
    pointed_by="-c openai_base_url; its key in CODEX_API_KEY",
    escapes=(
        "a login with ChatGPT is refused before the start",
        "under a limit of money, each request may make five web searches at most",
    ),
    elsewhere=("cloud", "remote-control", "agents", "queue", "daemon", "--remote"),
    packages=("@openai/codex",),
    prepare=_prepare,
    point=_point,
    side_requests=(
        SideRequest(
            name="compaction", agents=("codex",), header=("x-codex-turn-metadata", '"compaction"'), is_compaction=True
        ),
        SideRequest(name="compaction", agents=("",), path="/responses/compact", is_compaction=True),
    ),
)
