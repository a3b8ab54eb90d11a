from flyball import Agent, tool
from flyball.models import OpenAIModel
from flyball.testing import ModelServer, call, say, sent
from flyball.wire.structured import sanitize_call_id, sanitize_tool_name


def test_odd_letters_are_replaced_and_others_stay() -> None:
    assert (sanitize_call_id("call_1-a"), sanitize_call_id("call:1/ä")) == ("call_1-a", "call_1__")
    assert (sanitize_tool_name("add-2"), sanitize_tool_name("functions.add"), sanitize_tool_name("")) == (
        "add-2",
        "functions_add",
        "_",
    )


def test_a_long_id_is_shortened_to_its_end() -> None:
    assert sanitize_call_id("chatcmpl-tool-" + "0123456789" * 4) == "0123456789" * 4


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_a_call_and_its_result_keep_the_same_id() -> None:
    line = sent(call("functions.add", a=1, b=2), ids=["chatcmpl.tool." + "7" * 40])
    with ModelServer(line, say("So.")) as server:
        assert Agent(model=OpenAIModel("m", url=f"{server.url}/v1"), tools=[add]).run("Go.").text == "So."
    _, asked, answered = server.requests[1].body["messages"]
    assert asked["tool_calls"][0]["function"]["name"] == "functions_add"
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"] == "7" * 40
