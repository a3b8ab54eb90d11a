from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, ConfigError, run_conversation
from flyball.models import AnthropicModel, GeminiModel, OpenAIModel, ResponsesModel, named
from flyball.testing import ModelServer, ScriptedModel, say

SCRIPT = '[[reply]]\ntext = "From a file."\n'


def test_a_reference_is_a_provider_and_a_name() -> None:
    kinds = {"openai:gpt-5.5": OpenAIModel, "anthropic:claude-opus-5": AnthropicModel, "google:gemini-x": GeminiModel}
    for reference, kind in kinds.items():
        model = named(reference)
        assert type(model) is kind
        assert f"{model.provider}:{model.name}" == reference


def test_the_responses_api_is_another_door_to_the_same_provider() -> None:
    model = named("openai-responses:gpt-5.5")
    assert type(model) is ResponsesModel
    assert (model.provider, model.name) == ("openai", "gpt-5.5")


def test_a_name_in_a_reference_may_have_colons() -> None:
    assert named("openai:ft:gpt-5.5:me").name == "ft:gpt-5.5:me"


def test_a_reference_may_be_the_url_of_any_server_that_speaks_alike() -> None:
    with ModelServer(say("Here.")) as server:
        result = Agent(model=f"{server.url}/v1#qwen3").run("Hello?")
    assert result.text == "Here."
    assert server.requests[0].body["model"] == "qwen3"
    assert "authorization" not in server.requests[0].headers


def test_a_reference_may_be_a_script(tmp_path: Path) -> None:
    path = tmp_path / "script.toml"
    path.write_text(SCRIPT)
    assert isinstance(named(f"script:{path}"), ScriptedModel)
    assert Agent(model=f"script:{path}").run("Hello?").text == "From a file."
    assert run_conversation("Hello?", [], f"script:{path}").text == "From a file."


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("gpt-5.5", "openai:NAME"),
        ("openai:", "openai:NAME"),
        ("opneai:gpt-5.5", "openai:gpt-5.5"),
        ("gpt-5.5", "local:smollm2"),
        ("loca:smollm2", "local:smollm2?"),
        ("local:", "local:PATH.gguf"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1#NAME"),
        ("http://#x", "http://"),
        ("", "openai:NAME"),
        ("script:nowhere.toml", "nowhere.toml"),
    ],
)
def test_a_reference_that_names_no_model_is_refused_with_what_would_be_right(reference: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Agent(model=reference)
    assert words in str(caught.value)


def test_a_reference_that_names_no_model_is_refused_with_its_place(snapshot: Callable[..., None]) -> None:
    others: Any = {"small": "gpt"}
    with pytest.raises(ConfigError) as caught:
        Agent(model=ScriptedModel(), models=others)
    assert (caught.value.where, caught.value.found) == ("agent, models, small", "gpt")
    snapshot(caught.value)


def test_a_model_without_a_key_ends_the_run_before_anything_is_sent() -> None:
    result = Agent(model="openai:gpt-5.5").run("Hello?")
    assert (result.stop, result.requests) == ("failed", 0)
    assert result.error is not None
    assert "OPENAI_API_KEY" in result.error["message"]
