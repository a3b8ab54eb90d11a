"""Stories that show what an adapter enforces. Each one measures, and returns a verdict.

There is one definition for all frameworks. A driver for a framework has about 60 lines; see `plan.Driver`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx2

from flyball import Limits
from flyball.models.scripted import Line, call, say, together
from flyball.testing.server import sent, status

from .plan import (
    MODEL,
    WATCHDOG_FACTOR,
    WATCHDOG_S,
    AgentPlan,
    Bench,
    Ran,
    StoryProvider,
    TooEarly,
    Verdict,
    judge,
    judge_time,
)

GARBAGE = {
    **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens", "prompt_tokens", "completion_tokens"), -5),
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
"""Usage that frameworks hand on, in the names of all providers."""


@dataclass(frozen=True)
class Story:
    """Story with its name in the table."""

    name: str
    tell: Callable[[Bench], Awaitable[Verdict]]


STORIES: list[Story] = []


def story(name: str) -> Callable[[Callable[[Bench], Awaitable[Verdict]]], Callable[[Bench], Awaitable[Verdict]]]:
    """Register a story."""

    def register(tell: Callable[[Bench], Awaitable[Verdict]]) -> Callable[[Bench], Awaitable[Verdict]]:
        STORIES.append(Story(name, tell))
        return tell

    return register


@story("parallel calls beyond the limit of calls")
async def tell_parallel_calls(bench: Bench) -> Verdict:
    three = together(*(call("add", a=number) for number in range(3)))
    with StoryProvider(lambda names: three) as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, AgentPlan(tools=[bench.create_counter()]), Limits(tool_calls=4, turns=20))
    return judge(len(bench.calls), 4, 3, "max_tool_calls_reached" in ran.flags)


@story("a hung tool (`async def`)")
async def tell_hung_tool(bench: Bench) -> Verdict:
    released = asyncio.Event()

    async def wait(a: int) -> str:
        """Wait."""
        bench.calls.append("wait")
        await released.wait()
        return "late"

    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            plan, limits = AgentPlan(tools=[wait]), Limits(seconds=bench.seconds)
            ran, is_held = await bench.run_with_watchdog(session, plan, limits, released.set)
    bench.require("wait")
    return judge_time(ran, is_held and bool(ran.text))


@story("a hung tool (`def`)")
async def tell_hung_function(bench: Bench) -> Verdict:
    """Tell the story in an event loop of its own, which has to end as well."""
    released = threading.Event()

    def wait(a: int) -> str:
        """Wait."""
        bench.calls.append("wait")
        released.wait(60)
        return "late"

    with StoryProvider() as provider:

        async def run() -> Ran:
            async with bench.serve(provider) as session:
                return await bench.run(session, AgentPlan(tools=[wait]), Limits(seconds=bench.seconds))

        task = asyncio.ensure_future(asyncio.to_thread(lambda: asyncio.run(run())))
        done, _ = await asyncio.wait({task}, timeout=bench.seconds * WATCHDOG_FACTOR + WATCHDOG_S)
        released.set()
        ran = await task
    bench.require("wait")
    return judge_time(ran, bool(done) and bool(ran.text))


@story("a hung model")
async def tell_hung_model(bench: Bench) -> Verdict:
    late = say("I was not stopped.").after(WATCHDOG_FACTOR * bench.seconds + WATCHDOG_S)
    with StoryProvider(lambda names: late) as provider:
        async with bench.serve(provider) as session:
            plan, limits = AgentPlan(tools=[bench.create_counter()]), Limits(seconds=bench.seconds)
            ran, is_held = await bench.run_with_watchdog(session, plan, limits, lambda: None)
        if not provider.work_requests:
            raise TooEarly
    return judge_time(ran, is_held and ran.text == "The report.")


@story("a sub-agent as a tool")
async def tell_sub_agent(bench: Bench) -> Verdict:
    plan = AgentPlan("top", children=[AgentPlan("child", tools=[bench.create_counter()])])
    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, plan, Limits(turns=5))
        if (provider.work_requests, provider.last_requests) == (5, 2):
            return Verdict.ENFORCED
        return judge(provider.work_requests, 5, 1, "max_agent_iterations_reached" in ran.flags)


@story("a handoff")
async def tell_handoff(bench: Bench) -> Verdict:
    plan = AgentPlan("first", handoffs=[AgentPlan("second", tools=[bench.create_counter()])])
    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, plan, Limits(turns=4))
        if ran.text != "The report." or "add" not in bench.calls:
            return Verdict.UNSEEN
        return judge(provider.work_requests, 4, 1, "max_agent_iterations_reached" in ran.flags)


@story("a streamed run without usage")
async def tell_stream_without_usage(bench: Bench) -> Verdict:
    with StoryProvider(tells_usage=False) as provider:
        async with bench.serve(provider) as session:
            plan = AgentPlan(tools=[bench.create_counter()])
            ran = await bench.run(session, plan, Limits(tokens=bench.tokens), streamed=True)
        largest = max((usage.total for usage in provider.billed), default=0)
        return judge(
            sum(usage.total for usage in provider.billed), bench.tokens, largest, "max_tokens_reached" in ran.flags
        )


@story("retries of the client")
async def tell_retries(bench: Bench) -> Verdict:
    with StoryProvider(lambda names: status(500)) as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, AgentPlan(tools=[bench.create_counter()]), Limits(retries=0))
        return judge(provider.work_requests, 1, 1, "max_retries_reached" in ran.flags)


@story("an exception in a tool")
async def tell_tool_error(bench: Bench) -> Verdict:
    async def add(a: int) -> str:
        """Add one."""
        bench.calls.append("add")
        raise ValueError("no such number")

    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, AgentPlan(tools=[add]), Limits(turns=3))
        if ran.end is None:
            return Verdict.UNSEEN
        return judge(provider.work_requests, 3, 1, ran.stop == "failed")


@story("a cancel")
async def tell_cancel(bench: Bench) -> Verdict:
    started, never = asyncio.Event(), asyncio.Event()

    async def wait(a: int) -> str:
        """Wait."""
        started.set()
        await never.wait()
        return "late"

    ran = Ran()
    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            run = bench.run(session, AgentPlan(tools=[wait]), Limits(turns=5), ran=ran)
            task, begun = asyncio.ensure_future(run), asyncio.ensure_future(started.wait())
            await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
            before = len(provider.requests)
            task.cancel()
            await asyncio.wait({task}, timeout=10)
            never.set()
            begun.cancel()
        if ran.stop != "cancelled":
            return Verdict.UNSEEN
        return judge(len(provider.requests), before, 1, told=True)


@story("an unknown price under a limit of money")
async def tell_unknown_price(bench: Bench) -> Verdict:
    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            plan = AgentPlan(tools=[bench.create_counter()], model="mystery-1")
            ran = await bench.run(session, plan, Limits(usd=1, turns=5))
        if "price" not in f"{ran.error} {ran.text}":
            return Verdict.UNSEEN
        return judge(len(provider.requests), 0, 1, "max_cost_usd_reached" in ran.flags)


@story("a limit inside a parallel branch")
async def tell_parallel_branches(bench: Bench) -> Verdict:
    children = [AgentPlan(name, tools=[bench.create_counter(f"add_{name}")]) for name in ("left", "right")]
    both = together(call("ask_left", input="Count."), call("ask_right", input="Count."))

    def answer(names: list[str]) -> Line | None:
        return both if "ask_left" in names else None

    with StoryProvider(answer) as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, AgentPlan("top", children=children), Limits(turns=7))
        if (provider.work_requests, provider.last_requests) == (7, 3):
            return Verdict.ENFORCED
        return judge(provider.work_requests, 7, 2, "max_agent_iterations_reached" in ran.flags)


@story("a limit met in the last turn")
async def tell_last_turn(bench: Bench) -> Verdict:
    def answer(names: list[str]) -> Line | None:
        return None if not bench.calls else say("Done.")

    with StoryProvider(answer) as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, AgentPlan(tools=[bench.create_counter()]), Limits(turns=2))
        is_exact = (ran.text, ran.stop, len(provider.requests)) == ("Done.", "completed", 2)
        return Verdict.ENFORCED if is_exact else Verdict.UNSEEN


@story("nested adapters")
async def tell_nested(bench: Bench) -> Verdict:
    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            inner = AgentPlan("inner", tools=[bench.create_counter()])

            async def delegate(a: int) -> str:
                """Ask another agent."""
                return str((await bench.run(session, inner, Limits(turns=30))).text)

            ran = await bench.run(session, AgentPlan("outer", tools=[delegate]), Limits(turns=5))
        if (provider.work_requests, provider.last_requests) == (5, 2):
            return Verdict.ENFORCED
        return judge(provider.work_requests, 5, 1, "max_agent_iterations_reached" in ran.flags)


@story("a background task that outlives the run")
async def tell_background(bench: Bench) -> Verdict:
    tasks: list[asyncio.Task[Ran]] = []
    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            inner = AgentPlan("inner", tools=[bench.create_counter()])

            async def begin(a: int) -> str:
                """Begin something in the background."""
                if not tasks:
                    tasks.append(asyncio.create_task(bench.run(session, inner, Limits(turns=30))))
                return "begun"

            await bench.run(session, AgentPlan("outer", tools=[begin]), Limits(turns=5))
            await asyncio.gather(*tasks)
        return judge(provider.work_requests, 5, 1, told=False)


@story("a second run of the same agent at once")
async def tell_second_run(bench: Bench) -> Verdict:
    with StoryProvider() as provider:
        async with bench.serve(provider) as session:
            agent = session.build(AgentPlan(tools=[bench.create_counter()]))
            runs = await asyncio.gather(*(bench.run(session, agent, Limits(turns=3)) for _ in range(2)))
        if all(ran.end is not None and ran.end.turns == 3 for ran in runs) and provider.last_requests == 2:
            return judge(provider.work_requests, 6, 1, told=True)
        return Verdict.UNSEEN


@story("a usage that makes no sense")
async def tell_garbage_usage(bench: Bench) -> Verdict:
    with StoryProvider(lambda names: sent(call("add", a=1), usage=GARBAGE)) as provider:
        async with bench.serve(provider) as session:
            ran = await bench.run(session, AgentPlan(tools=[bench.create_counter()]), Limits(tokens=bench.tokens))
        if ran.stop == "budget" and "max_tokens_reached" in ran.flags:
            return Verdict.ENFORCED
        return Verdict.NOTICED if ran.stop == "failed" else Verdict.UNSEEN


@story("a request that a tool makes by itself")
async def tell_own_request(bench: Bench) -> Verdict:
    """Show where adapters end: they see the requests of their framework only."""
    with StoryProvider() as provider:

        async def ask(a: int) -> str:
            """Ask a model."""
            async with httpx2.AsyncClient(base_url=provider.url) as client:
                body = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
                return (await client.post("/v1/chat/completions", json=body)).text

        async with bench.serve(provider) as session:
            ran = await bench.run(session, AgentPlan(tools=[ask]), Limits(turns=2))
        if ran.end is None:
            return Verdict.UNSEEN
        return judge(provider.work_requests, 2, 1, told=ran.end.requests == len(provider.requests))
