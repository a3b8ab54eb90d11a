"""Each kind of tool rule through its life, several at once, side by side, failing, and against an oracle."""

import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flyball.errors import ConfigError
from flyball.progress import Done
from flyball.tool_rules import BlockUntilTool, LimitedTools, RequirePriorTool, RuleState, ToolRules, ToolRuleTracker

SEARCHES = {
    "after_tool": "search",
    "limited_tools": ["search", "fetch"],
    "max_calls": 3,
    "then_require_one_of": ["write_report"],
}
REVIEW = {"tool": "publish", "require_prior_tool": "review", "with_parameters": {"verdict": "ok"}}
LOGIN = {"block_until_tool": "login", "tools": ["read", "write"]}


class Denial:
    """Equals every text in which these words occur: the tool that is denied, and what opens the way."""

    def __init__(self, *words: str) -> None:
        self.words = words

    def __eq__(self, text: object) -> bool:
        return isinstance(text, str) and all(word in text for word in self.words)

    def __repr__(self) -> str:
        return f"a denial with {', '.join(self.words)}"

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def spent(tool: str) -> Denial:
    return Denial(f"{tool} ", "3", "search", "fetch", "write_report")


NOT_REVIEWED = Denial("publish", 'review with verdict = "ok"')
NOT_LOGGED_IN = Denial("read", "login")


def book(*rules: Mapping[str, Any]) -> ToolRuleTracker:
    return ToolRules.of(list(rules)).begin()


def call(book: ToolRuleTracker, tool: str, **arguments: Any) -> str | None:
    """A call that succeeds if it may be made."""
    refusal = book.claim(tool, arguments)
    if refusal is None:
        book.note(Done(tool, arguments, "done"))
    return refusal


def calls(book: ToolRuleTracker, *tools: str) -> list[str | None]:
    return [call(book, tool) for tool in tools]


def test_each_kind_of_denial_says_what_to_call_first(snapshot: Callable[..., None]) -> None:
    run = book(SEARCHES)
    calls(run, "search", "fetch", "fetch", "fetch")
    snapshot(run.denial("fetch", {}), "spent")
    snapshot(book(REVIEW).denial("publish", {}), "prior")
    snapshot(book(LOGIN).denial("read", {}), "blocked")
    snapshot(ToolRules.of([Custom(ZeroDivisionError())]).begin().denial("read", {}), "failed")
    snapshot(ToolRules.of([Custom("")]).begin().denial("read", {}), "no reason")


class TestLimitedTools:
    def test_before_the_first_tool_has_succeeded_nothing_is_counted(self) -> None:
        assert calls(book(SEARCHES), *["fetch"] * 20) == [None] * 20

    def test_the_limit_holds_for_all_limited_tools_together(self) -> None:
        run = book(SEARCHES)
        assert calls(run, "search", "search", "fetch", "search") == [None] * 4
        assert calls(run, "search", "fetch") == [spent("search"), spent("fetch")]

    def test_tools_without_a_limit_stay_free(self) -> None:
        run = book(SEARCHES)
        calls(run, "search", "search", "search", "search")
        assert calls(run, "read", "read") == [None, None]

    def test_the_required_tool_begins_the_count_anew_as_often_as_it_succeeds(self) -> None:
        run = book(SEARCHES)
        call(run, "search")
        for _ in range(3):
            assert calls(run, "fetch", "search", "fetch") == [None] * 3
            assert call(run, "search") == spent("search")
            assert call(run, "write_report") is None

    def test_the_required_tool_counts_before_the_limit_is_reached_too(self) -> None:
        run = book(SEARCHES)
        calls(run, "search", "fetch", "fetch", "write_report")
        assert calls(run, "fetch", "fetch", "fetch", "fetch") == [None, None, None, spent("fetch")]

    def test_the_required_tool_does_not_count_before_the_count_has_begun(self) -> None:
        run = book(SEARCHES)
        calls(run, "write_report", "search", "fetch", "fetch", "fetch")
        assert call(run, "fetch") == spent("fetch")

    def test_without_a_first_tool_it_counts_from_the_start(self) -> None:
        run = book({"limited_tools": ["fetch"], "max_calls": 1, "then_require_one_of": ["note", "ask"]})
        assert calls(run, "fetch", "fetch") == [
            None,
            Denial("fetch", "1", "ask", "note"),
        ]
        assert calls(run, "ask", "fetch", "note", "fetch") == [None] * 4

    def test_without_limited_tools_the_first_tool_itself_is_limited(self) -> None:
        run = book({"after_tool": "search", "max_calls": 2, "then_require_one_of": ["note"]})
        assert calls(run, "search", "search", "search") == [None] * 3
        assert call(run, "search") is not None
        assert calls(run, "fetch", "note", "search") == [None] * 3

    def test_a_limited_tool_that_is_also_required_begins_the_count_anew_while_it_may_be_called(self) -> None:
        run = book({"limited_tools": ["a", "b"], "max_calls": 2, "then_require_one_of": ["b", "c"]})
        assert calls(run, "a", "b", "a", "a") == [None] * 4
        assert call(run, "b") == Denial("b", "2", "c")
        assert calls(run, "c", "b") == [None, None]


