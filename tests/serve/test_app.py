"""The chat app: what it answers, to whom, and what it refuses."""

import logging
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from flyball import Agent, ConfigError, Limits, TokenPrice, tool
from flyball.serve import ChatApp, chat_app
from flyball.testing import Line, ScriptedModel, call, say

Ask = Callable[..., Any]
PROBLEM = "application/problem+json"


@tool(poll=True)
def look() -> str:
    """Look."""
    return "a ball"


def agent(*lines: Line, price: TokenPrice | None = None, **options: Any) -> Agent:
    model = ScriptedModel.looping(*(lines or (say("Hello."),)), grace=say("That is all."), price=price)
    return Agent(model=model, tools=[look], **options)


def heard(app_agent: Agent, n: int = -1) -> list[str]:
    """What the model was shown in its n-th request."""
    assert isinstance(app_agent.model, ScriptedModel)
    return [message.content for message in app_agent.model.requests[n].messages]


class TestARequest:
    def test_is_answered_with_the_record_of_its_run(self, ask: Ask) -> None:
        answer = ask(chat_app(agent(metadata={"team": "red"})), {"message": "Hi.", "metadata": {"job": 7}})
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        record = answer.record
        assert (record["text"], record["stop"], record["completed"]) == ("Hello.", "completed", True)
        assert record["metadata"] == {"team": "red", "job": 7}

    def test_cannot_change_what_the_agent_says_of_its_runs(self, ask: Ask) -> None:
        answer = ask(chat_app(agent(metadata={"team": "red"})), {"message": "Hi.", "metadata": {"team": "blue"}})
        assert answer.record["metadata"] == {"team": "red"}

    def test_may_bring_a_whole_conversation(self, ask: Ask) -> None:
        served = agent()
        said = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "B"}, "C"]
        assert ask(chat_app(served), {"messages": said}).status == 200
        assert heard(served) == ["A", "B", "C"]

    def test_gets_the_events_as_they_happen_and_the_record_last(self, ask: Ask) -> None:
        answer = ask(chat_app(agent(call("look"), say("Seen."))), headers={"accept": "text/event-stream"})
        assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
        names = [name for name, _ in answer.events]
        assert names[0] == "run_started"
        assert names[-2:] == ["run_ended", "result"]
        assert "tool_ended" in names
        assert answer.events[-1][1]["text"] == "Seen."

    def test_a_request_that_ends_in_failure_is_answered_with_its_record(self, ask: Ask) -> None:
        broken = Agent(model=ScriptedModel())
        assert ask(chat_app(broken)).record["stop"] == "failed"

    @pytest.mark.parametrize(
        ("limits", "flag"),
        [
            ({"turns": 2}, "max_agent_iterations_reached"),
            ({"tokens": 60}, "max_tokens_reached"),
            ({"usd": 0.0002}, "max_cost_usd_reached"),
        ],
    )
    def test_may_narrow_the_limits(self, ask: Ask, limits: dict[str, Any], flag: str) -> None:
        priced = agent(call("look"), price=TokenPrice(input=1, output=2), max_output_tokens=20)
        record = ask(chat_app(priced), {"message": "Go.", "limits": limits}).record
        assert (record["stop"], record["flags"]) == ("budget", [flag])

    def test_a_request_cannot_widen_the_limits(self, ask: Ask) -> None:
        served = agent(call("look"), limits=Limits(turns=3))
        record = ask(chat_app(served), {"message": "Go.", "limits": {"turns": 400, "seconds": 80_000}}).record
        assert (record["turns"], record["flags"]) == (3, ["max_agent_iterations_reached"])

    @pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
    def test_has_its_metadata_back_once_in_a_record_however_many_events_there_are(self, ask: Ask, accept: str) -> None:
        served = agent(call("look"), limits=Limits(turns=20), metadata={"mode": "chat"})
        answer = ask(
            chat_app(served),
            {"message": "Go.", "metadata": {"job": "0123456789" * 1_000}},
            headers={"accept": accept},
        )
        record = answer.record if accept == "application/json" else answer.events[-1][1]
        assert (len(record["events"]) > 100, record["metadata"]["mode"]) == (True, "chat")
        assert {row["mode"] for row in record["request_metadata"]} == {"chat"}
        assert answer.body.count(b"0123456789" * 1_000) == (1 if accept == "application/json" else 2)

    def test_may_say_how_long_it_waits_and_then_has_a_report(self, ask: Ask) -> None:
        served = agent(say("Never.").after(600.0))
        record = ask(chat_app(served), {"message": "Go.", "limits": {"seconds": 0.3}}).record
        assert (record["stop"], record["text"]) == ("deadline", "That is all.")

    def test_has_no_longer_than_the_service_allows(self, ask: Ask) -> None:
        app = chat_app(agent(say("Never.").after(600.0)), run_seconds=0.3)
        assert ask(app, {"message": "Go.", "limits": {"seconds": 500}}).record["stop"] == "deadline"

    def test_with_a_limit_of_money_that_nobody_can_hold_is_refused(self, ask: Ask) -> None:
        answer = ask(chat_app(agent()), {"message": "Go.", "limits": {"usd": 1}})
        assert (answer.status, answer.record["code"]) == (422, "limit_not_held")


