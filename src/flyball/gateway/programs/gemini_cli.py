"""Gemini CLI, and Qwen Code, which began as a copy of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from ..environment import check_ways_around
from .launch import KnownProgram, Launch, SideRequest
from .settings_files import Json, get_nested, get_table

_SYSTEM = {
    "darwin": Path("/Library/Application Support/GeminiCli/settings.json"),
    "linux": Path("/etc/gemini-cli/settings.json"),
}
_SYSTEM_VARIABLE, _HOME_VARIABLE = "GEMINI_CLI_SYSTEM_SETTINGS_PATH", "GEMINI_CLI_HOME"
_KEY_TYPE = "gemini-api-key"
_GEMINI_VARIABLES = (
    "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_GCA",
)  # fmt: skip
_QWEN = (
    ("OPENAI_API_KEY", "apiKey", ("--openai-api-key", "--openaiApiKey")),
    ("OPENAI_BASE_URL", "baseUrl", ("--openai-base-url", "--openaiBaseUrl")),
)
"""Variable, key in its settings, and options that say the same."""
_QWEN_SYSTEM = {"darwin": Path("/Library/Application Support/QwenCode"), "linux": Path("/etc/qwen-code")}
_AGENT = ("GeminiCLI",)
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")


def _read_dotenv(launch: Launch, folder: str, provider: str, address: str) -> dict[str, str]:
    """Return the variables of the first `.env` that these programs find."""
    here, home = launch.folder, launch.find_home()
    for parent in (here, *here.parents, home):
        for path in (parent / folder / ".env", parent / ".env"):
            if path.is_file():
                variables = launch.read_dotenv(path)
                if parent != home and not launch.environment.get(address):
                    launch.check_address(provider, address, variables.get(address), path)
                return variables
    return {}


def _prepare_gemini(launch: Launch) -> None:
    for name, value in _read_dotenv(launch, ".gemini", "google", "GOOGLE_GEMINI_BASE_URL").items():
        if name in _GEMINI_VARIABLES:
            launch.environment.setdefault(name, value)
    check_ways_around(launch.environment, "the .env file of Gemini CLI")
    if not launch.environment.get("GEMINI_API_KEY"):
        raise launch.refuse("its login with Google asks another service", "set GEMINI_API_KEY")
    system = launch.environment.get(_SYSTEM_VARIABLE) or _SYSTEM.get(sys.platform, _SYSTEM["linux"])
    for path in (launch.folder / ".gemini" / "settings.json", Path(system)):  # both beat the settings of the user
        auth = get_table(launch.read_json(path), "security", "auth")
        if any(auth.get(name, _KEY_TYPE) != _KEY_TYPE for name in ("selectedType", "enforcedType")):
            raise launch.refuse(f"{path} chooses another login", "take `security.auth` out of it")


def _point_gemini(launch: Launch) -> None:
    """Choose the API key in a copy of its folder. System settings would beat that, but must be files of root."""
    folder = _find_gemini_home(launch) / ".gemini"
    settings = launch.read_json(folder / "settings.json")
    copy = launch.mirror(folder, {"settings.json": _choose_key(settings)})
    launch.set(_HOME_VARIABLE, str(copy.parent))
    launch.changes.append(f"its API key is used: {_HOME_VARIABLE} names a temporary copy of its folder")


def _choose_key(settings: Json) -> Json:
    auth = get_table(settings, "security", "auth") | {"selectedType": _KEY_TYPE}
    auth.pop("enforcedType", None)
    return settings | {"security": get_table(settings, "security") | {"auth": auth}}


def _find_gemini_home(launch: Launch) -> Path:
    named = launch.environment.get(_HOME_VARIABLE)
    return Path(named) if named else launch.find_home()


GEMINI_CLI = KnownProgram(
    name="gemini",
    title="Gemini CLI",
    version="0.61.0",
    wires=("generateContent",),
    example='gemini -p "fix the failing test"',
    enforced="all limits, with an API key",
    pointed_by="GOOGLE_GEMINI_BASE_URL, and a temporary copy of its folder that chooses the API key",
    escapes=("a login with Google and Vertex are refused before the start", "--sandbox cannot reach the gateway"),
    packages=("@google/gemini-cli",),
    prepare=_prepare_gemini,
    point=_point_gemini,
    side_requests=(
        SideRequest(name="loop check", agents=_AGENT, text="next_speaker"),
        SideRequest(name="loop detection", agents=_AGENT, text="diagnostic agent that determines whether"),
        SideRequest(name="router", agents=_AGENT, text="Task Routing AI"),
        SideRequest(name="tool summary", agents=_AGENT, text="expert context compressor"),
        SideRequest(
            name="compaction", agents=_AGENT, text="distilling chat history into a structured XML", is_compaction=True
        ),
    ),
)


def _prepare_qwen(launch: Launch) -> None:
    settings = list(_iter_qwen_settings(launch))
    own = launch.folder / ".qwen" / "settings.json"
    if launch.folder != launch.find_home() and not launch.environment.get("OPENAI_BASE_URL"):
        for keys in (("env", "OPENAI_BASE_URL"), ("security", "auth", "baseUrl")):
            launch.check_address("openai", "OPENAI_BASE_URL", get_nested(launch.read_json(own), *keys), own)
    sources = [_read_dotenv(launch, ".qwen", "openai", "OPENAI_BASE_URL")]
    for each in settings:
        auth = get_table(each, "security", "auth")
        sources += [get_table(each, "env"), {name: auth.get(key) for name, key, _ in _QWEN}]
    for name, _, options in _QWEN:
        given = launch.pop_option(*options) or launch.environment.get(name)
        value = given or next((source[name] for source in sources if source.get(name)), None)
        if value:
            launch.environment[name] = str(value)
    if any(each.get("modelProviders") for each in settings):
        raise launch.refuse("`modelProviders` in its settings has addresses of its own", "take it out of the settings")
    kind = launch.get_option("--auth-type") or "openai"
    if kind != "openai":
        raise launch.refuse(f"--auth-type {kind} asks another service", "use --auth-type openai")
    if not launch.environment.get("OPENAI_API_KEY"):
        raise launch.refuse("its login with Qwen asks another service", "set OPENAI_API_KEY and OPENAI_BASE_URL")


def _iter_qwen_settings(launch: Launch) -> Iterator[Json]:
    """Yield the settings of the system, the project and the user, the strongest first."""
    system = _QWEN_SYSTEM.get(sys.platform, _QWEN_SYSTEM["linux"])
    for path in (
        launch.environment.get("QWEN_CODE_SYSTEM_SETTINGS_PATH") or system / "settings.json",
        launch.folder / ".qwen" / "settings.json",
        launch.find_folder("QWEN_HOME", ".qwen") / "settings.json",
        launch.environment.get("QWEN_CODE_SYSTEM_DEFAULTS_PATH") or system / "system-defaults.json",
    ):
        yield launch.read_json(Path(path))


def _point_qwen(launch: Launch) -> None:
    address = launch.addresses["openai"]
    added = ["--openai-base-url", launch.governed["OPENAI_BASE_URL"]]
    if not address.stand_ins:  # the address has the token then, which stays in the environment
        added = []
    if launch.get_option("--auth-type") is None:
        added = ["--auth-type", "openai", *added]
    launch.add_arguments(*added)
    if added:
        launch.changes.append(f"{' '.join(word for word in added if word.startswith('--'))} was added")
    proxies = [name for each in _PROXIES for name in (each, each.lower()) if launch.governed.pop(name, None)]
    if proxies:  # it sends requests to this machine through a proxy too
        launch.changes.append(f"{', '.join(proxies)} was taken out")


QWEN_CODE = KnownProgram(
    name="qwen",
    title="Qwen Code",
    version="0.24.4",
    wires=("chat",),
    example='qwen -p "fix the failing test"',
    enforced="all limits, with an API key",
    pointed_by="--auth-type openai --openai-base-url; proxies are taken out of its environment",
    escapes=("a login with Qwen and `modelProviders` are refused before the start",),
    packages=("@qwen-code/qwen-code",),
    prepare=_prepare_qwen,
    point=_point_qwen,
    side_requests=(
        SideRequest(name="loop check", agents=("QwenCode",), text="next_speaker"),
        SideRequest(
            name="compaction",
            agents=("QwenCode",),
            text="distilling chat history into a structured XML",
            is_compaction=True,
        ),
        SideRequest(
            name="compaction",
            agents=("QwenCode",),
            text="summarizes a conversation when its context window is about to overflow",
            is_compaction=True,
        ),
    ),
)