class TestSideBySide:
    def test_no_more_calls_are_let_through_than_may_succeed(self) -> None:
        run = book(SEARCHES)
        call(run, "search")
        asked = [run.claim("fetch", {}) for _ in range(5)]
        assert asked == [None, None, None, spent("fetch"), spent("fetch")]

    def test_a_first_tool_that_is_under_way_is_taken_to_succeed(self) -> None:
        run = book(SEARCHES)
        asked = [run.claim("search", {}) for _ in range(6)]
        assert asked == [None, None, None, None, spent("search"), spent("search")]
        for _ in range(4):
            run.note(Done("search", {}, None))
        assert run.denial("fetch", {}) == spent("fetch")

    def test_what_was_asked_before_the_first_tool_does_not_count(self) -> None:
        run = book(SEARCHES)
        asked = [run.claim(tool, {}) for tool in ["fetch"] * 5 + ["search"] + ["fetch"] * 4]
        assert asked == [None] * 9 + [spent("fetch")]

    def test_a_first_tool_that_failed_has_begun_no_count(self) -> None:
        run = book(SEARCHES)
        for tool in ("search", "fetch", "fetch", "fetch"):
            assert run.claim(tool, {}) is None
        assert run.denial("fetch", {}) == spent("fetch")
        run.release("search")
        assert run.denial("fetch", {}) is None

    def test_a_required_tool_that_is_under_way_lifts_nothing_yet(self) -> None:
        run = book(SEARCHES)
        calls(run, "search", "fetch", "fetch", "fetch")
        assert run.claim("write_report", {}) is None
        assert run.claim("fetch", {}) == spent("fetch")
        run.note(Done("write_report", {}, None))
        assert run.claim("fetch", {}) is None

    def test_what_opens_a_way_must_have_succeeded(self) -> None:
        run = book(LOGIN, REVIEW)
        assert [run.claim("login", {}), run.claim("read", {})] == [None, NOT_LOGGED_IN]
        assert [run.claim("review", {"verdict": "ok"}), run.claim("publish", {})] == [None, NOT_REVIEWED]

    def test_a_failed_call_gives_its_place_back(self) -> None:
        run = book(SEARCHES)
        call(run, "search")
        for _ in range(10):
            assert run.claim("fetch", {}) is None
            run.release("fetch")
        assert calls(run, "fetch", "fetch", "fetch", "fetch") == [None, None, None, spent("fetch")]

    def test_asking_for_a_denial_counts_no_call(self) -> None:
        run = book(SEARCHES)
        call(run, "search")
        assert [run.denial("fetch", {}) for _ in range(10)] == [None] * 10

    def test_a_success_that_was_never_claimed_counts(self) -> None:
        run = book(SEARCHES)
        for tool in ("search", "fetch", "fetch", "fetch"):
            run.note(Done(tool, {}, None))
        assert run.denial("fetch", {}) == spent("fetch")

    def test_dropping_what_is_not_under_way_changes_nothing(self) -> None:
        run = book(SEARCHES)
        calls(run, "search", "fetch", "fetch", "fetch")
        run.release("fetch")
        assert run.denial("fetch", {}) == spent("fetch")

    def test_a_denied_call_is_not_under_way(self) -> None:
        run = book(LOGIN, {"limited_tools": ["read"], "max_calls": 1, "then_require_one_of": ["note"]})
        assert run.claim("read", {}) == NOT_LOGGED_IN
        assert calls(run, "login", "read") == [None, None]


