"""Continue."""

from __future__ import annotations

import re
from pathlib import Path

from .launch import KnownProgram, Launch

_PROVIDERS = {"anthropic": "anthropic", "openai": "openai", "gemini": "google"}
_ADDRESSES = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL", "google": "GOOGLE_GEMINI_BASE_URL"}
_PROVIDER = re.compile(r"""^(?P<lead>\s*(?:-\s+)?)provider:\s*["']?(?P<name>[\w-]+)["']?\s*(?:#.*)?$""")
_ADDRESS = re.compile(r"""^\s*(?P<dash>-\s+)?apiBase:\s*["']?(?P<url>[^\s"'#]+)""")
_KEY = re.compile(r"""\b(provider|apiBase|requestOptions)["']?\s*:""")
_START = """\
name: flyball
version: 1.0.0
schema: v1
models:
  - name: {model}
    provider: {provider}
    model: {model}
    apiKey: {key}
    roles: [chat, edit, apply]
"""
_MODELS = {"anthropic": ("ANTHROPIC_API_KEY", "claude-sonnet-4-5"), "openai": ("OPENAI_API_KEY", "gpt-5.1")}


def _find_config(launch: Launch) -> Path:
    given = launch.get_option("--config")
    return Path(given) if given else launch.find_folder("CONTINUE_GLOBAL_DIR", ".continue") / "config.yaml"


def _read_lines(launch: Launch) -> list[str]:
    """Return the lines of its configuration, or of one made from a key in the environment."""
    path = _find_config(launch)
    text = launch.read_text(path)
    if not text and launch.get_option("--config") is not None:
        raise launch.refuse(f"--config {path} is no file", "give it a file, because the hub cannot be pointed here")
    if not text:
        found = next((name for name, (key, _) in _MODELS.items() if launch.environment.get(key)), None)
        if found is None:
            raise launch.refuse("it has no configuration file", "give it --config FILE, or set ANTHROPIC_API_KEY")
        key, model = _MODELS[found]
        text = _START.format(provider=found, model=model, key=launch.environment[key])
    return text.splitlines()


def _prepare(launch: Launch) -> None:
    for option in ("--model", "--agent"):
        if launch.get_option(option) is not None:
            raise launch.refuse(f"{option} takes a model from its hub", "write the model in its configuration file")
    lines = _read_lines(launch)
    if any(re.match(r"\s*(-\s+)?uses:", line) for line in lines):
        raise launch.refuse("`uses:` in its configuration takes models from its hub", "write the models in the file")
    for number, line in enumerate(lines, 1):
        key = _KEY.search(line.partition(" #")[0])
        if key and not line.lstrip().startswith("#") and not (_PROVIDER.match(line) or _ADDRESS.match(line)):
            raise launch.refuse(
                f"its configuration has {key[1]} in line {number} in a way that cannot be changed",
                "write `provider: NAME` and `apiBase: URL` without quotes in lines of their own, and no requestOptions",
            )
    names = [match["name"] for line in lines if (match := _PROVIDER.match(line))]
    if not names:
        raise launch.refuse("its configuration names no provider", "write `provider: anthropic`")
    others = sorted({name for name in names if name not in _PROVIDERS})
    if others:
        raise launch.refuse(
            f"its configuration names {', '.join(others)}, which the gateway does not know",
            f"use a configuration with {', '.join(_PROVIDERS)} only",
        )
    for provider in _PROVIDERS:
        own = _find_addresses(lines, provider)
        if len(own) > 1:
            raise launch.refuse(f"{provider} has several addresses in its configuration", "leave one of them")
        if own:
            launch.environment[_ADDRESSES[_PROVIDERS[provider]]] = own.pop()


def _find_addresses(lines: list[str], provider: str) -> set[str]:
    """Return the addresses that the models of a provider have."""
    found, current, here = set[str](), None, list[str]()
    for line in [*lines, "- "]:
        if re.match(r"\s*-\s", line):  # the next model
            found |= set(here) if current == provider else set()
            current, here = None, []
        match, address = _PROVIDER.match(line), _ADDRESS.match(line)
        current = match["name"] if match else current
        here += [address["url"].rstrip("/")] if address else []
    return found


def _point(launch: Launch) -> None:
    lines: list[str] = []
    for line in _read_lines(launch):
        own, match = _ADDRESS.match(line), _PROVIDER.match(line)
        if own:
            if own["dash"]:
                lines.append(f"{line[: line.index('-')]}- flyball: true")
            continue
        for address in launch.addresses.values():
            for key, stand_in in address.stand_ins.items():
                line = line.replace(key, stand_in)
        lines.append(line)
        if match:
            address = launch.addresses[_PROVIDERS[match["name"]]]
            indent = " " * len(match["lead"])
            lines.append(f"{indent}apiBase: {address.versioned_url}/")
            lines.append(f"{indent}requestOptions: {{headers: {{{_format_headers(address.headers)}}}}}")
    launch.pop_option("--config")
    path = launch.write_file("config.yaml", "\n".join(lines) + "\n")
    launch.add_arguments("--config", str(path))
    launch.changes.append("--config with a temporary copy of its configuration was added")


def _format_headers(headers: dict[str, str]) -> str:
    return ", ".join(f'"{name}": "{value}"' for name, value in headers.items())


CONTINUE = KnownProgram(
    name="cn",
    title="Continue",
    version="1.5.47",
    wires=("messages", "chat"),
    example='cn -p "fix the failing test"',
    enforced="all limits, with Anthropic, OpenAI and Gemini",
    pointed_by="--config with a temporary copy that has the address",
    escapes=("models of its hub and other providers are refused before the start",),
    elsewhere=("remote",),
    packages=("@continuedev/cli",),
    prepare=_prepare,
    point=_point,
)
