"""The rule book against an oracle that looks through all past successes each time."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flyball.errors import ConfigError
from flyball.evidence import Done
from flyball.toolrule import ToolRules

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
        self.book.drop(tool)

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
TestRun.settings = settings(max_examples=150, stateful_step_count=30)
