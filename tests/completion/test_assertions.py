"""What assertions say of evidence: the examples of seed 002, a table of cases, and what is true of them all."""

import json
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from flyball.completion.assertions import Assertions, CompletionOption, Findings, ToolRequirement
from flyball.errors import ConfigError
from flyball.progress import Done, Evidence

SIMPLE = """
{
  "completion_assertions": {
    "required_tool_names": ["create_or_update_github_file", "create_github_pull_request"]
  }
}
"""
NAMED = """
{
  "completion_assertions": {
    "complete_when_any": [
      {
        "name": "content_proposal",
        "tools": [
          { "name": "create_or_update_github_file", "min_successful_calls": 2 },
          { "name": "create_github_pull_request", "required_output": ["html_url"] }
        ]
      },
      {
        "name": "issue_reply",
        "tools": [
          {
            "name": "manage_github_issue",
            "required_parameters": { "action": "comment" },
            "required_output": ["comment.html_url"]
          }
        ]
      }
    ]
  }
}
"""


class Mode(Enum):
    FAST = "fast"
    NONE = ""


@dataclass
class Page:
    url: str
    number: int = 0


class Pull(BaseModel):
    html_url: str | None
    draft: bool = False


def evidence(*calls: Done, **state: Any) -> Evidence:
    seen = Evidence(state)
    for done in calls:
        seen.add(done)
    return seen


def did(tool: str, value: object = None, /, **arguments: Any) -> Done:
    return Done(tool, arguments, value)


FILE = did("create_or_update_github_file", {"sha": "1"}, path="a.md")
PULL = did("create_github_pull_request", {"html_url": "https://github.com/o/r/pull/1"})
REPLY = did("manage_github_issue", {"comment": {"html_url": "https://github.com/o/r/1"}}, action="comment")


def test_the_first_example_of_the_seed_asks_for_two_tools() -> None:
    asked = Assertions.of(json.loads(SIMPLE))
    assert asked == Assertions(required_tool_names=["create_or_update_github_file", "create_github_pull_request"])
    assert asked.required() == json.loads(SIMPLE)["completion_assertions"]
    assert asked.check(evidence(FILE)) == Findings(
        complete=False,
        missing=("required tool create_github_pull_request",),
        satisfied=("required tool create_or_update_github_file",),
        impossible=False,
        met_options=(),
        details=asked.check(evidence(FILE)).details,
    )
    assert asked.check(evidence(FILE, PULL)).complete
    assert not asked.may_end_early
    assert asked.unavailable(["create_github_pull_request"]) == ("create_or_update_github_file",)


def test_the_second_example_of_the_seed_offers_two_ways() -> None:
    asked = Assertions.of(json.loads(NAMED))
    assert asked.complete_when_any == (
        CompletionOption(
            "content_proposal",
            (
                ToolRequirement("create_or_update_github_file", min_successful_calls=2),
                ToolRequirement("create_github_pull_request", required_output=("html_url",)),
            ),
        ),
        CompletionOption(
            "issue_reply",
            [
                ToolRequirement(
                    "manage_github_issue",
                    required_parameters={"action": "comment"},
                    required_output=["comment.html_url"],
                )
            ],
        ),
    )
    assert asked.required() == json.loads(NAMED)["completion_assertions"]
    assert asked.may_end_early
    assert asked.check(evidence(FILE, PULL)).missing == (
        "content_proposal: tool create_or_update_github_file: 1 of 2 successful calls",
        'issue_reply: tool manage_github_issue with action="comment": 0 of 1 successful calls',
        'issue_reply: output comment.html_url of manage_github_issue with action="comment"',
    )
    proposal = asked.check(evidence(FILE, PULL, FILE))
    assert (proposal.complete, proposal.missing, proposal.met_options) == (True, (), ("content_proposal",))
    assert proposal.satisfied == (
        "content_proposal: tool create_or_update_github_file: 2 of 2 successful calls",
        "content_proposal: tool create_github_pull_request: 1 of 1 successful calls",
        "content_proposal: output html_url of create_github_pull_request",
        "outcome content_proposal",
    )
    assert asked.check(evidence(REPLY)).met_options == ("issue_reply",)
    assert asked.check(evidence(FILE, FILE, PULL, REPLY)).met_options == ("content_proposal", "issue_reply")


def way(*tools: dict[str, Any], name: str = "way") -> dict[str, Any]:
    return {"name": name, "tools": list(tools)}


def one_way(**proof: Any) -> dict[str, Any]:
    return {"complete_when_any": [way({"name": "t", **proof})]}


