"""Fixtures for pytest, which finds them by itself where Flyball is installed; they do nothing unless a test asks.

flyball_settings   no setting of this machine or folder counts; `flyball_settings({"max_turns": 5})` gives one
flyball_clock      a ManualClock
flyball_recorded   makes a RecordedModel whose file lies beside the test: recordings/<module>/<test>.json
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
    """Take all of Flyball's settings out of an environment, and let no file be looked for."""
    for name in [name for name in environ if name.startswith(PREFIX)]:
        del environ[name]
    environ[CONFIG] = os.devnull


@pytest.fixture
def flyball_settings() -> Iterator[Callable[[Mapping[str, object]], None]]:
    """Settings that are empty but for what the test gives; afterwards all is as before.

    They are given as variables of the environment, so child processes see them too.
    """
    before = {name: text for name, text in os.environ.items() if name.startswith(PREFIX)}

    def give(settings: Mapping[str, object]) -> None:
        os.environ.update({variable_for(key): str(value) for key, value in settings.items()})

    clear_settings(os.environ)
    yield give
    clear_settings(os.environ)
    del os.environ[CONFIG]
    os.environ.update(before)


@pytest.fixture
def flyball_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    from .clock import ManualClock

    return ManualClock()


@pytest.fixture
def flyball_recorded(request: pytest.FixtureRequest) -> Callable[[Model | None], RecordedModel]:
    """Makes the test's RecordedModel: `flyball_recorded(model)` asks the model the first time, and never again."""
    from .recording import RecordedModel

    made: list[RecordedModel] = []
    folder = request.path.parent / "recordings" / request.path.stem

    def make(model: Model | None = None) -> RecordedModel:
        name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
        number = f"-{len(made) + 1}" if made else ""
        made.append(RecordedModel(Path(folder, f"{name}{number}.json"), model))
        return made[-1]

    return make
