from collections.abc import Iterator
from threading import Event

import anyio
import pytest

from flyball.toolbox.fetch_tool import ThreadRunner


@pytest.fixture
def release() -> Iterator[Event]:
    event = Event()
    yield event
    event.set()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_blocks_gives_its_value_or_raises(backend: str) -> None:
    async def main() -> None:
        crew = ThreadRunner()
        assert await crew.run(lambda: 6 * 7) == 42
        with pytest.raises(ZeroDivisionError):
            await crew.run(lambda: 1 / 0)
        assert "127.0.0.1" in await crew.resolve("localhost", 80)

    anyio.run(main, backend=backend)


def test_who_is_cancelled_does_not_wait_and_leaves_room_for_others(release: Event) -> None:
    async def main() -> int:
        crew = ThreadRunner()
        for _ in range(10):
            with anyio.move_on_after(0.005):
                await crew.run(lambda: release.wait(60))
        with anyio.fail_after(60):
            return await crew.run(lambda: 42)

    assert anyio.run(main) == 42


def test_a_crew_of_which_too_many_hang_refuses_more_work(release: Event) -> None:
    async def main() -> None:
        crew = ThreadRunner()
        for _ in range(32):
            with anyio.move_on_after(0.005):
                await crew.run(lambda: release.wait(60))
        with pytest.raises(OSError, match="32"):
            await crew.run(lambda: 42)

    anyio.run(main)
