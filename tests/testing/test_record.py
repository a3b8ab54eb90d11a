"""Recording a real conversation: always anew, and without the key that it was made with."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball import Agent, ConfigError, Limits, Result, tool
from flyball.errors import Retryable
from flyball.models import Model, OpenAIModel
from flyball.request import Call, Reply, Request
from flyball.testing import ModelServer, ScriptedModel, call, playback, record, say, status, together

KEY = "swordfish=7"
"""No key looks like this; only the model can know."""


@tool
def look(word: str) -> str:
    """Look a word up."""
    return f"{word} means {word}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.json"


def run(model: Model, task: str = "Go.") -> Result:
    return Agent(model=model, tools=[look]).run(task)


class Leaky:
    """A model that repeats its key wherever it can."""

    name, provider, price = "leaky", "acme", None

    def __init__(self) -> None:
        self.asked = 0

    def ready(self) -> str | None:
        return None

    def secrets(self) -> list[str]:
        return [KEY]

    def ask(self, request: Request, tell: Callable[[str], None], /) -> Reply:
        self.asked += 1
        if self.asked == 1:
            raise Retryable(f"busy, {KEY}")
        if self.asked == 2:
            calls = (Call("1", "look", {"word": KEY}), Call("2", "look", f'{{"word": "{KEY}"}}'))
            return Reply(f"I look {KEY} up.", (*calls, Call("3", KEY, {KEY: KEY})), model=f"leaky {KEY}")
        for piece in ("It is swor", "dfish=", "7."):
            tell(piece)
        return Reply(f"It is {KEY}.")


class TestRecord:
    def test_recording_asks_the_model_although_there_is_a_file(self, path: Path) -> None:
        assert run(record(ScriptedModel(say("one")), path)).text == "one"
        assert run(record(ScriptedModel(say("two")), path)).text == "two"
        assert run(playback(path)).text == "two"

    def test_until_it_has_asked_the_old_file_stays(self, path: Path) -> None:
        run(record(ScriptedModel(say("one")), path))
        record(ScriptedModel(say("two")), path)
        assert run(playback(path)).text == "one"

    def test_playing_back_needs_a_file(self, path: Path) -> None:
        with pytest.raises(ConfigError, match=str(path)):
            playback(path)


class TestModel:
    def test_a_recorded_model_is_asked_for_no_more_than_the_model_itself(self, path: Path) -> None:
        with ModelServer(say("So")) as server:
            real = OpenAIModel("m", url=f"{server.url}/v1", key=KEY, max_output_tokens=300, context_tokens=9_000)
            model = record(real, path)
            Agent(model=model, limits=Limits(tokens=20_000)).run("Go.")
        assert server.requests[0].body["max_tokens"] == 300
        for one in (model, playback(path)):
            assert (one.max_output_tokens, one.context_tokens) == (300, 9_000)

    def test_secrets_of_a_model_are_known_behind_two_recordings(self, path: Path) -> None:
        run(record(record(Leaky(), path), path.with_name("outer.json")))
        assert "swordfish" not in path.with_name("outer.json").read_text()

    def test_an_older_recording_tells_no_bounds(self, path: Path) -> None:
        run(record(ScriptedModel(say("one")), path))
        data = json.loads(path.read_text())
        del data["model"]["max_output_tokens"], data["model"]["context_tokens"]
        path.write_text(json.dumps(data))
        assert run(playback(path)).text == "one"


class TestSecrets:
    def test_none_is_in_the_file_and_it_can_still_be_played_back(self, path: Path) -> None:
        first = run(record(Leaky(), path))
        written = path.read_text()
        assert first.text == f"It is {KEY}."
        assert "swordfish" not in written
        assert "dfish=" not in written
        model = playback(path)
        again = run(model)
        model.assert_played()
        assert (again.text, again.stop, again.turns) == ("It is ***.", first.stop, first.turns)
        assert [one.text for one in again.tool_results][:2] == ["*** means ***"] * 2

    def test_a_request_with_the_key_is_the_one_with_stars(self, path: Path) -> None:
        key = "sk-proj-0123456789abcdef"
        run(record(ScriptedModel(say("hello")), path), f"My key is {key}.")
        assert run(playback(path), "My key is ***.").text == "hello"

    def test_what_differs_is_told_without_it(self, path: Path) -> None:
        run(record(ScriptedModel(say("hello")), path), "Go.")
        result = run(playback(path), "My key is sk-proj-0123456789abcdef.")
        assert result.error is not None
        assert "'My key is ***.'" in result.error["message"]


class TestOverHttp:
    def test_a_server_that_repeats_the_key_does_not_bring_it_into_the_file(self, path: Path) -> None:
        lines = [
            status(429, f"Too many requests for {KEY}.", headers={"Retry-After": "0"}),
            together(say(f"You are {KEY}."), call("look", word=KEY)).using(None),
            say(f"Bye, {KEY}."),
        ]
        with ModelServer(*lines) as server:
            first = run(record(OpenAIModel("m", url=f"{server.url}/v1", key=KEY), path))
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
        assert first.stop == "completed"
        assert "swordfish" not in path.read_text()
        assert run(playback(path)).text == "Bye, ***."

    def test_a_refused_key_is_not_in_the_error_that_is_played_back(self, path: Path) -> None:
        with ModelServer(status(401, f"Incorrect API key provided: {KEY}")) as server:
            run(record(OpenAIModel("m", url=f"{server.url}/v1", key=KEY), path))
        result = run(playback(path))
        assert result.error is not None
        assert "Incorrect API key provided: ***" in result.error["message"]
        assert result.stop == "failed"


class TestParts:
    def test_what_a_provider_wants_back_is_played_back_too(self, path: Path) -> None:
        part = {"part": {"type": "thinking", "thinking": "hm", "signature": "c2ln"}, "shape": "anthropic"}

        class Thinks:
            name, provider, price = "thinks", "acme", None

            def ready(self) -> str | None:
                return None

            def ask(self, request: Request, tell: Callable[[str], None], /) -> Reply:
                if len(request.messages) > 1:
                    return Reply("done")
                return Reply("", (Call("1", "look", {"word": "x"}),), parts=(part,))

        run(record(Thinks(), path))
        assert run(playback(path)).text == "done"
