"""Pytest fixtures. Pytest finds them where Flyball is installed.

flyball_settings   ignores settings of this machine and folder; `flyball_settings({"max_turns": 5})` sets one
flyball_clock      a ManualClock
flyball_recorded   creates a RecordedModel whose file is beside the test: recordings/<module>/<test>.json
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..settings import CONFIG, PREFIX, variable_for

if TYPE_CHECKING:
    from ..models import Model
    from .clock import ManualClock
    from .recording import RecordedModel


def clear_settings(environ: MutableMapping[str, str]) -> None:
    """Remove Flyball's settings from an environment, and disable settings files."""
    for name in [name for name in environ if name.startswith(PREFIX)]:
        del environ[name]
    environ[CONFIG] = os.devnull


@pytest.fixture
def flyball_settings() -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Provide empty settings and a function to set some, then restore all.

    They are set as environment variables, so child processes see them too.
    """
    before = {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}

    def set_settings(settings: Mapping[str, object]) -> None:
        os.environ.update({variable_for(key): str(value) for key, value in settings.items()})

    clear_settings(os.environ)
    yield set_settings
    clear_settings(os.environ)
    del os.environ[CONFIG]
    os.environ.update(before)


@pytest.fixture
def flyball_clock() -> ManualClock:
    """Provide a clock that stands still until the test moves it."""
    from .clock import ManualClock

    return ManualClock()


@pytest.fixture
def flyball_recorded(request: pytest.FixtureRequest) -> Callable[[Model | None], RecordedModel]:
    """Provide a factory for the test's RecordedModel.

    `flyball_recorded(model)` asks the model in the first test run only.
    """
    from .recording import RecordedModel

    models: list[RecordedModel] = []
    folder = request.path.parent / "recordings" / request.path.stem

    def make(model: Model | None = None) -> RecordedModel:
        name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
        number = f"-{len(models) + 1}" if models else ""
        models.append(RecordedModel(Path(folder, f"{name}{number}.json"), model))
        return models[-1]

    return make
