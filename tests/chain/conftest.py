"""Services of a chain: each with its own name, and all with the same keys unless a test says otherwise."""

from collections.abc import Callable
from typing import Any

import pytest

from flyball.chain import Chain, Keys

SECRET = "a secret that all of them have"


@pytest.fixture
def service() -> Callable[..., Chain]:
    """Makes one by its name: `service("a")`, `service("a", keys=None)`."""

    def service(name: str, **options: Any) -> Chain:
        given: dict[str, Any] = {"keys": Keys(SECRET), "settings": {}, **options}
        return Chain(name=name, host=f"{name}.example", **given)

    return service
