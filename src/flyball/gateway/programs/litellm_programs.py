"""Programs in Python that read the usual variables: mini-swe-agent, Open Interpreter and aider (LiteLLM), and llm."""

from __future__ import annotations

from pathlib import Path

from .known_program import KnownProgram
from .launch import Launch

_READ = (
    "OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_KEY",
    "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "ANTHROPIC_API_KEY",
)  # fmt: skip
_GOVERNED = frozenset({"openai", "anthropic"})
_PREFIXES = frozenset(
    {
        "azure", "azure_ai", "bedrock", "cerebras", "cohere", "databricks", "deepseek", "fireworks_ai", "gemini",
        "github", "github_copilot", "groq", "huggingface", "mistral", "nvidia_nim", "ollama", "ollama_chat",
        "openrouter", "perplexity", "replicate", "sagemaker", "together_ai", "vertex_ai", "watsonx", "xai",
    }
)  # fmt: skip
"""Providers that LiteLLM asks at addresses of their own."""


def _check_model(launch: Launch, model: str | None) -> None:
    prefix = model.partition("/")[0] if model and "/" in model else None
    if prefix in _PREFIXES:
        raise launch.refuse(
            f"{model} is asked without the gateway",
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
    name = "MSWEA_MODEL_NAME"
    _check_model(launch, launch.get_option("--model", "-m") or launch.environment.get(name) or variables.get(name))


MINI = KnownProgram(
    name="mini",
    title="mini-swe-agent",
    version="2.4.6",
    wires=("chat", "messages"),
    example='mini --yolo --exit-immediately -m anthropic/claude-sonnet-4-5 -t "fix the failing test"',
    enforced="all limits, with Anthropic and OpenAI",
    pointed_by="the usual variables",
    escapes=("models of other providers are refused if --model or its settings name them",),
    packages=("mini-swe-agent",),
    modules=("minisweagent",),
    other_names=("mini-swe-agent",),
    prepare=_prepare_mini,
)


def _prepare_interpreter(launch: Launch) -> None:
    _check_model(launch, launch.get_option("--model", "-m"))
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
    escapes=("code that it runs can ask any address",),
    packages=("open-interpreter",),
    modules=("interpreter",),
    other_names=("open-interpreter",),
    prepare=_prepare_interpreter,
)


def _prepare_aider(launch: Launch) -> None:
    """Read what aider reads. Its `.env` beats the environment, so an address there cannot be moved."""
    files = (launch.find_home() / ".env", launch.folder / ".env", Path(launch.get_option("--env-file") or ".env"))
    names = {"OPENAI_API_BASE", "OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE", "AIDER_OPENAI_API_BASE"}
    for path in files:
        variables = launch.read_dotenv(path)
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
    _check_model(launch, launch.get_option("--model") or launch.environment.get("AIDER_MODEL"))


AIDER = KnownProgram(
    name="aider",
    title="aider",
    version="0.86",
    wires=("chat", "messages"),
    example='aider --model sonnet --message "fix the failing test"',
    enforced="all limits, with Anthropic and OpenAI",
    pointed_by="the usual variables",
    escapes=("addresses in .env are refused before the start; those in .aider.conf.yml are not seen",),
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
