"""Bodies of each wire, written by hand from the public descriptions of the APIs."""

import json
from pathlib import Path
from typing import Any

import pytest

BODIES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "bodies").glob("*.json"))}


def cases(kind: str) -> list[tuple[str, int]]:
    return [(name, place) for name, recorded in BODIES.items() for place in range(len(recorded[kind]))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, kind in (("request_case", "requests"), ("reply_case", "replies"), ("stream_case", "streams")):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, cases(kind), ids=lambda case: f"{case[0]}-{case[1]}")
    if "wire_name" in metafunc.fixturenames:
        metafunc.parametrize("wire_name", sorted(BODIES))


@pytest.fixture(scope="session")
def bodies() -> dict[str, Any]:
    return BODIES
