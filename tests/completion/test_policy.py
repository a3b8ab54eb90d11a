from collections.abc import Callable
from typing import Any

import pytest

from flyball.completion.assertions import Assertions
from flyball.completion.policy import build_nudge
from flyball.progress import Done, Evidence

WAYS: dict[str, Any] = {
    "complete_when_any": [
        {
            "name": "proposal",
            "tools": [
                {"name": "write", "min_successful_calls": 2, "required_output": ["sha", "path"]},
                {"name": "create_pr", "required_output": ["html_url"]},
            ],
        },
        {"name": "reply", "tools": [{"name": "issue", "required_parameters": {"action": "comment"}}]},
    ]
}


def told(asked: dict[str, Any], *calls: Done, task: str = "Fix it.", **state: Any) -> str:
    assertions = Assertions.of(asked)
    evidence = Evidence(state)
    for done in calls:
        evidence.add(done)
    return build_nudge(assertions.check(evidence), task, assertions)


def test_a_nudge_says_what_is_missing_and_how_much_is_done(snapshot: Callable[..., None]) -> None:
    asked = {
        "required_tool_names": ["commit"],
        "required_engine_data_keys": ["report.url"],
        "minimum_successful_tool_counts": {"review": 3},
    }
    text = told(asked, Done("commit", {}, None), Done("review", {}, None))
    assert all(word in text for word in ("1 of 3", "report.url", "review", "Fix it."))
    assert "commit" not in text
    snapshot(text)


def test_where_one_way_is_enough_each_is_told(snapshot: Callable[..., None]) -> None:
    text = told(WAYS, Done("write", {}, {"sha": "1", "path": "a"}), Done("create_pr", {}, {}))
    assert all(word in text for word in ("proposal (1 of 4", "html_url", "reply (0 of 1", 'action="comment"'))
    snapshot(text)


def test_the_ways_together_count_as_one_thing_to_do() -> None:
    asked = {"required_tool_names": ["a", "b"], **WAYS}
    text = told(asked, Done("a", {}, 1), Done("b", {}, 1))
    assert "2 of 3" in text
    assert "proposal" in text
    text = told(asked, Done("a", {}, 1), Done("issue", {"action": "comment"}, 1))
    assert "2 of 3" in text
    assert " b\n" in text
    assert "proposal" not in text


def test_only_a_way_that_can_be_gone_is_told(snapshot: Callable[..., None]) -> None:
    text = told({**WAYS, "forbidden_tool_names": ["create_pr"]})
    assert "reply (0 of 1" in text
    assert "proposal" not in text
    snapshot(text)


def test_a_message_of_its_own_stands_for_what_is_missing() -> None:
    asked = {
        "required_tool_names": ["commit", "push"],
        "required_engine_data_keys": ["report.url"],
        "messages": {"commit": "Commit your work.\n", "report.url": "Publish the report."},
    }
    text = told(asked, Done("push", {}, None))
    assert "1 of 3" in text
    assert "\n- Commit your work.\n- Publish the report.\n" in text
    assert "report.url" not in text


def test_a_message_that_stands_for_two_things_is_told_once() -> None:
    asked = {
        "required_tool_names": ["push"],
        "minimum_successful_tool_counts": {"push": 2},
        "messages": {"push": "Push twice."},
    }
    assert told(asked).count("Push twice.") == 1


def test_a_way_and_a_tool_in_a_way_may_have_messages() -> None:
    asked = {**WAYS, "messages": {"create_pr": "Open a pull request.", "reply": "Answer the issue."}}
    text = told(asked, Done("write", {}, {"sha": 1, "path": 1}), Done("write", {}, {"sha": 1, "path": 1}))
    proposal, reply = (line for line in text.splitlines() if line.startswith("- "))
    assert proposal.startswith("- proposal (2 of 4")
    assert proposal.endswith(": Open a pull request.")
    assert reply.startswith("- reply (0 of 1")
    assert reply.endswith(": Answer the issue.")


def test_a_forbidden_call_is_told(snapshot: Callable[..., None]) -> None:
    asked = {"required_tool_names": ["a"], "forbidden_tool_names": ["drop"]}
    text = told(asked, Done("a", {}, 1), Done("drop", {}, 1))
    assert "drop" in text
    snapshot(text)


def test_hidden_mechanics_leave_only_that_the_task_is_not_complete(snapshot: Callable[..., None]) -> None:
    asked = {"required_tool_names": ["commit"], "required_engine_data_keys": ["url"], **WAYS, "hide_mechanics": True}
    text = told(asked, Done("commit", {}, 1))
    assert [word for word in ("commit", "url", "write", "issue", "of 3") if word in text] == []
    snapshot(text)


@pytest.mark.parametrize(
    ("task", "shown"),
    [
        ("Fix\n  it.", "Fix it."),
        ("word " * 60, ("word " * 60).strip()),
        ("word " * 61, "word " * 59 + "word …"),
        ("x" * 300, "x" * 300),
        ("x" * 301, "x" * 300 + " …"),
        ("Fix it." + " " * 5_000 + "x", "Fix it. …"),
    ],
)
def test_the_request_is_repeated_shortened(task: str, shown: str) -> None:
    assert told({"required_tool_names": ["a"]}, task=task).endswith(f": {shown}")


@pytest.mark.parametrize("hidden", [True, False])
def test_a_request_that_says_nothing_is_not_repeated(hidden: bool) -> None:
    assert "request" not in told({"required_tool_names": ["a"], "hide_mechanics": hidden}, task=" \n")
