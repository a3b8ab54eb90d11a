import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from flyball import Agent, ConfigError, Limits, ModelError, TokenPrice, Usage, tool
from flyball.errors import ContextTooLong, Retryable
from flyball.event import Delta, Event
from flyball.models import Model
from flyball.progress import Continue, Progress
from flyball.request import Reply, Request
from flyball.testing import Line, ManualClock, RecordedModel, ScriptDriver, ScriptedModel, call, fail, say, together


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def page() -> str:
    """A page."""
    return "x" * 20_000


class Plain:
    """A `def` model, as people write one."""

    name, provider, price = "plain", None, None

    def ready(self) -> str | None:
        return None

    def ask(self, request: Request, tell: Callable[[str], None], /) -> Reply:
        tell("pla")
        tell("in")
        return Reply("plain", usage=Usage(3, 1))


class Busy(Retryable):
    code = "rate_limited"


def agent(model: Model, **more: Any) -> Agent:
    return Agent(model=model, tools=[add, page], clock=ManualClock(), **more)


def script(*lines: Line, **more: Any) -> ScriptedModel:
    return ScriptedModel(*lines, name="opus", provider="acme", **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "recordings" / "run.json"


LINES: dict[str, list[Line]] = {
    "calls": [together(say("I add."), call("add", a=1, b=2), call("add", a=3, b=4)), say("3 and 7")],
    "a large result": [call("page"), say("long")],
    "streaming": [say("").streaming("he", "llo")],
    "no usage, and cut off": [say("half").using(None).ending("length")],
    "an error that may pass": [fail(Retryable("busy", after=30)), say("at last")],
    "an error of an adapter": [fail(Busy("slow down")), say("at last")],
    "a conversation too long": [fail(ContextTooLong("too long")), say("report")],
    "a final error": [fail(ModelError("no such model"))],
    "an error of somebody else's": [fail(KeyError("choices"))],
}


class TestPlayedBack:
    @pytest.mark.parametrize("name", LINES)
    def test_a_run_comes_to_the_same(self, path: Path, name: str) -> None:
        limits = Limits(tokens=100_000)
        first = ScriptDriver(agent(RecordedModel(path, script(*LINES[name])), limits=limits)).run(
            "Go.", run_id="run-number-1"
        )
        model = RecordedModel(path)
        again = ScriptDriver(agent(model, limits=limits)).run("Go.", run_id="run-number-1")
        assert again == first
        model.assert_played()

    @pytest.mark.parametrize("name", LINES)
    def test_the_name_of_the_run_does_not_matter(self, path: Path, name: str) -> None:
        first = ScriptDriver(agent(RecordedModel(path, script(*LINES[name])))).run("Go.")
        again = ScriptDriver(agent(RecordedModel(path))).run("Go.")
        assert (again.text, again.stop, again.error, again.usage) == (first.text, first.stop, first.error, first.usage)

    def test_a_recording_played_back_asks_no_model(self, path: Path) -> None:
        model = script(say("hello"))
        assert agent(RecordedModel(path, model)).run("Go.").text == "hello"
        assert agent(RecordedModel(path, model)).run("Go.").text == "hello"
        model.assert_asked(1)

    def test_a_model_that_is_no_coroutine_is_asked_in_a_worker_and_played_without(self, path: Path) -> None:
        first = agent(RecordedModel(path, Plain())).run("Go.")
        again = agent(RecordedModel(path)).run("Go.")
        assert (first.text, again.text, again.usage) == ("plain", "plain", Usage(3, 1))

    def test_pieces_of_text_are_told_again(self, path: Path) -> None:
        for _ in range(2):
            told: list[Event] = []
            agent(RecordedModel(path, Plain()), sinks=[told.append]).run("Go.")
            assert [event.text for event in told if isinstance(event, Delta)] == ["pla", "in"]

    def test_a_pause_before_a_reply_is_not_played(self, path: Path) -> None:
        agent(RecordedModel(path, script(say("hello").after(0.01)))).run("Go.")
        assert ScriptDriver(agent(RecordedModel(path))).run("Go.").seconds == 0

    def test_a_recording_played_back_has_the_name_and_the_price_of_the_model(self, path: Path) -> None:
        price = TokenPrice(input=3, output=15)
        first = agent(RecordedModel(path, script(say("x"), price=price)), limits=Limits(usd=1)).run("Go.")
        model = RecordedModel(path)
        assert (model.name, model.provider, model.price, model.ready()) == ("opus", "acme", price, None)
        assert agent(model, limits=Limits(usd=1)).run("Go.").cost == first.cost == {"opus": 105_000}

    def test_a_price_that_the_file_cannot_have_is_that_of_the_model(self, path: Path) -> None:
        class Flat:
            def cost(self, usage: Usage) -> int:
                return 7

        model = script(say("x"), price=Flat())
        agent(RecordedModel(path, model)).run("Go.")
        assert RecordedModel(path).price is None
        assert agent(RecordedModel(path, model), limits=Limits(usd=1)).run("Go.").cost == {"opus": 7}

    def test_a_model_is_ready_when_its_model_is(self, path: Path) -> None:
        model = RecordedModel(path, script(say("x"), not_ready="no key"))
        assert agent(model).run("Go.").error == {
            "code": "model_not_ready",
            "kind": "ModelError",
            "message": "no key",
        }
        assert not path.exists()

    def test_a_model_that_counts_counts_the_same_again(self, path: Path) -> None:
        class Counting(ScriptedModel):
            def count(self, request: Request) -> int:
                return 50 + len(request.messages)

        model = RecordedModel(path, Counting(call("add", a=1, b=2), say("3")))
        first = ScriptDriver(agent(model)).run("Go.")
        again = ScriptDriver(agent(RecordedModel(path))).run("Go.")
        asked = [[event.to_dict().get("input_tokens") for event in one.events] for one in (first, again)]
        assert asked[0] == asked[1]
        assert json.loads(path.read_text())["runs"][0]["counts"] == [51, 53]
        assert not hasattr(RecordedModel(path.with_name("other.json"), script(say("x"))), "count")


class TestSeveralRuns:
    def test_each_run_finds_the_one_that_begins_with_its_request(self, path: Path) -> None:
        model = RecordedModel(path, Echo())
        for task in ("one", "two", "one"):
            agent(model).run(task)
        played = RecordedModel(path)
        assert [agent(played).run(task).text for task in ("two", "one", "one")] == ["2: two", "1: one", "3: one"]
        played.assert_played()

    def test_runs_side_by_side_are_recorded_and_played_whole(self, path: Path) -> None:
        tasks = [f"task {n}" for n in range(10)]

        async def all_of_them(model: Model) -> dict[str, str]:
            texts: dict[str, str] = {}

            async def one(task: str) -> None:
                texts[task] = (await agent(model).arun(task)).text

            with anyio.fail_after(60):
                async with anyio.create_task_group() as group:
                    for task in tasks:
                        group.start_soon(one, task)
            return texts

        lines = [call("add", a=1, b=2).after(0.001), say("done").after(0.001)]
        assert anyio.run(all_of_them, RecordedModel(path, script(*lines))) == dict.fromkeys(tasks, "done")
        tasks.reverse()
        assert anyio.run(all_of_them, RecordedModel(path)) == dict.fromkeys(tasks, "done")

    def test_each_recorded_run_is_played_once(self, path: Path) -> None:
        agent(RecordedModel(path, script(say("hello")))).run("Go.")
        model = RecordedModel(path)
        assert agent(model).run("Go.").completed
        assert str(path) in failed(model, "Go.")


class Echo:
    name, provider, price = "echo", None, None

    def __init__(self) -> None:
        self.asked = 0

    def ready(self) -> str | None:
        return None

    async def ask(self, request: Request, tell: object, /) -> Reply:
        self.asked += 1
        return Reply(f"{self.asked}: {request.messages[-1].content}")


def failed(model: Model, task: str, **more: Any) -> str:
    result = ScriptDriver(agent(model, **more)).run(task)
    assert result.stop == "failed"
    assert result.error is not None
    assert (result.error["code"], result.error["kind"]) == ("model_failed", "ModelError")
    return result.error["message"]


class TestWhatDiffers:
    def test_a_played_back_run_with_another_task_is_told(self, path: Path, snapshot: Callable[..., None]) -> None:
        ScriptDriver(agent(RecordedModel(path, script(say("hello"))))).run("Go.")
        told = failed(RecordedModel(path), "Stop.")
        assert "'Stop.'" in told
        snapshot(told.replace(str(path), "run.json"))

    def test_the_next_of_several_runs_that_are_left_is_told(self, path: Path, snapshot: Callable[..., None]) -> None:
        model = RecordedModel(path, script(say("hello")))
        ScriptDriver(agent(model)).run("Go.")
        ScriptDriver(agent(model)).run("Go on.")
        told = failed(RecordedModel(path), "Stop.")
        snapshot(told.replace(str(path), "run.json"))

    def test_a_played_back_run_with_another_tool_result_is_told(
        self, path: Path, snapshot: Callable[..., None]
    ) -> None:
        lines = [call("add", a=1, b=2), say("3")]
        ScriptDriver(agent(RecordedModel(path, script(*lines)))).run("Go.")

        def add(a: int, b: int) -> int:
            """Add two numbers."""
            return a + b + 1

        one = Agent(model=RecordedModel(path), tools=[add, page])
        told = (ScriptDriver(one).run("Go.").error or {})["message"]
        assert "'4'" in told
        snapshot(told.replace(str(path), "run.json"))

    def test_a_run_that_is_longer_is_told(self, path: Path, snapshot: Callable[..., None]) -> None:
        def more(progress: Progress, /) -> Continue:
            return Continue("More.")

        ScriptDriver(agent(RecordedModel(path, script(say("hello"))))).run("Go.")
        told = failed(RecordedModel(path), "Go.", completion=more)
        snapshot(told.replace(str(path), "run.json"))

    def test_a_run_that_is_shorter_is_told_by_the_assertion(self, path: Path) -> None:
        ScriptDriver(agent(RecordedModel(path, script(call("add", a=1, b=2), say("3"))))).run("Go.")
        model = RecordedModel(path)
        ScriptDriver(agent(model, single_turn=True)).run("Go.")
        with pytest.raises(AssertionError, match=r"^1 .*run\.json"):
            model.assert_played()
        with pytest.raises(AssertionError, match=r"^2 .*run\.json"):
            RecordedModel(path).assert_played()

    def test_a_request_that_was_cut_has_no_reply_to_play(self, path: Path, snapshot: Callable[..., None]) -> None:
        model = RecordedModel(path, script(say("hello").after(600)))
        run = agent(model).start("Go.")
        for event in run:
            if isinstance(event, Delta):
                run.cancel()
        assert run.result(60).stop == "cancelled"
        snapshot(failed(RecordedModel(path), "Go."))


class TestTheFile:
    def test_the_file_of_a_recording_has_no_text_that_was_sent(self, path: Path) -> None:
        secret = "my password is swordfish"
        ScriptDriver(agent(RecordedModel(path, script(say("hello"))), instructions=secret)).run(secret)
        assert "swordfish" not in path.read_text()

    def test_a_key_in_an_error_is_not_written(self, path: Path) -> None:
        error = ModelError("Incorrect API key provided: sk-proj-abc123XYZ789. Authorization: Bearer abc.def.ghi")
        agent(RecordedModel(path, script(fail(error)))).run("Go.")
        told = json.loads(path.read_text())["runs"][0]["requests"][0]["failure"]["message"]
        assert told == "Incorrect API key provided: ***. Authorization: ***"

    def test_a_person_can_read_it(self, path: Path) -> None:
        ScriptDriver(agent(RecordedModel(path, script(call("add", a=1, b=2), say("drei: ③"))))).run("Go.")
        text = path.read_text(encoding="utf-8")
        assert "drei: ③" in text
        first, second = json.loads(text)["runs"][0]["requests"]
        assert (first["request"]["purpose"], list(first["request"]["tools"])) == ("turn", ["add", "page"])
        assert first["reply"]["calls"] == [{"id": "call-0", "name": "add", "arguments": {"a": 1, "b": 2}}]
        assert second["request"]["messages_as_before"] == 1
        assert len(second["request"]["messages"]) == 2
        assert all("add" in label for label in second["request"]["messages"])

    def test_nothing_is_left_beside_it(self, path: Path) -> None:
        agent(RecordedModel(path, script(call("add", a=1, b=2), say("3")))).run("Go.")
        assert list(path.parent.iterdir()) == [path]

    def test_a_recording_that_cannot_be_written_fails_the_run_and_leaves_nothing(self, path: Path) -> None:
        model = RecordedModel(path, script(say("hello")))
        path.mkdir(parents=True)
        result = agent(model).run("Go.")
        assert (result.stop, (result.error or {})["code"]) == ("failed", "exception")
        assert list(path.parent.iterdir()) == [path]

    def test_the_file_of_a_recording_grows_with_what_is_new_and_not_with_the_conversation(self, path: Path) -> None:
        lines = [call("add", a=n, b=n) for n in range(60)]
        ScriptDriver(agent(RecordedModel(path, script(*lines, say("done"))))).run("Go.")
        assert [len(one["request"]["messages"]) for one in json.loads(path.read_text())["runs"][0]["requests"]] == [
            1,
            *[2] * 60,
        ]

    def test_a_recording_that_is_not_there_needs_a_model(self, path: Path) -> None:
        with pytest.raises(ConfigError, match=r"run\.json"):
            RecordedModel(path)

    @pytest.mark.parametrize("text", ["", "[]", "{}", '{"recording": 2}', '{"recording": 1, "model": {}}', "\x00"])
    def test_a_file_of_somebody_else_is_refused(self, path: Path, text: str) -> None:
        path.parent.mkdir()
        path.write_text(text)
        with pytest.raises(ConfigError, match=r"run\.json is not a valid recording"):
            RecordedModel(path)