REQUIRED = {"required_tool_names": ["a", "b"]}
KEYS = {"required_engine_data_keys": ["report.url"]}
COUNTS = {"minimum_successful_tool_counts": {"a": 2}}
EITHER = {"complete_when_any": [way({"name": "a"}, name="one"), way({"name": "b"}, {"name": "c"}, name="two")]}
OUT = one_way(required_output=["url"])
OUTS = one_way(required_output=["url", "number"])
PARAM = one_way(required_parameters={"action": "close"})
TWICE = one_way(min_successful_calls=2, required_parameters={"action": "close"}, required_output=["url"])
BOTH = {
    "complete_when_any": [way(*[{"name": "t", "required_parameters": {"action": act}} for act in ("open", "close")])]
}

A, B, C = did("a"), did("b"), did("c")
NO_OUT = ("way: output url of t",)
NO_PARAM = ('way: tool t with action="close": 0 of 1 successful calls',)
NO_REPORT = ("engine data key report.url",)
NO_SECOND = ("tool a: 1 of 2 successful calls",)

CASES: list[tuple[str, dict[str, Any], Evidence, tuple[str, ...]]] = [
    ("no call", REQUIRED, evidence(), ("required tool a", "required tool b")),
    ("one of two tools", REQUIRED, evidence(B), ("required tool a",)),
    ("both tools", REQUIRED, evidence(B, A), ()),
    ("other tools", REQUIRED, evidence(C, C), ("required tool a", "required tool b")),
    ("the same tool twice is not two tools", REQUIRED, evidence(A, A), ("required tool b",)),
    ("names are exact", REQUIRED, evidence(did("A"), B), ("required tool a",)),
    ("a tool that gave nothing has still succeeded", REQUIRED, evidence(did("a", ""), B), ()),
    ("no state", KEYS, evidence(), NO_REPORT),
    ("a nested key", KEYS, evidence(report={"url": "x"}), ()),
    ("a key with a dot", KEYS, evidence(**{"report.url": "x"}), ()),
    ("a nested key that is missing", KEYS, evidence(report={}), NO_REPORT),
    ("a key that is null", KEYS, evidence(report={"url": None}), NO_REPORT),
    ("a key that is an empty text", KEYS, evidence(report={"url": ""}), NO_REPORT),
    ("a key that is an empty list", KEYS, evidence(report={"url": []}), NO_REPORT),
    ("a key that is an empty table", KEYS, evidence(report={"url": {}}), NO_REPORT),
    ("a key that is 0", KEYS, evidence(report={"url": 0}), ()),
    ("a key that is false", KEYS, evidence(report={"url": False}), ()),
    ("a key in an object", KEYS, evidence(report=Page("x")), ()),
    ("an empty key in an object", KEYS, evidence(report=Page("")), NO_REPORT),
    ("a key in JSON text", KEYS, evidence(report='{"url": "x"}'), ()),
    ("a key below a text", KEYS, evidence(report="url"), NO_REPORT),
    ("a call is no key", KEYS, evidence(did("report.url", "x")), NO_REPORT),
    ("no call of two", COUNTS, evidence(), ("tool a: 0 of 2 successful calls",)),
    ("one call of two", COUNTS, evidence(A, B), NO_SECOND),
    ("two calls of two", COUNTS, evidence(A, A), ()),
    ("three calls of two", COUNTS, evidence(A, A, A), ()),
    (
        "no way",
        EITHER,
        evidence(),
        tuple(f"{w}: tool {t}: 0 of 1 successful calls" for w, t in (("one", "a"), ("two", "b"), ("two", "c"))),
    ),
    ("the first way", EITHER, evidence(A), ()),
    ("the second way", EITHER, evidence(B, C), ()),
    ("both ways", EITHER, evidence(A, B, C), ()),
    ("a way and half of another", EITHER, evidence(A, B), ()),
    (
        "half a way",
        EITHER,
        evidence(B),
        tuple(f"{w}: tool {t}: 0 of 1 successful calls" for w, t in (("one", "a"), ("two", "c"))),
    ),
    ("output", OUT, evidence(did("t", {"url": "x"})), ()),
    ("no output", OUT, evidence(did("t")), NO_OUT),
    ("another output", OUT, evidence(did("t", {"URL": "x"})), NO_OUT),
    ("empty output", OUT, evidence(did("t", {"url": ""})), NO_OUT),
    ("output 0", OUT, evidence(did("t", {"url": 0})), ()),
    ("output false", OUT, evidence(did("t", {"url": False})), ()),
    ("output in JSON text", OUT, evidence(did("t", '{"url": "x"}')), ()),
    ("output in plain text", OUT, evidence(did("t", "url: x")), NO_OUT),
    ("output in a dataclass", OUT, evidence(did("t", Page("x"))), ()),
    ("output of another tool", OUT, evidence(did("t"), did("u", {"url": "x"})), NO_OUT),
    ("output of a later call", OUT, evidence(did("t"), did("t", {"url": "x"})), ()),
    ("output in an enum", OUT, evidence(did("t", {"url": Mode.FAST})), ()),
    ("output in an empty enum", OUT, evidence(did("t", {"url": Mode.NONE})), NO_OUT),
    ("a parameter is no output", OUT, evidence(did("t", url="x")), NO_OUT),
    ("output in a model", one_way(required_output=["html_url"]), evidence(did("t", Pull(html_url="x"))), ()),
    ("false in a model", one_way(required_output=["draft"]), evidence(did("t", Pull(html_url=None))), ()),
    ("output in a list", one_way(required_output=["0.url"]), evidence(did("t", [{"url": "x"}])), ()),
    ("both outputs", OUTS, evidence(did("t", Page("x", 0))), ()),
    (
        "outputs of two calls",
        OUTS,
        evidence(did("t", {"url": 1}), did("t", {"number": 2})),
        ("way: output url, number of t",),
    ),
    ("the parameter", PARAM, evidence(did("t", action="close")), ()),
    ("a wrong parameter", PARAM, evidence(did("t", action="open")), NO_PARAM),
    ("no parameter", PARAM, evidence(did("t")), NO_PARAM),
    ("a parameter of another tool", PARAM, evidence(did("t"), did("u", action="close")), NO_PARAM),
    ("a second call has it", PARAM, evidence(did("t", action="open"), did("t", action="close")), ()),
    ("an enum parameter", one_way(required_parameters={"m": "fast"}), evidence(did("t", m=Mode.FAST)), ()),
    (
        "1 is not true",
        one_way(required_parameters={"m": 1}),
        evidence(did("t", m=True)),
        ("way: tool t with m=1: 0 of 1 successful calls",),
    ),
    ("1 is 1.0", one_way(required_parameters={"m": 1}), evidence(did("t", m=1.0)), ()),
    ("null must be given", one_way(required_parameters={"m": None}), evidence(did("t", m=None)), ()),
    ("a nested parameter", one_way(required_parameters={"page.url": "x"}), evidence(did("t", page=Page("x"))), ()),
    ("a parameter by content", one_way(required_parameters={"p": {"a": [1]}}), evidence(did("t", p={"a": (1,)})), ()),
    (
        "twice, once each",
        TWICE,
        evidence(did("t", {"url": 1}, action="close"), did("t", {"url": 1}, action="open")),
        (
            'way: tool t with action="close": 1 of 2 successful calls',
            'way: output url of t with action="close": 1 of 2 successful calls',
        ),
    ),
    (
        "twice, one without output",
        TWICE,
        evidence(did("t", {"url": 1}, action="close"), did("t", action="close")),
        ('way: output url of t with action="close": 1 of 2 successful calls',),
    ),
    ("twice, the same call twice", TWICE, evidence(*[did("t", {"url": 1}, action="close")] * 2), ()),
    ("one tool in two proofs, one call", BOTH, evidence(did("t", action="open")), NO_PARAM),
    ("one tool in two proofs, two calls", BOTH, evidence(did("t", action="open"), did("t", action="close")), ()),
    ("forbidden and not called", {"forbidden_tool_names": ["x"]}, evidence(A), ()),
    ("forbidden and called", {"forbidden_tool_names": ["x"]}, evidence(did("x")), ("forbidden tool x was called",)),
    (
        "forbidden after all is done",
        REQUIRED | {"forbidden_tool_names": ["x"]},
        evidence(A, B, did("x")),
        ("forbidden tool x was called",),
    ),
    ("all groups hold", REQUIRED | KEYS | COUNTS | EITHER, evidence(A, A, B, report={"url": 1}), ()),
    ("only one group fails", REQUIRED | KEYS | COUNTS | EITHER, evidence(A, B, report={"url": 1}), NO_SECOND),
    (
        "only the ways fail",
        REQUIRED | {"complete_when_any": [way({"name": "c"})]},
        evidence(A, B),
        ("way: tool c: 0 of 1 successful calls",),
    ),
    (
        "a forbidden tool bars a way",
        EITHER | {"forbidden_tool_names": ["c"]},
        evidence(B),
        ("one: tool a: 0 of 1 successful calls",),
    ),
]