class TestGates:
    def test_a_tool_waits_for_the_one_that_must_come_before(self) -> None:
        run = book({"tool": "publish", "require_prior_tool": "review"})
        assert calls(run, "publish", "draft", "review", "publish", "publish") == [
            Denial("publish", "review"),
            None,
            None,
            None,
            None,
        ]

    @pytest.mark.parametrize("arguments", [{}, {"verdict": "no"}, {"verdict": None}, {"by": {"verdict": "ok"}}])
    def test_only_the_wanted_parameters_open_the_way(self, arguments: dict[str, Any]) -> None:
        run = book(REVIEW)
        assert call(run, "review", **arguments) is None
        assert call(run, "publish") == NOT_REVIEWED
        assert call(run, "review", verdict="ok", by="ann") is None
        assert call(run, "publish") is None
        assert call(run, "review", verdict="no") is None
        assert call(run, "publish") is None

    def test_all_parameters_must_be_those_of_one_call(self) -> None:
        run = book({**REVIEW, "with_parameters": {"verdict": "ok", "by.name": "ann", "tags.0": 1}})
        call(run, "review", verdict="ok", by={"name": "bob"}, tags=[1])
        call(run, "review", verdict="no", by={"name": "ann"}, tags=[1])
        assert call(run, "publish") == Denial("publish", 'verdict = "ok" and by.name = "ann" and tags.0 = 1')
        call(run, "review", verdict="ok", by={"name": "ann"}, tags=[1.0, 2])
        assert call(run, "publish") is None

    def test_a_long_parameter_is_shown_in_part(self) -> None:
        run = book({**REVIEW, "with_parameters": {"verdict": "x" * 9_000}})
        assert len(call(run, "publish") or "") < 600

    def test_the_named_tools_are_blocked_until_the_one_has_succeeded(self) -> None:
        run = book(LOGIN)
        assert calls(run, "read", "help", "login", "read", "write") == [NOT_LOGGED_IN, None, None, None, None]

    def test_where_no_tools_are_named_all_others_are_blocked(self) -> None:
        run = book({"block_until_tool": "login"})
        assert run.denial("anything", {}) == Denial("anything", "login")
        assert calls(run, "login", "anything") == [None, None]

    def test_a_failed_call_opens_nothing(self) -> None:
        run = book(LOGIN)
        assert run.claim("login", {}) is None
        run.release("login")
        assert call(run, "read") == NOT_LOGGED_IN


class TestSeveral:
    def test_every_rule_that_forbids_a_call_says_so(self) -> None:
        run = book({"block_until_tool": "login"}, {"tool": "publish", "require_prior_tool": "review"})
        assert call(run, "publish") == Denial("publish", "login", "review")
        call(run, "login")
        refusal = call(run, "publish")
        assert refusal == Denial("publish", "review")
        assert refusal != Denial("login")
        assert calls(run, "review", "publish") == [None, None]

    def test_a_denial_of_two_equal_rules_is_said_once(self) -> None:
        assert call(book(LOGIN, LOGIN), "read") == call(book(LOGIN), "read") == NOT_LOGGED_IN

    def test_a_message_replaces_the_standard_words(self) -> None:
        run = book({**LOGIN, "message": "Log in, please."}, {**LOGIN, "name": "door"})
        assert call(run, "read") == f"Log in, please. {call(book(LOGIN), 'read')}"

    def test_each_run_has_its_own_book(self) -> None:
        rules = ToolRules.of([LOGIN])
        assert calls(rules.begin(), "login", "read") == [None, None]
        assert call(rules.begin(), "read") == NOT_LOGGED_IN

    def test_without_rules_every_call_may_be_made(self) -> None:
        run = ToolRules().begin()
        assert calls(run, "a", "b", "a") == [None] * 3

    def test_a_book_does_not_grow_with_the_calls(self) -> None:
        run = book(SEARCHES, REVIEW, {"block_until_tool": "login"})
        call(run, "login")
        sizes: set[int] = set()
        for _ in range(200):
            calls(run, "search", "fetch", "fetch", "fetch", "fetch", "write_report")
            sizes.add(len(pickle.dumps(run)))
        assert len(sizes) == 1


