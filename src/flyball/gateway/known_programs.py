"""Programs that need more than variables to ask the gateway, known by their names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from ..errors import Ungoverned

_REFUSED = {
    "cn": "Continue reads its address from a file only: give it --config FILE with apiBase set to $OPENAI_BASE_URL, "
    "and start it by another name",
    "pi": "pi reads its address from ~/.pi/agent/models.json only (providers.NAME.baseUrl)",
    "cline": "cline reads its address from its own settings only (cline auth -p openai-native -b URL)",
    "amp": "the loop of amp runs at its vendor",
}
"""Programs that would ask the provider directly, with the reason."""


def adapt_command(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment with what this program needs to ask the gateway.

    `environment` has the addresses of the gateway already. Raises Ungoverned for a program that cannot be.
    Observed in Claude Code 2.1.325, Codex 0.166 and opencode 1.18.
    """
    name, rest = PurePath(command[0]).name.removesuffix(".exe"), list(command[1:])
    result = dict(environment)
    if name in _REFUSED:
        raise Ungoverned(f"NOT GOVERNED: {name} would go around the gateway: {_REFUSED[name]}")
    if name == "codex":  # ignores the variables; with them alone it would ask the provider with the real key
        rest = ["-c", f'openai_base_url="{environment["OPENAI_BASE_URL"]}"', *rest]
        if "OPENAI_API_KEY" in environment:
            result.setdefault("CODEX_API_KEY", environment["OPENAI_API_KEY"])
    elif name == "claude" and "--settings" not in rest:  # the `env` of a settings file beats the variable
        settings = {"env": {"ANTHROPIC_BASE_URL": environment["ANTHROPIC_BASE_URL"]}}
        rest = ["--settings", json.dumps(settings), *rest]
    elif name == "opencode":  # a baseURL in its config beats the variables
        providers = {
            "anthropic": f"{environment['ANTHROPIC_BASE_URL']}/v1",
            "openai": environment["OPENAI_BASE_URL"],
        }
        config = {"provider": {key: {"options": {"baseURL": url}} for key, url in providers.items()}}
        result.setdefault("OPENCODE_CONFIG_CONTENT", json.dumps(config))
    return [command[0], *rest], result