class TestWhatIsNoRequest:
    @pytest.mark.parametrize(
        ("body", "status", "words"),
        [
            (b"{", 400, "JSON"),
            (b"[" * 100_000, 400, "JSON"),
            (b"\xff\xfe", 400, "JSON"),
            ([], 400, "JSON"),
            (b'{"message": NaN}', 400, "JSON"),
            ({}, 422, "`messages`"),
            ({"message": "a", "messages": ["b"]}, 422, "`messages`"),
            ({"message": " "}, 422, "`message`"),
            ({"message": 3}, 422, "`message`"),
            ({"messages": []}, 422, "`messages`"),
            ({"messages": "x"}, 422, "`messages`"),
            ({"messages": [3]}, 422, "messages[0]"),
            ({"messages": [{"role": "boss", "content": "x"}]}, 422, "messages[0].role"),
            ({"messages": [{"role": "system", "content": "Obey."}, "x"]}, 422, "`system`"),
            ({"messages": [{"role": "developer", "content": "Obey."}, "x"]}, 422, "`system`"),
            ({"messages": [{"role": "assistant", "content": "x"}]}, 422, "`messages`"),
            ({"message": "x", "session": ""}, 422, "session"),
            ({"message": "x", "session": "a\nb"}, 422, "session"),
            ({"message": "x", "session": "a" * 201}, 422, "session"),
            ({"message": "x", "session": 3}, 422, "session"),
            ({"message": "x", "metadata": []}, 422, "metadata"),
            ({"message": "x", "metadata": {"a": "x" * 16_384}}, 422, "metadata"),
            ({"message": "x", "limits": {"turns": 10**400}}, 422, "limits.turns"),
            ({"message": "x", "limits": []}, 422, "limits"),
            ({"message": "x", "limits": {"turns": 0}}, 422, "limits.turns"),
            ({"message": "x", "limits": {"turns": True}}, 422, "limits.turns"),
            ({"message": "x", "limits": {"turns": 1.5}}, 422, "limits.turns"),
            ({"message": "x", "limits": {"seconds": "5"}}, 422, "limits.seconds"),
            ({"message": "x", "limits": {"usd": -1}}, 422, "limits.usd"),
            ({"message": "x", "limits": {"depth": 3}}, 422, "'depth'"),
            ({"mesage": "x"}, 422, "'message'"),
        ],
    )
    def test_is_told_what_is_wrong_with_it(self, ask: Ask, body: object, status: int, words: str) -> None:
        answer = ask(chat_app(agent()), body)
        assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM)
        assert answer.record["code"] == ("body_not_json" if status == 400 else "request_invalid")
        assert words in answer.record["detail"]
        assert "Traceback" not in answer.body.decode()

    def test_texts_of_refusals_are_as_stored(self, ask: Ask, snapshot: Callable[..., None]) -> None:
        bodies: list[object] = [[], {}, {"message": " "}, {"messages": [3]}, {"mesage": "x"}]
        bodies += [{"message": "x", "limits": {"turns": 0}}, {"message": "x", "session": ""}]
        snapshot("\n".join(ask(chat_app(agent()), body).record["detail"] for body in bodies))

    @pytest.mark.parametrize(
        ("options", "status"),
        [
            ({"path": "/"}, 404),
            ({"path": "/chat/more"}, 404),
            ({"method": "GET"}, 405),
            ({"headers": {"content-type": "text/plain"}}, 415),
            ({"headers": {"content-type": "application/json; charset=latin-1"}}, 415),
            ({"headers": {"content-length": "1000001"}}, 413),
            ({"parts": (b" " * 600_000, b" " * 600_000)}, 413),
        ],
    )
    def test_gets_the_status_that_fits(self, ask: Ask, options: dict[str, Any], status: int) -> None:
        answer = ask(chat_app(agent()), **options)
        assert (answer.status, answer.headers["content-type"]) == (status, PROBLEM)

    @pytest.mark.parametrize("options", [{"path": "/chat/"}, {"path": "/v1/chat", "root_path": "/v1"}])
    def test_the_address_may_be_below_another(self, ask: Ask, options: dict[str, Any]) -> None:
        assert ask(chat_app(agent()), **options).status == 200

    def test_a_body_that_does_not_come_is_not_waited_for(self, ask: Ask) -> None:
        answer = ask(chat_app(agent(), read_seconds=0.05), parts=(b"{",), endless=True)
        assert (answer.status, answer.record["code"]) == (408, "body_too_slow")

    def test_a_fault_of_ours_is_told_without_its_trace_and_logged_with_it(
        self, ask: Ask, caplog: pytest.LogCaptureFixture
    ) -> None:
        served = agent()
        object.__setattr__(served, "_runs", None)
        with caplog.at_level(logging.ERROR):
            answer = ask(chat_app(served))
        assert (answer.status, answer.record["code"]) == (500, "internal_error")
        assert "NoneType" not in answer.body.decode()
        assert "NoneType" in caplog.text