class Custom:
    """A rule of somebody's own, which answers what it is told to, or raises it."""

    name: str | None = "mine"
    message: str | None = None
    tools_named: Mapping[str, str] = {}

    def __init__(self, answer: object = None, *, begins: object = None, learns: object = None) -> None:
        self.answer, self.begins, self.learns = answer, begins, learns

    def waits_for(self, tool: str) -> str | None:
        return None

    def begin(self) -> RuleState:
        said(self.begins)
        return self

    def denial(self, tool: str, arguments: Mapping[str, Any], in_progress: Sequence[str]) -> str | None:
        return said(self.answer)

    def note(self, done: Done) -> None:
        said(self.learns)


def said(answer: Any) -> Any:
    if isinstance(answer, Exception):
        raise answer
    return answer


FAILED = Denial("mine", "ZeroDivisionError")


class TestFailingClosed:
    def test_a_rule_of_ones_own_is_asked(self) -> None:
        assert call(ToolRules.of([Custom("Not today.")]).begin(), "read") == "Not today."
        assert call(ToolRules.of([Custom(None)]).begin(), "read") is None

    def test_a_rule_that_raises_denies(self) -> None:
        run = ToolRules.of([Custom(ZeroDivisionError())]).begin()
        assert calls(run, "read", "write") == [FAILED, FAILED]

    def test_a_rule_that_cannot_begin_denies(self) -> None:
        assert call(ToolRules.of([Custom(begins=ZeroDivisionError())]).begin(), "read") == FAILED

    def test_a_rule_that_could_not_learn_denies_from_then_on(self) -> None:
        run = ToolRules.of([Custom(learns=ZeroDivisionError())]).begin()
        assert calls(run, "read", "read") == [None, FAILED]

    @pytest.mark.parametrize("answer", ["", False, True, 0, b"no"])
    def test_an_answer_that_is_no_text_denies(self, answer: object) -> None:
        refusal = call(ToolRules.of([Custom(answer)]).begin(), "read")
        assert refusal == Denial("mine")

    def test_a_rule_that_fails_does_not_hide_the_others(self) -> None:
        run = ToolRules.of([Custom(learns=ZeroDivisionError()), LOGIN]).begin()
        call(run, "login")
        assert call(run, "read") == FAILED

    def test_a_parameter_that_cannot_be_read_is_not_the_wanted_one(self) -> None:
        class Broken:
            @property
            def verdict(self) -> str:
                raise ZeroDivisionError

        run = book({**REVIEW, "with_parameters": {"form.verdict": "ok"}})
        assert call(run, "review", form=Broken()) is None
        assert call(run, "publish") is not None
        assert calls(run, "review") == [None]
        assert call(run, "review", form={"verdict": "ok"}) is None
        assert call(run, "publish") is None


def test_rules_can_be_written_in_python() -> None:
    rules = ToolRules(
        (
            LimitedTools(max_calls=3, then_require_one_of=["write_report"], limited_tools=["search"], name="searches"),
            RequirePriorTool(tool="publish", require_prior_tool="review", message="Have it reviewed."),
            BlockUntilTool(block_until_tool="login", tools=["read"]),
        )
    )
    assert [rule.name for rule in rules] == ["searches", None, None]
    assert len(rules) == 3
    assert ToolRules.of(rules) is rules
    assert call(rules.begin(), "publish") == "Have it reviewed."


def test_a_call_that_is_withdrawn_leaves_the_others_in_their_order() -> None:
    rule = LimitedTools(after_tool="login", limited_tools=["read"], max_calls=1, then_require_one_of=["save"])
    book = ToolRules((rule,)).begin()
    for tool in ("login", "read", "login"):
        assert book.claim(tool, {}) is None
    book.release_last("login")
    assert book.claim("read", {}) is not None
    book.release_last("login")
    assert book.claim("read", {}) is not None, "only the call that was claimed last can be withdrawn"


