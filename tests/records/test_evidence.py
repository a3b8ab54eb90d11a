from typing import Any

from flyball.progress import Done, Evidence


def test_what_was_added_comes_back_by_tool_and_oldest_first() -> None:
    evidence = Evidence({})
    first, second, other = Done("add", {"a": 1}, 1), Done("add", {"a": 2}, 2), Done("sub", {}, None)
    for done in (first, other, second):
        evidence.add(done)
    assert evidence.of("add") == (first, second)
    assert evidence.of("sub") == (other,)
    assert (evidence.count("add"), evidence.count("sub")) == (2, 1)


def test_a_tool_without_a_successful_call_has_none() -> None:
    evidence = Evidence({})
    assert evidence.of("add") == ()
    assert evidence.count("add") == 0


def test_what_was_handed_out_does_not_grow() -> None:
    evidence = Evidence({})
    before = evidence.of("add")
    evidence.add(Done("add", {}, 1))
    assert before == ()


def test_two_equal_calls_are_two_calls() -> None:
    evidence = Evidence({})
    evidence.add(Done("add", {"a": 1}, 1))
    evidence.add(Done("add", {"a": 1}, 1))
    assert evidence.count("add") == 2


def test_the_state_is_seen_as_it_is_now() -> None:
    state: dict[str, Any] = {}
    evidence = Evidence(state)
    state["url"] = "https://…"
    assert evidence.state == {"url": "https://…"}
