"""Sessions, in memory and in a store: what is kept of them, and how the chat app goes on with them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits
from flyball.message import Message, MessageType, Role
from flyball.serve import chat_app
from flyball.serve.sessions import MAX_BYTES, ChatSession, ChatSessions
from flyball.store import Guard, Store, open_store
from flyball.testing import Line, ScriptedModel, say

Ask = Callable[..., Any]


def agent(*lines: Line, **options: Any) -> Agent:
    return Agent(model=ScriptedModel.looping(*(lines or (say("Hello."),))), **options)


def heard(app_agent: Agent, n: int = -1) -> list[str]:
    """What the model was shown in its n-th request."""
    assert isinstance(app_agent.model, ScriptedModel)
    return [message.content for message in app_agent.model.requests[n].messages]


def said(n: int, role: Role) -> Message:
    return Message("run", n, 0.0, MessageType.TEXT, role, str(n))


def test_a_very_long_conversation_is_kept_from_a_message_of_the_user_near_its_end() -> None:
    session = ChatSession()
    session.store_messages([said(n, Role.USER if n % 3 == 0 else Role.ASSISTANT) for n in range(1_500)])
    assert [message.n for message in session.messages[:2]] == [501, 502]
    assert session.messages[-1].n == 1_499


def test_what_is_short_is_kept_whole() -> None:
    session = ChatSession()
    session.store_messages([said(0, Role.ASSISTANT), said(1, Role.USER)])
    assert len(session.messages) == 2


def large(n: int, size: int) -> Message:
    return Message("run", n, 0.0, MessageType.TEXT, Role.USER, "x" * size)


def test_a_conversation_of_many_bytes_loses_its_oldest_messages() -> None:
    session = ChatSession()
    session.store_messages([large(n, 1_000_000) for n in range(10)])
    assert [message.n for message in session.messages] == [7, 8, 9]
    assert 3_000_000 < session.size <= MAX_BYTES


def test_a_message_that_alone_is_too_large_is_not_kept() -> None:
    session = ChatSession()
    session.store_messages([large(0, MAX_BYTES + 1)])
    assert (session.messages, session.size) == ((), 0)


def test_sessions_of_many_bytes_drop_the_oldest_that_no_run_uses() -> None:
    sessions = ChatSessions(100, 2_500_000)
    busy = sessions.open(("ann", "busy"))
    busy.is_busy = True
    for name in ("busy", "a", "b", "c"):
        sessions.store(sessions.open(("ann", name)), [large(0, 1_000_000)])
    kept = [name for name in ("busy", "a", "b", "c") if sessions.open(("ann", name)).messages]
    assert (kept, sessions.size <= 2_500_000) == (["busy", "c"], True)


def test_a_session_at_which_a_run_is_does_not_give_way() -> None:
    sessions = ChatSessions(1, MAX_BYTES)
    busy = sessions.open(("ann", "a"))
    busy.is_busy = True
    other = sessions.open(("ann", "b"))
    assert sessions.open(("ann", "a")) is busy
    assert sessions.open(("ann", "b")) is not other
    assert len(sessions) == 2


class TestASession:
    def test_goes_on_where_it_ended(self, ask: Ask) -> None:
        served = agent()
        app = chat_app(served)
        first = ask(app, {"message": "A", "session": "s"})
        ask(app, {"message": "B", "session": "s"})
        assert first.record["session_id"] == "s"
        assert heard(served) == ["A", "Hello.", "B"]

    def test_is_not_that_of_another_name_nor_kept_without_one(self, ask: Ask) -> None:
        served = agent()
        app = chat_app(served)
        for body in ({"message": "A", "session": "s"}, {"message": "B", "session": "t"}, {"message": "C"}):
            ask(app, body)
        assert heard(served) == ["C"]
        assert heard(served, 1) == ["B"]

    def test_is_nobodys_but_his_who_began_it(self, ask: Ask) -> None:
        served = agent()
        app = chat_app(served, token=lambda token: True)
        for who in ("ann", "bob"):
            ask(app, {"message": who, "session": "s"}, headers={"authorization": f"Bearer {who}"})
        assert heard(served) == ["bob"]

    def test_gives_way_to_newer_ones(self, ask: Ask) -> None:
        served = agent()
        app = chat_app(served, sessions=2)
        for session in ("a", "b", "a", "c", "b"):
            ask(app, {"message": session, "session": session})
        assert heard(served) == ["b"]
        ask(app, {"message": "c again", "session": "c"})
        assert heard(served) == ["c", "Hello.", "c again"]

    @pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
    def test_is_free_as_soon_as_its_client_has_the_answer(self, request_of: Any, accept: str) -> None:
        app, statuses = chat_app(agent()), list[int]()

        async def next_one(answer: Any) -> None:
            statuses.append((await request_of({"message": "B", "session": "s"}).sent_to(app)).status)

        async def first() -> None:
            with anyio.fail_after(60):
                headers = {"accept": accept}
                await request_of({"message": "A", "session": "s"}, headers=headers, when_whole=next_one).sent_to(app)

        anyio.run(first)
        assert statuses == [200]

    def test_on_which_a_run_goes_on_is_busy(self, request_of: Any) -> None:
        app = chat_app(agent(say("Slow.").after(600.0), limits=Limits(seconds=60)))

        async def two() -> tuple[Any, Any]:
            gone, body, answers = anyio.Event(), {"message": "Go.", "session": "s"}, list[Any]()
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(request_of(body, gone=gone).sent_to, app)
                    while not app.runs:
                        await anyio.sleep(0.01)
                    answers.append(await request_of(body).sent_to(app))
                    gone.set()
                answers.append(await request_of(body, gone=gone).sent_to(app))
            return answers[0], app.runs

        busy, runs = anyio.run(two)
        assert (busy.status, busy.record["code"]) == (409, "session_busy")
        assert runs == 0, "and when that has ended, it is free again"


@pytest.fixture(params=["memory:", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path}/runs.db" if request.param == "sqlite" else request.param)
    yield store
    store.close()


class TestASessionOfAnAgentWithAStore:
    def test_is_kept_there_and_told_once(self, ask: Ask, store: Store) -> None:
        served = agent(store=store)
        for text in ("A", "B", "C"):
            answer = ask(chat_app(served), {"message": text, "session": "s"})  # another service, each time
        assert heard(served) == ["A", "Hello.", "B", "Hello.", "C"]
        assert answer.record["session_id"] == "s"
        assert [message.content for message in store.transcript.read("s")] == [*heard(served), "Hello."]

    def test_is_nobodys_but_his_who_began_it(self, ask: Ask, store: Store) -> None:
        served = agent(store=store)
        app = chat_app(served, token=lambda token: True)
        served.run("Mine.", session="s")
        for authorization in ("Bearer ann", "Bearer bob", "bearer  ann "):
            ask(app, {"message": authorization, "session": "s"}, headers={"authorization": authorization})
        assert [heard(served, n) for n in (1, 2)] == [["Bearer ann"], ["Bearer bob"]]
        assert heard(served) == ["Bearer ann", "Hello.", "bearer  ann "]

    @pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
    def test_a_session_that_any_process_works_on_is_busy(self, ask: Ask, store: Store, accept: str) -> None:
        served = agent(store=store)
        held = store.lease.acquire("s", owner="another process", seconds=600)
        assert isinstance(held, Guard)
        body = {"message": "Go.", "session": "s"}
        answer = ask(chat_app(served), body, headers={"accept": accept})
        assert (answer.status, answer.record["code"]) == (409, "session_busy")
        assert "another process" not in str(answer.record)
        store.lease.release(held)
        assert ask(chat_app(served), body, headers={"accept": accept}).status == 200
        assert heard(served) == ["Go."]