TOOLS = ["a", "b", "c", "d"]
tools = st.sampled_from(TOOLS)
some_tools = st.lists(tools, min_size=1, max_size=3, unique=True)
arguments = st.fixed_dictionaries({"v": st.sampled_from([0, 1, True, "1"])})

limits = st.fixed_dictionaries(
    {"limited_tools": some_tools, "max_calls": st.integers(1, 3), "then_require_one_of": some_tools},
    optional={"after_tool": tools},
)
priors = st.fixed_dictionaries({"tool": tools, "require_prior_tool": tools}, optional={"with_parameters": arguments})
blocks = st.fixed_dictionaries({"block_until_tool": tools}, optional={"tools": some_tools})


def possible(rules: list[dict[str, Any]]) -> bool:
    try:
        ToolRules.of(rules)
    except ConfigError:
        return False
    return True


rule_lists = st.lists(limits | limits | priors | blocks, min_size=1, max_size=4).filter(possible)


def allowed(rule: Mapping[str, Any], past: Sequence[Done], under_way: Sequence[str], tool: str) -> bool:
    if "max_calls" in rule:
        return tool not in rule["limited_tools"] or not used_up(rule, [done.tool for done in past], under_way)
    if "tool" in rule:
        wanted: dict[str, Any] = rule.get("with_parameters", {})
        opened = [
            d
            for d in past
            if d.tool == rule["require_prior_tool"] and repr({**d.arguments, **wanted}) == repr(d.arguments)
        ]
        return tool != rule["tool"] or opened != []
    blocked = rule.get("tools", set(TOOLS) - {rule["block_until_tool"]})
    return tool not in blocked or rule["block_until_tool"] in [done.tool for done in past]


def used_up(rule: Mapping[str, Any], past: list[str], under_way: Sequence[str]) -> bool:
    """Whether so many limited calls, done or under way, stand behind the place where the count began."""
    begin = 0
    if "after_tool" in rule:
        first = [*past, *under_way, rule["after_tool"]].index(rule["after_tool"])
        begin = first + 1
    lifted = [place + 1 for place, tool in enumerate(past) if place >= begin and tool in rule["then_require_one_of"]]
    begin = max([begin, *lifted])
    counted = [
        t for t in [*past, *under_way][begin:] if t in rule["limited_tools"] and t not in rule["then_require_one_of"]
    ]
    return len(counted) >= rule["max_calls"]


class Run(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.past: list[Done] = []
        self.under_way: list[Done] = []
        self.denied = 0

    @initialize(rules=rule_lists)
    def start(self, rules: list[dict[str, Any]]) -> None:
        self.written = rules
        self.book = ToolRules.of(rules).begin()

    def allows(self, tool: str, past: Sequence[Done], under_way: Sequence[str] = ()) -> bool:
        return all(allowed(rule, past, under_way, tool) for rule in self.written)

    @rule(tool=tools, arguments=arguments)
    def claim(self, tool: str, arguments: dict[str, Any]) -> None:
        refusal = self.book.claim(tool, arguments)
        assert (refusal is None) == self.allows(tool, self.past, [done.tool for done in self.under_way])
        if refusal is None:
            self.under_way.append(Done(tool, arguments, None))

    @precondition(lambda self: self.under_way)
    @rule()
    def succeed(self) -> None:
        done = self.under_way.pop(0)
        assert self.allows(done.tool, self.past)
        self.past.append(done)
        self.book.note(done)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        tool = data.draw(st.sampled_from([done.tool for done in self.under_way]))
        del self.under_way[[done.tool for done in self.under_way].index(tool)]
        self.book.release(tool)

    @invariant()
    def looking_tells_the_same_for_every_tool(self) -> None:
        under_way = [done.tool for done in self.under_way]
        for tool in TOOLS:
            assert (self.book.denial(tool, {}) is None) == self.allows(tool, self.past, under_way)

    @invariant()
    def the_same_successes_give_the_same_book(self) -> None:
        again = ToolRules.of(self.written).begin()
        for done in self.past:
            again.note(done)
        for tool in TOOLS:
            assert (again.denial(tool, {}) is None) == self.allows(tool, self.past)


TestRun = Run.TestCase
TestRun.settings = settings(max_examples=60, stateful_step_count=30)
