"""Frameworks keep HTTP clients in caches of their own, and may leave a connection to an event loop that has ended."""

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import UNCLOSED

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(pytest.mark.filterwarnings(UNCLOSED))


@pytest.fixture(autouse=True, scope="module")
def collected() -> Iterator[None]:
    """Collect what a file has left here, instead of in whatever test runs later."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
