import asyncio
from collections.abc import Coroutine, Iterator
from threading import Thread
from typing import Any

import pytest

from flyball import BudgetExceeded, ConfigError, IterationBudgetRegistry, UnknownBudget, bounded


def test_depth_bounds_how_deep_calls_are_nested_and_not_how_many_there_are() -> None:
    @bounded("crawl_depth", 3, counts="depth")
    def crawl(depth: int) -> int:
        return 1 if depth == 1 else crawl(depth - 1) + crawl(depth - 1)

    assert crawl(3) == 4
    with pytest.raises(BudgetExceeded) as caught:
        crawl(4)
    error = caught.value
    assert (error.budget, error.asked, error.remaining, error.ceiling) == ("crawl_depth", 1, 0, 3)
    assert crawl(3) == 4


def test_calls_bounds_how_many_there_are_below_the_outermost() -> None:
    calls: list[int] = []

    @bounded("fetches", 3)
    def fetch(attempts: int) -> int:
        calls.append(attempts)
        return 0 if attempts == 0 else fetch(attempts - 1)

    assert fetch(2) == 0
    with pytest.raises(BudgetExceeded, match="fetches"):
        fetch(3)
    assert len(calls) == 3 + 3
    assert fetch(2) == 0


def test_calls_side_by_side_below_one_outermost_are_counted_together() -> None:
    @bounded("calls", 3)
    def visit(below: int) -> int:
        return 1 + sum(visit(0) for _ in range(below))

    assert visit(2) == 3
    with pytest.raises(BudgetExceeded):
        visit(3)


def test_siblings_are_bounded_like_the_first() -> None:
    @bounded("depth", 2, counts="depth")
    def nest(shape: list[Any]) -> int:
        return 1 + sum(nest(below) for below in shape)

    assert nest([[], [], []]) == 4
    with pytest.raises(BudgetExceeded):
        nest([[], [[]]])


def test_a_function_that_returns_a_coroutine_is_told_to_be_async() -> None:
    async def work() -> int:
        return 1

    def hidden() -> Coroutine[Any, Any, int]:
        return work()

    with pytest.raises(ConfigError, match="async def"):
        _ = bounded("x", 1)(hidden)()


def test_a_function_that_raises_leaves_nothing_behind() -> None:
    @bounded("depth", 1, counts="depth")
    def fail() -> None:
        raise ZeroDivisionError

    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            fail()


def test_the_ceiling_may_come_from_a_registry() -> None:
    registry = IterationBudgetRegistry(settings={"max_pages": 99})
    registry.register("pages", default=1, min=1, max=2, setting="max_pages")

    @bounded("pages", registry=registry)
    def visit(more: int) -> int:
        return 0 if not more else visit(more - 1)

    assert visit(1) == 0
    with pytest.raises(BudgetExceeded):
        visit(2)


def test_threads_have_budgets_of_their_own() -> None:
    @bounded("depth", 2, counts="depth")
    def nest(depth: int) -> int:
        return 1 if depth == 1 else nest(depth - 1) + 1

    answers: list[int] = []
    workers = [Thread(target=lambda: answers.append(nest(2))) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert answers == [2] * 8


def test_tasks_side_by_side_are_equally_deep_and_share_the_count_of_calls() -> None:
    @bounded("depth", 2, counts="depth")
    async def spread(depth: int) -> int:
        await asyncio.sleep(0)
        return 1 if depth == 1 else sum(await asyncio.gather(*(spread(depth - 1) for _ in range(5))))

    @bounded("calls", 5)
    async def count(depth: int) -> int:
        await asyncio.sleep(0)
        return 1 if depth == 1 else sum(await asyncio.gather(*(count(depth - 1) for _ in range(5))))

    assert asyncio.run(spread(2)) == 5
    with pytest.raises(BudgetExceeded, match="depth"):
        asyncio.run(spread(3))
    with pytest.raises(BudgetExceeded, match="calls"):
        asyncio.run(count(2))


def test_methods_work_and_names_stay() -> None:
    class Walker:
        @bounded("steps", 2)
        def walk(self, steps: int) -> str:
            """Walk."""
            return "there" if not steps else self.walk(steps - 1)

    assert (Walker().walk(1), Walker.walk.__name__, Walker.walk.__doc__) == ("there", "walk", "Walk.")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, ConfigError),
        ({"ceiling": 3, "registry": IterationBudgetRegistry(settings={})}, ConfigError),
        ({"ceiling": -1}, ConfigError),
        ({"ceiling": 3, "counts": "width"}, ConfigError),
        ({"registry": IterationBudgetRegistry(settings={})}, UnknownBudget),
    ],
)
def test_a_mistake_is_told_where_it_is_written(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="my_budget"):
        bounded("my_budget", **arguments)


def test_a_generator_is_refused_because_its_call_does_not_do_the_work() -> None:
    def generate() -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigError) as caught:
        bounded("x", 1)(generate)
    assert caught.value.found is generate
    assert list(generate()) == [1]
