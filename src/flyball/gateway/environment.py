"""Environment of a governed program: addresses, stand-in keys, and ways around the gateway."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import Ungoverned
from .door import Door
from .providers import Upstream

_NO_PROXY = ("127.0.0.1", "localhost")
WAYS_AROUND = {
    "CLAUDE_CODE_USE_BEDROCK": "Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "Vertex",
    "CLAUDE_CODE_USE_FOUNDRY": "Foundry",
    "CLAUDE_CODE_USE_ANTHROPIC_AWS": "AWS",
    "CLAUDE_CODE_USE_MANTLE": "Bedrock",
    "CLAUDE_CODE_USE_ANTHROPIC_GOOGLE_CLOUD": "Google Cloud",
    "ANTHROPIC_UNIX_SOCKET": "another server on this machine",
    "AZURE_OPENAI_ENDPOINT": "Azure",
    "AZURE_OPENAI_API_KEY": "Azure",
    "AZURE_API_BASE": "Azure",
    "ANTHROPIC_BEDROCK_BASE_URL": "Bedrock",
    "AWS_BEARER_TOKEN_BEDROCK": "Bedrock",
    "ANTHROPIC_VERTEX_PROJECT_ID": "Vertex",
    "ANTHROPIC_FOUNDRY_RESOURCE": "Foundry",
    "GOOGLE_GENAI_USE_VERTEXAI": "Vertex",
    "GOOGLE_GENAI_USE_GCA": "Code Assist",
    "CONTINUE_USE_BEDROCK": "Bedrock",
}
"""Variables that lead programs to services whose paths and signatures the gateway does not know."""
_OFF = frozenset({"", "0", "false", "no"})


def build_environment(environment: Mapping[str, str], upstreams: Iterable[Upstream], door: Door) -> dict[str, str]:
    """Return the environment in which a program asks the gateway instead of its providers."""
    result = dict(environment)
    for upstream in upstreams:
        address = door.build_address(upstream)
        result |= dict.fromkeys(upstream.variables, address)
        result |= upstream.stand_ins
    for variable in ("NO_PROXY", "no_proxy"):
        known = [name for name in environment.get(variable, "").split(",") if name.strip()]
        result[variable] = ",".join(dict.fromkeys([*known, *_NO_PROXY]))
    return result


def check_ways_around(environment: Mapping[str, str], source: str = "the environment") -> None:
    """Raise Ungoverned for variables that lead around the gateway."""
    around = {name: service for name, service in WAYS_AROUND.items() if environment.get(name, "").lower() not in _OFF}
    if around:
        names = ", ".join(f"{name} ({service})" for name, service in around.items())
        raise Ungoverned(
            f"NOT GOVERNED: {names} in {source} would lead the program around the gateway: unset what it does not "
            "need, or use --allow-ungoverned (allow_ungoverned=True)"
        )
