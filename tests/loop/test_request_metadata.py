"""What the record says of each request is true: how large it was, what was in it, and which attempt it was."""

import json
from typing import Any

from flyball import Agent, Limits, tool
from flyball.errors import Retryable
from flyball.progress import Notice, Point, Progress
from flyball.request import Request
from flyball.testing import Line, ScriptDriver, ScriptedModel, call, fail, say


@tool
def write(text: str) -> str:
    """Write."""
    return text[:3000]


def record(*lines: Line, **options: Any) -> list[tuple[dict[str, Any], Request]]:
    """What is said of each request, and the request itself."""
    model = ScriptedModel(*lines, grace=say("report"))
    agent = Agent(model=model, tools=[write], instructions="Be brief. " * 40, **options)
    result = ScriptDriver(agent).run("Write a text.")
    said = result.to_dict()["request_metadata"]
    return list(zip(said, model.requests, strict=True))


def written(request: Request) -> int:
    messages = [[message.role, message.content, message.payload] for message in request.messages]
    return len(json.dumps([request.instructions, list(request.tools), list(request.notices), messages], default=str))


def test_the_bytes_are_near_the_truth_also_of_arguments_and_of_the_report() -> None:
    lines = [call("write", text="a" * 9_000), call("write", text="b" * 4_000)]
    requests = record(*lines, limits=Limits(turns=2, tokens=9_000))
    assert [said["purpose"] for said, _ in requests] == ["turn", "turn", "grace"]
    for said, request in requests:
        assert 0.8 < said["bytes"] / written(request) < 1.2, said
        assert (said["message_count"], said["tool_count"]) == (len(request.messages), len(request.tools))


def test_a_notice_counts_in_the_one_request_that_shows_it() -> None:
    def warn(point: Point, progress: Progress, about: object = None) -> list[Notice]:
        return [Notice("n" * 5_000)] if point is Point.TURN_STARTED and progress.turn == 1 else []

    for said, request in record(call("write", text="a"), say("x"), hooks=[warn]):
        assert 0.8 < said["bytes"] / written(request) < 1.2, said


def test_each_attempt_is_told_with_the_seconds_it_had() -> None:
    requests = record(fail(Retryable("busy")), fail(Retryable("busy")), say("x"), limits=Limits(seconds=100))
    assert [said["attempt"] for said, _ in requests] == [1, 2, 3]
    first, second, third = [said["timeout_s"] for said, _ in requests]
    assert first == 85.0 > second > third