@pytest.mark.parametrize(("asked", "seen", "missing"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_evidence_lacks_this_and_nothing_else(
    asked: dict[str, Any], seen: Evidence, missing: tuple[str, ...]
) -> None:
    findings = Assertions.of(asked).check(seen)
    assert findings.missing == missing
    assert findings.complete == (not missing)
    assert findings.impossible == any("forbidden" in phrase for phrase in missing)


def test_a_forbidden_call_spoils_what_was_complete_but_not_what_is_known_of_it() -> None:
    asked = Assertions.of(EITHER | {"forbidden_tool_names": ["x"]})
    findings = asked.check(evidence(A, did("x")))
    assert (findings.complete, findings.impossible, findings.met_options) == (False, True, ("one",))
    assert findings.satisfied == ("one: tool a: 1 of 1 successful calls", "outcome one")


def test_what_is_satisfied_is_told_the_same_however_often_it_happens_again() -> None:
    asked, done = Assertions.of(TWICE | COUNTS), did("t", {"url": 1}, action="close")
    twice = asked.check(evidence(A, A, done, done)).satisfied
    assert twice == (
        "tool a: 2 of 2 successful calls",
        'way: tool t with action="close": 2 of 2 successful calls',
        'way: output url of t with action="close": 2 of 2 successful calls',
        "outcome way",
    )
    assert asked.check(evidence(A, A, A, done, done, done)).satisfied == twice


def test_what_two_proofs_ask_alike_is_told_once() -> None:
    outputs = [{"name": "t", "required_output": [path]} for path in ("url", "number")]
    findings = Assertions.of({"complete_when_any": [way(*outputs)]}).check(evidence())
    assert findings.missing == (
        "way: tool t: 0 of 1 successful calls",
        "way: output url of t",
        "way: output number of t",
    )


def test_a_run_may_end_early_only_where_there_are_ways() -> None:
    assert Assertions.of(REQUIRED | EITHER).may_end_early
    assert not Assertions.of(REQUIRED | KEYS | COUNTS | {"forbidden_tool_names": ["x"]}).may_end_early


@pytest.mark.parametrize(
    ("asked", "offered", "unavailable"),
    [
        (REQUIRED, {"a", "b", "c"}, ()),
        (REQUIRED, {"b"}, ("a",)),
        (REQUIRED, (), ("a", "b")),
        (COUNTS, ["b"], ("a",)),
        (REQUIRED | COUNTS, {"c": 1}, ("a", "b")),
        (KEYS, (), ()),
        ({"forbidden_tool_names": ["a"]}, (), ()),
        (EITHER, ["a"], ()),
        (EITHER, ["b", "c"], ()),
        (EITHER, ["b"], ("a", "c")),
        (EITHER, (), ("a", "b", "c")),
        (BOTH, (), ("t",)),
        (REQUIRED | EITHER, ["b"], ("a", "c")),
        (EITHER | {"forbidden_tool_names": ["a"]}, ["a", "b"], ("c",)),
        (EITHER | {"forbidden_tool_names": ["a"]}, ["b", "c"], ()),
    ],
)
def test_tools_that_no_run_can_do_without_must_be_offered(
    asked: dict[str, Any], offered: Any, unavailable: tuple[str, ...]
) -> None:
    assert Assertions.of(asked).unavailable(offered) == unavailable


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
        assert set(before.met_options) <= set(after.met_options)
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
    assert not (findings.complete and assertion.complete_when_any and not findings.met_options)
    called = {done.tool for done in calls}
    assert not findings.complete or assertion.unavailable(called) == ()


@settings(max_examples=60)
@given(ASKED)
def test_what_is_required_can_be_read_again(asked: dict[str, Any]) -> None:
    assertion = assertions(asked)
    again = Assertions.of(json.loads(json.dumps(assertion.required())))
    assert again == assertion
    assert again.required() == assertion.required()


ANY_KEY = [*ALL, "completion_assertions", "name", "tools", "required_parameters", "required_output", "a"]
ANYTHING = st.recursive(
    VALUE, lambda below: st.lists(below) | st.dictionaries(st.sampled_from(ANY_KEY), below), max_leaves=8
)


@settings(max_examples=60)
@given(st.dictionaries(st.sampled_from(ANY_KEY), ANYTHING))
def test_whatever_a_mapping_says_it_is_read_or_refused(source: dict[str, Any]) -> None:
    with suppress(ConfigError):
        assert Assertions.of(source).required()
