"""What is true of all assertions, whatever they ask for and whatever a run has done."""

import json
from contextlib import suppress
from dataclasses import fields
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from flyball.assertion import Assertions
from flyball.errors import ConfigError
from flyball.evidence import Done, Evidence

TOOL, NAME = st.sampled_from("abcd"), st.sampled_from("uvw")
PATH = st.sampled_from(["url", "page.url", "0"])
VALUE = st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["", "x"])
GIVEN = st.recursive(
    VALUE, lambda below: st.dictionaries(st.sampled_from(["url", "page"]), below) | st.lists(below), max_leaves=4
)
PROOF = st.fixed_dictionaries(
    {"name": TOOL},
    optional={
        "min_successful_calls": st.integers(1, 3),
        "required_parameters": st.dictionaries(PATH, GIVEN, max_size=2),
        "required_output": st.lists(PATH, unique=True, max_size=2),
    },
)


def name_of(way: Any) -> str:
    return way["name"]


WAY = st.fixed_dictionaries({"name": NAME, "tools": st.lists(PROOF, min_size=1, max_size=2)})
ASKED = st.fixed_dictionaries(
    {},
    optional={
        "required_tool_names": st.lists(TOOL, unique=True, max_size=2),
        "required_engine_data_keys": st.lists(PATH, unique=True, max_size=2),
        "minimum_successful_tool_counts": st.dictionaries(TOOL, st.integers(1, 3), max_size=2),
        "complete_when_any": st.lists(WAY, max_size=3, unique_by=name_of),
        "forbidden_tool_names": st.lists(st.sampled_from("dxy"), unique=True, max_size=2),
        "hide_mechanics": st.booleans(),
    },
)
ALL = [field.name for field in fields(Assertions)]
DONE = st.builds(Done, st.sampled_from("abcdx"), st.dictionaries(st.sampled_from(["url", "page"]), GIVEN), GIVEN)


def assertions(asked: dict[str, Any]) -> Assertions:
    try:
        return Assertions.of(asked)
    except ConfigError:
        assume(False)
        raise


@settings(max_examples=60)
@given(ASKED, st.lists(DONE, max_size=8), st.dictionaries(st.sampled_from(["url", "page"]), GIVEN))
def test_more_evidence_takes_nothing_away(asked: dict[str, Any], calls: list[Done], state: dict[str, Any]) -> None:
    assertion = assertions(asked)
    evidence = Evidence({})
    before = assertion.check(evidence)
    evidence.state = state
    for done in [None, *calls]:
        if done is not None:
            evidence.add(done)
        after = assertion.check(evidence)
        spoilt = done is not None and done.tool in assertion.forbidden_tool_names
        assert after.complete or spoilt or not before.complete
        assert set(before.satisfied) <= set(after.satisfied)
        assert set(before.ways) <= set(after.ways)
        assert after.impossible == (before.impossible or spoilt)
        before = after


@settings(max_examples=60)
@given(ASKED, st.lists(DONE, max_size=8), st.dictionaries(st.sampled_from(["url", "page"]), GIVEN))
def test_findings_agree_with_themselves(asked: dict[str, Any], calls: list[Done], state: dict[str, Any]) -> None:
    assertion = assertions(asked)
    evidence = Evidence(state)
    for done in calls:
        evidence.add(done)
    findings = assertion.check(evidence)
    assert findings.complete == (findings.missing == ())
    assert not set(findings.missing) & set(findings.satisfied)
    assert not (findings.complete and findings.impossible)
    assert not (findings.complete and assertion.complete_when_any and not findings.ways)
    called = {done.tool for done in calls}
    assert not findings.complete or assertion.unavailable(called) == ()


@settings(max_examples=60)
@given(ASKED)
def test_what_is_required_can_be_read_again(asked: dict[str, Any]) -> None:
    assertion = assertions(asked)
    again = Assertions.of(json.loads(json.dumps(assertion.required())))
    assert again == assertion
    assert again.required() == assertion.required()


KEYS = [*ALL, "completion_assertions", "name", "tools", "required_parameters", "required_output", "a"]
ANYTHING = st.recursive(
    VALUE, lambda below: st.lists(below) | st.dictionaries(st.sampled_from(KEYS), below), max_leaves=8
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(KEYS), ANYTHING))
def test_whatever_a_mapping_says_it_is_read_or_refused(source: dict[str, Any]) -> None:
    with suppress(ConfigError):
        assert Assertions.of(source).required()
