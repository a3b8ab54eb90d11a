"""Programs in Python that read the usual variables: mini-swe-agent, Open Interpreter and aider (LiteLLM), and llm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from .launch import KnownProgram, Launch

_READ = (
    "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY",
    "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_API_KEY",
)  # fmt: skip
_GOVERNED = frozenset({"openai", "anthropic"})
_MODEL = re.compile(
    r"(openai|anthropic|text-completion-openai)/.+|(gpt|o\d|claude|chatgpt|codex|ft:gpt)[^/]*", re.IGNORECASE
)
"""Names of models that LiteLLM asks at OpenAI and Anthropic. It knows 160 other providers, more with each version."""
_AIDER_MODELS = frozenset({"sonnet", "opus", "haiku", "4", "4o", "4-turbo", "35turbo", "35-turbo", "3"})
"""Short names that aider has for such models."""
_MINI_SETTING = re.compile(r"""\b(model_name|model_class|api_base|base_url)["']?\s*[:=]\s*["']?([^\s"'#,}]+)""")


def _check_model(launch: Launch, model: str | None) -> None:
    if model is None:
        raise launch.refuse(
            "it chooses a model of any provider by itself", "name one of OpenAI or Anthropic with --model"
        )
    if not _MODEL.fullmatch(model):
        raise launch.refuse(
            f"{model} may be asked without the gateway",
            f"use a model of {' or '.join(sorted(_GOVERNED))}, or --upstream openai=URL with openai/NAME "
            "for a compatible provider",
        )


def _adopt(launch: Launch, path: Path) -> dict[str, str]:
    """Take over what a `.env` file sets and the environment does not."""
    variables = launch.read_dotenv(path)
    for name in _READ:
        if variables.get(name):
            launch.environment.setdefault(name, variables[name])
    return variables


def _prepare_mini(launch: Launch) -> None:
    folder = launch.find_folder("MSWEA_GLOBAL_CONFIG_DIR", ".config", "mini-swe-agent")
    variables = _adopt(launch, folder / ".env")
    own = variables | launch.environment
    given = list(launch.iter_options("--config", "-c")) or [own.get("MSWEA_MINI_CONFIG_PATH", "")]
    settings = {name: value for spec in given for name, value in _read_mini_settings(launch, spec, own)}
    kind = launch.get_option("--model-class") or settings.get("model_class", "litellm")
    if not kind.startswith("litellm"):
        raise launch.refuse(f"its model class {kind} asks a service of its own", "use litellm")
    if settings.keys() & {"api_base", "base_url"}:
        raise launch.refuse(
            "its configuration names an address", "export OPENAI_BASE_URL or ANTHROPIC_BASE_URL instead"
        )
    _check_model(
        launch, launch.get_option("--model", "-m") or settings.get("model_name") or own.get("MSWEA_MODEL_NAME")
    )


def _read_mini_settings(launch: Launch, spec: str, own: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the settings of the model in `key=value` or in a file."""
    if "=" not in spec:
        path = Path(spec).with_suffix(".yaml") if spec else Path()
        folder = launch.folder / own.get("MSWEA_CONFIG_DIR", ".")
        spec = launch.read_text(launch.folder / path) or launch.read_text(folder / path)
    return _MINI_SETTING.findall(spec)


MINI = KnownProgram(
    name="mini",
    title="mini-swe-agent",
    version="2.4.6",
    wires=("chat", "messages"),
    example='mini --yolo --exit-immediately -m anthropic/claude-sonnet-4-5 -t "fix the failing test"',
    enforced="all limits, with Anthropic and OpenAI",
    pointed_by="the usual variables",
    escapes=("models of other providers are refused before the start",),
    packages=("mini-swe-agent",),
    modules=("minisweagent",),
    other_names=("mini-swe-agent",),
    prepare=_prepare_mini,
)


def _prepare_interpreter(launch: Launch) -> None:
    if any(word in ("--local", "-l", "--os") for word in launch.arguments):
        raise launch.refuse("it would ask another model directly", "use --model")
    _check_model(launch, launch.get_option("--model", "-m") or "gpt-4o")
    for name, options in (("OPENAI_BASE_URL", ("--api_base", "-ab")), ("OPENAI_API_KEY", ("--api_key", "-ak"))):
        value = launch.pop_option(*options)
        if value:
            launch.environment[name] = value


OPEN_INTERPRETER = KnownProgram(
    name="interpreter",
    title="Open Interpreter",
    version="0.4",
    wires=("chat", "messages"),
    example="interpreter -y --model claude-sonnet-4-5",
    enforced="all limits, with Anthropic and OpenAI",
    pointed_by="the usual variables",
    escapes=("models of other providers are refused before the start", "code that it runs can ask any address"),
    packages=("open-interpreter",),
    modules=("interpreter",),
    other_names=("open-interpreter",),
    prepare=_prepare_interpreter,
)


def _prepare_aider(launch: Launch) -> None:
    """Read what aider reads. Its `.env` beats the environment, so an address there cannot be moved."""
    files = (launch.find_home() / ".env", launch.folder / ".env", Path(launch.get_option("--env-file") or ".env"))
    names = {"OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "AIDER_OPENAI_API_BASE"}
    own: dict[str, str] = {}
    for path in files:
        variables = launch.read_dotenv(path)
        own |= variables
        found = sorted(names & variables.keys())
        if found:
            raise launch.refuse(f"{found[0]} in {path} beats the environment", "export it instead of writing it there")
        for provider, name in (("openai", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")):
            if variables.get(name):
                launch.own_keys.setdefault(provider, []).append(variables[name])
    for name, option in (
        ("OPENAI_BASE_URL", "--openai-api-base"),
        ("OPENAI_API_KEY", "--openai-api-key"),
        ("ANTHROPIC_API_KEY", "--anthropic-api-key"),
    ):
        value = launch.pop_option(option)
        if value:
            launch.environment[name] = value
    own |= launch.environment
    for option in ("--model", "--weak-model", "--editor-model"):
        model = launch.get_option(option) or own.get(f"AIDER{option.replace('-', '_').upper()[1:]}")
        if model not in _AIDER_MODELS and (model or option == "--model"):
            _check_model(launch, model)


AIDER = KnownProgram(
    name="aider",
    title="aider",
    version="0.86",
    wires=("chat", "messages"),
    example='aider --model sonnet --message "fix the failing test"',
    enforced="all limits, with Anthropic and OpenAI",
    pointed_by="the usual variables",
    escapes=(
        "models of other providers and addresses in .env are refused before the start",
        "those in .aider.conf.yml are not seen, so --model is needed",
    ),
    packages=("aider-chat", "aider"),
    modules=("aider",),
    prepare=_prepare_aider,
)


def _find_llm_folder(launch: Launch) -> Path:
    return launch.find_folder("LLM_USER_PATH", ".config", "io.datasette.llm")


def _prepare_llm(launch: Launch) -> None:
    keys = launch.read_json(_find_llm_folder(launch) / "keys.json")
    for provider in _GOVERNED:
        if isinstance(keys.get(provider), str):  # it beats the variable
            launch.environment[f"{provider.upper()}_API_KEY"] = keys[provider]


def _point_llm(launch: Launch) -> None:
    folder = _find_llm_folder(launch)
    keys = launch.read_json(folder / "keys.json")
    if not keys:
        return
    given = {name: launch.governed.get(f"{name.upper()}_API_KEY") for name in _GOVERNED & keys.keys()}
    copy = launch.mirror(folder, {"keys.json": given})
    launch.set("LLM_USER_PATH", str(copy))
    launch.changes.append(
        f"LLM_USER_PATH names a temporary copy of its folder with keys for {' and '.join(sorted(given))}"
    )


LLM = KnownProgram(
    name="llm",
    title="llm",
    version="0.36",
    wires=("chat", "messages"),
    example='llm -m gpt-4.1-mini "name five pelicans"',
    enforced="all limits, with Anthropic and OpenAI",
    pointed_by="the usual variables; stored keys are in a temporary copy",
    escapes=("plugins for other providers: those whose key is in a variable ask directly",),
    packages=("llm",),
    modules=("llm",),
    prepare=_prepare_llm,
    point=_point_llm,
)