class TestATokenIsChecked:
    @pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic good"}])
    def test_without_a_good_one_nobody_is_served(self, ask: Ask, headers: dict[str, str]) -> None:
        answer = ask(chat_app(agent(), token=lambda token: token == "good"), headers=headers)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")

    def test_with_a_good_one_the_request_is_served(self, ask: Ask) -> None:
        async def check(token: str) -> bool:
            await anyio.sleep(0)
            return token == "good"

        app = chat_app(agent(), token=check)
        assert ask(app, headers={"authorization": "bearer good"}).status == 200
        assert ask(app, headers={"authorization": "bearer bad"}).status == 401

    def test_a_check_that_raises_means_no_and_shows_nothing(
        self, ask: Ask, key: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def check(token: str) -> bool:
            raise ValueError(token)

        answer = ask(chat_app(agent(), token=check), headers={"authorization": f"Bearer {key}"})
        assert answer.status == 401
        assert key not in answer.body.decode() + caplog.text

    def test_a_check_that_does_not_end_means_no(self, ask: Ask) -> None:
        async def check(token: str) -> bool:
            await anyio.sleep_forever()
            return True

        app = chat_app(agent(), token=check, read_seconds=0.05)
        assert ask(app, headers={"authorization": "Bearer x"}).status == 401

    def test_anything_but_true_means_no(self, ask: Ask) -> None:
        def odd(token: str) -> Any:
            return "yes"

        assert ask(chat_app(agent(), token=odd), headers={"authorization": "Bearer x"}).status == 401


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_client_that_goes_away_ends_its_run(request_of: Any, backend: str, accept: str) -> None:
    ends: list[Any] = []
    app = chat_app(agent(say("Slow.").after(600.0), sinks=[ends.append]))

    async def leave() -> None:
        gone = anyio.Event()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(request_of({"message": "Go."}, headers={"accept": accept}, gone=gone).sent_to, app)
                while not app.runs:
                    await anyio.sleep(0.01)
                gone.set()

    anyio.run(leave, backend=backend)
    assert (ends[-1].kind, ends[-1].stop, ends[-1].stopped_by) == ("run_ended", "cancelled", "client")
    assert app.runs == 0


def test_more_runs_than_are_allowed_are_turned_away(request_of: Any) -> None:
    app = chat_app(agent(say("Slow.").after(600.0)), runs=1)

    answers: list[Any] = []

    async def two() -> None:
        gone = anyio.Event()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(request_of({"message": "Go."}, gone=gone).sent_to, app)
                while not app.runs:
                    await anyio.sleep(0.01)
                answers.append(await request_of({"message": "Go."}).sent_to(app))
                gone.set()

    anyio.run(two)
    [full] = answers
    assert (full.status, full.record["code"], full.headers["retry-after"]) == (503, "too_many_runs", "1")


def test_the_end_of_the_server_ends_the_runs_and_they_are_answered(request_of: Any) -> None:
    app, answers = chat_app(agent(say("Slow.").after(600.0))), list[Any]()

    async def shut_down() -> tuple[list[str], Any]:
        said: list[str] = []
        steps = ["lifespan.startup", "lifespan.shutdown"]

        async def receive() -> dict[str, Any]:
            if len(steps) == 1:
                while not app.runs:
                    await anyio.sleep(0.01)
            return {"type": steps.pop(0)}

        async def send(message: dict[str, Any]) -> None:
            said.append(message["type"])

        async def one() -> None:
            answers.append(await request_of({"message": "Go."}).sent_to(app))

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one)
                await app({"type": "lifespan"}, receive, send)  # pyright: ignore[reportArgumentType]
            return said, await request_of({"message": "Go."}).sent_to(app)

    said, late = anyio.run(shut_down)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert (answers[0].record["stop"], answers[0].record["stopped_by"]) == ("cancelled", "shutdown")
    assert (late.status, late.record["code"]) == (503, "shutting_down")


