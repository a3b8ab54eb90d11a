"""Copilot CLI, and amp, which cannot be governed."""

from __future__ import annotations

from .launch import KnownProgram, Launch

_ADDRESS, _KIND = "COPILOT_PROVIDER_BASE_URL", "COPILOT_PROVIDER_TYPE"
_KEYS = ("COPILOT_PROVIDER_API_KEY", "COPILOT_PROVIDER_BEARER_TOKEN")
_VARIABLES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
}


def _get_kind(launch: Launch) -> str:
    return launch.environment.get(_KIND) or "openai"


def _prepare_copilot(launch: Launch) -> None:
    if not launch.environment.get(_ADDRESS):
        raise launch.refuse(
            "without a provider of yours it asks its own service",
            f"set {_ADDRESS}, {_KIND} (openai or anthropic), {_KEYS[0]} and COPILOT_MODEL",
        )
    kind = _get_kind(launch)
    if kind not in _VARIABLES:
        raise launch.refuse(f"{_KIND}={kind} has other paths", "use openai or anthropic")
    address, key = _VARIABLES[kind]
    launch.environment[address] = launch.environment[_ADDRESS]
    given = next((launch.environment[name] for name in _KEYS if launch.environment.get(name)), None)
    if given:
        launch.environment[key] = given


def _point_copilot(launch: Launch) -> None:
    address, key = _VARIABLES[_get_kind(launch)]
    launch.set(_ADDRESS, launch.governed[address])
    for name in _KEYS:
        if launch.environment.get(name):
            launch.set(name, launch.governed[key] if key in launch.governed else launch.environment[name])
    launch.changes.append(f"{_ADDRESS} was set")


COPILOT = KnownProgram(
    name="copilot",
    title="Copilot CLI",
    version="1.0.102",
    wires=("chat", "responses", "messages"),
    example='copilot -p "fix the failing test" --allow-all-tools',
    enforced="all limits, with a provider of yours",
    pointed_by="COPILOT_PROVIDER_BASE_URL",
    escapes=("its own service is refused before the start",),
    elsewhere=("--connect",),
    packages=("@github/copilot",),
    prepare=_prepare_copilot,
    point=_point_copilot,
)


def _refuse_amp(launch: Launch) -> None:
    raise launch.refuse("its loop runs at its vendor", "no setting changes that, use another program")


AMP = KnownProgram(
    name="amp",
    title="Amp",
    version="none",
    wires=(),
    example="amp -x 'fix the failing test'",
    enforced="nothing: refused before the start",
    pointed_by="",
    escapes=("its loop runs at its vendor",),
    packages=("@sourcegraph/amp", "@ampcode/cli"),
    prepare=_refuse_amp,
)
