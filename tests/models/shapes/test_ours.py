"""Our models send what the official SDKs send for the same conversation."""

from functools import partial
from typing import Any

import anyio

from flyball.models import AnthropicModel, OpenAIModel
from flyball.models.http import HttpModel
from flyball.testing import ModelServer, say


def model_of(wire: str, server: ModelServer, options: Any) -> HttpModel:
    options = {"stream": False, "key": "no-key", **options}
    if wire == "openai":
        return OpenAIModel("gpt-5.5", url=f"{server.url}/v1", **options)
    return AnthropicModel("claude-opus-5", url=server.url, **options)


def test_a_request_has_the_path_and_the_body_that_the_sdk_sends(wire: str, conversation: Any, shape: Any) -> None:
    with ModelServer(say("Warm.")) as server:
        anyio.run(partial(model_of(wire, server, conversation.options).ask, conversation.request))
    (heard,), recorded = server.requests, shape(wire, conversation)
    expected = {**recorded["body"]}
    if "max_completion_tokens" in expected:  # only OpenAI's own server knows this name, and here is another
        expected["max_tokens"] = expected.pop("max_completion_tokens")
    assert (heard.path, heard.body) == (recorded["path"], expected)
    assert heard.headers["content-type"] == recorded["headers"]["content-type"]
    assert heard.headers.get("x-team") == recorded["headers"].get("x-team")