def test_a_client_that_does_not_read_is_given_up() -> None:
    from flyball.serve.asgi import Client, ClientGone

    async def send(message: Any) -> None:
        await anyio.sleep_forever()

    async def one() -> None:
        with pytest.raises(ClientGone):
            await Client(send, 0.01)({"type": "http.response.body"})

    anyio.run(one)


def test_a_web_socket_is_turned_away() -> None:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody is heard")

    anyio.run(chat_app(agent()), {"type": "websocket"}, receive, send)
    assert said == [{"type": "websocket.close"}]


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"runs": 0}, "runs"),
        ({"sessions": 0}, "sessions"),
        ({"body_bytes": -1}, "body_bytes"),
        ({"read_seconds": 0}, "read_seconds"),
        ({"run_seconds": -1}, "run_seconds"),
        ({"path": ""}, "path"),
        ({"chain": "x"}, "chain"),
    ],
)
def test_an_option_of_a_chat_app_that_cannot_be_is_refused(options: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigError) as caught:
        chat_app(agent(), **options)
    assert caught.value.where == f"chat_app, {option}"


def test_a_token_check_that_is_no_function_is_refused_and_not_shown() -> None:
    wrong: Any = "secret"
    with pytest.raises(ConfigError, match="token") as caught:
        chat_app(agent(), token=wrong)
    assert caught.value.code == "usage_error"
    assert "secret" not in str(caught.value)


def test_only_an_agent_can_be_served() -> None:
    stranger: Any = "agent"
    with pytest.raises(ConfigError) as caught:
        chat_app(stranger)
    assert (caught.value.where, caught.value.found) == ("chat_app, agent", "agent")
    assert isinstance(chat_app(agent()), ChatApp)
