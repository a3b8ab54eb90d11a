"""Rules in whole runs: every hook fires, every action acts, and a notice really reaches the model."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.budget.price import TokenPrice
from flyball.errors import ConfigError, ModelError, UsageError
from flyball.event import AskedPerson, Extended, NoticeDelivered, Postponed, RuleEmitted, RuleFailed
from flyball.loop.effects import Steer
from flyball.person import allow, deny
from flyball.request import Purpose
from flyball.result import Result
from flyball.rules import RuleSet, Trigger
from flyball.testing import Line, RuleFolder, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, together

WARNING = "Iteration 8 of 10. Consider completing current task or breaking it down."
EXAMPLES = Path(__file__).parents[1] / "rules" / "examples"
"""The four files of seed 001, as they are."""


@tool(effects="read")
def look(n: int = 0) -> str:
    """Look."""
    if n < 0:
        raise ValueError("not there")
    return f"seen {n}"


LOOKS = [call("look", n=n) for n in range(40)]


@pytest.fixture
def rules(tmp_path: Path) -> RuleFolder:
    return RuleFolder(tmp_path)


def note(text: str, more: str = "") -> str:
    return f'type = "notify_self"\nmessage = "{text}"\n{more}'


def emit(name: str, **data: str) -> str:
    return f'type = "emit_event"\nname = "{name}"\n' + "".join(
        f'data.{key} = "{{{{ {value} }}}}"\n' for key, value in data.items()
    )


class Ran:
    """A run with rules, and what its model was asked."""

    def __init__(self, rules: RuleFolder, *lines: Line, plot: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.model = ScriptedModel(*lines, grace=say("I report."))
        options.setdefault("limits", Limits(turns=50))
        agent = Agent(model=self.model, tools=[look], rules=rules.path, **options)
        assert agent.ruleset.problems == ()
        self.script = ScriptDriver(agent, **(plot or {}))
        self.result: Result = assert_honest(self.script.run("Go."))

    @property
    def notices(self) -> list[tuple[str, ...]]:
        return [request.notices for request in self.model.requests]

    @property
    def told(self) -> list[tuple[str, dict[str, Any]]]:
        events = [event for event in self.result.events if isinstance(event, RuleEmitted)]
        return [(event.name, dict(event.data)) for event in events]


def test_the_warning_of_the_seed_really_reaches_a_model_at_the_eighth_turn_of_ten() -> None:
    model = ScriptedModel(*LOOKS[:9], say("done"))
    result = assert_honest(ScriptDriver(Agent(model=model, tools=[look], limits=Limits(turns=10))).run("Go."))
    last = "This is the last turn (10 of 10): give your answer now, or say what is missing."
    assert [request.notices for request in model.requests] == [()] * 7 + [(WARNING,), (), (last,)]
    assert all("Iteration" not in message.content for message in result.messages)
    delivered = [event for event in result.events if isinstance(event, NoticeDelivered)]
    assert [(event.rule, event.turn) for event in delivered] == [
        ("iteration-budget-warning", 8),
        ("last-turn-warning", 10),
    ]


def test_the_four_files_of_the_seed_load_as_they_are_and_do_what_they_say(snapshot: Callable[..., None]) -> None:
    rules = RuleSet.load(EXAMPLES, strict=True)
    assert [rule.id for rule in rules] == [
        "iteration-critical",
        "iteration-budget-warning",
        "iteration-checkpoint",
        "track-iterations",
    ]
    model = ScriptedModel(*LOOKS[:9], say("done"))
    agent = Agent(model=model, tools=[look], rules=rules, limits=Limits(turns=10))
    assert (agent.ruleset.problems, agent.ruleset.warnings) == ((), ())
    result = ScriptDriver(agent).run("Go.")
    final = "FINAL ITERATION: Complete task now or summarize progress."
    seen = [request.notices for request in model.requests]
    assert seen[4] == ("Checkpoint: 5 iterations. Progress check recommended.",)
    assert seen[7] == (WARNING,)
    assert seen[8] == (final,)
    assert seen[9][0] == final
    snapshot(seen[9][1])
    assert seen[9][2:] == ("Checkpoint: 10 iterations. Progress check recommended.",)
    assert result.state == {"last_iteration_count": 10}


class TestHooks:
    def test_every_trigger_fires_in_a_run_in_its_order(self, rules: RuleFolder) -> None:
        for trigger in Trigger:
            if trigger is not Trigger.EVENT:
                rules.add(trigger.value, emit(trigger.value))
        rules.add("on_event", 'type = "log"\nmessage = "heard"', more='event = "on_query_start"')
        ran = Ran(rules, together(LOOKS[0], call("look", n=-1)), *[LOOKS[1]] * 5, limits=Limits(turns=6))
        names = [name for name, _ in ran.told]
        assert names[:9] == [
            "on_query_start",
            "log.info",
            "on_turn_start",
            "on_tool_call",
            "on_tool_call",
            "on_tool_complete",
            "on_tool_failure",
            "on_turn_end",
            "on_turn_start",
        ]
        assert names[-5:] == ["on_turn_end", "on_turn_start", "on_stalled", "on_turn_end", "on_session_end"]

    def test_a_refused_budget_is_one(self, rules: RuleFolder) -> None:
        rules.add("on_budget_refused", emit("refused", what="context.event.name"))
        assert Ran(rules, *LOOKS[:3], limits=Limits(turns=2)).told == [("refused", {"what": "turns"})]

    def test_the_end_of_a_run_is_one_however_it_ends(self, rules: RuleFolder) -> None:
        rules.add("on_session_end", emit("end", why="context.event.name"))
        assert Ran(rules, fail(ModelError("down"))).told == [("end", {"why": "failed"})]
        assert Ran(rules, say("ok")).told == [("end", {"why": "completed"})]

    def test_rules_see_the_run(self, rules: RuleFolder) -> None:
        rules.add(
            "on_tool_complete",
            emit(
                "seen",
                tool="context.result.tool_name",
                result="context.result.result",
                calls="context.history.total_tool_calls",
                tools="context.history.tools",
                user="context.user.name",
                mode="context.run.mode",
                agent="context.run.agent",
                left="context.budget.turns.remaining",
                roles="len(context.history.messages)",
            ),
        )
        ran = Ran(rules, LOOKS[1], say("ok"), name="scout", metadata={"user": {"name": "Ada"}, "mode": "chat"})
        assert ran.told == [
            (
                "seen",
                {
                    "tool": "look",
                    "result": "seen 1",
                    "calls": 1,
                    "tools": ["look"],
                    "user": "Ada",
                    "mode": "chat",
                    "agent": "scout",
                    "left": 49,
                    "roles": 3,
                },
            )
        ]


class TestNotices:
    def test_the_most_urgent_comes_first_and_each_is_shown_once(self, rules: RuleFolder) -> None:
        for priority in ("low", "critical", "normal", "high"):
            rules.add("on_query_start", note(priority, f'priority = "{priority}"'))
        ran = Ran(rules, LOOKS[0], say("ok"))
        assert ran.notices == [("critical", "high", "normal", "low"), ()]

    def test_after_tool_waits_for_a_result(self, rules: RuleFolder) -> None:
        rules.add("on_query_start", note("later", 'deliver_at = "after_tool"'))
        rules.add("on_tool_complete", note("now", 'deliver_at = "after_tool"'), "context.turn.iteration_count == 1")
        assert Ran(rules, LOOKS[0], say("ok")).notices == [(), ("now", "later")]

    def test_only_what_is_immediate_goes_with_the_report(self, rules: RuleFolder) -> None:
        rules.add("on_budget_refused", note("at once", 'deliver_at = "immediate"'))
        rules.add("on_budget_refused", note("too late"))
        ran = Ran(rules, *LOOKS[:3], limits=Limits(turns=1))
        assert ran.model.requests[-1].purpose is Purpose.GRACE
        assert ran.notices[-1] == ("at once",)

    def test_crossing_fires_once_until_it_was_false_again(self, rules: RuleFolder) -> None:
        odd = "context.turn.iteration_count in [2, 3, 5, 6]"
        rules.add("on_turn_start", note("{{ context.turn.iteration_count }}"), odd, 'fire = "crossing"')
        assert Ran(rules, *LOOKS[:6], say("ok")).notices == [(), ("2",), (), (), ("5",), (), ()]

    def test_a_cooldown_keeps_quiet_for_so_many_turns(self, rules: RuleFolder) -> None:
        rules.add("on_turn_start", note("{{ context.turn.iteration_count }}"), more="cooldown_turns = 2")
        assert Ran(rules, *LOOKS[:6], say("ok")).notices == [("1",), (), (), ("4",), (), (), ("7",)]


class TestActions:
    def test_a_call_is_denied_and_the_model_is_told_why(self, rules: RuleFolder) -> None:
        rules.add(
            "on_tool_call",
            'type = "deny"\nmessage = "Not {{ context.call.arguments.n }}."',
            "context.call.arguments.n == 3",
        )
        ran = Ran(rules, LOOKS[3], LOOKS[4], say("ok"))
        assert [outcome.text.partition("(")[2] or outcome.text for outcome in ran.result.tool_results] == [
            "rule): Not 3.",
            "seen 4",
        ]

    @pytest.mark.parametrize(("grace", "text"), [("true", "I report."), ("false", "")])
    def test_a_run_is_stopped_with_its_report_or_at_once(self, rules: RuleFolder, grace: str, text: str) -> None:
        action = f'type = "stop"\nmessage = "Enough."\ngrace = {grace}'
        rules.add("on_turn_end", action, "context.turn.iteration_count == 2")
        result = Ran(rules, *LOOKS[:9]).result
        assert (result.stop, result.stopped_by, result.turns, result.text) == ("halted", "rule-1", 2, text)
        assert result.warning == "Enough."

    def test_a_budget_is_extended_within_its_clamp(self, rules: RuleFolder) -> None:
        rules.add(
            "on_turn_start", 'type = "extend"\nbudget = "turns"\namount = 500', "context.turn.iteration_count == 2"
        )
        rules.add("on_query_start", 'type = "extend"\nbudget = "seconds"\namount = 60')
        result = Ran(rules, *LOOKS[:5], say("ok"), limits=Limits(turns=2)).result
        assert (result.stop, result.budgets["turns"].ceiling) == ("completed", 500)
        assert [event.by for event in result.events if isinstance(event, Extended)] == ["rule-1"]
        assert [event.seconds for event in result.events if isinstance(event, Postponed)] == [60]

    def test_a_refused_budget_may_be_extended_and_the_run_goes_on(self, rules: RuleFolder) -> None:
        more = 'type = "extend"\nbudget = "turns"\namount = 5'
        rules.add("on_budget_refused", more, "context.event.name == 'turns'")
        result = Ran(rules, *LOOKS[:4], say("ok"), limits=Limits(turns=2)).result
        assert (result.stop, result.turns, result.flags) == ("completed", 5, ("max_agent_iterations_reached",))

    def test_state_is_set_with_its_type_and_the_next_rule_sees_it(self, rules: RuleFolder) -> None:
        rules.add("on_turn_start", 'type = "set_state"\nkey = "n"\nincrement = 2', more="priority = 200")
        rules.add("on_turn_start", 'type = "set_state"\nkey = "list"\nvalue = "{{ [context.state.n, 1.5] }}"')
        assert Ran(rules, LOOKS[0], say("ok")).result.state == {"n": 4, "list": [4, 1.5]}

    def test_an_event_is_heard_and_an_answer_to_it_is_cut(self, rules: RuleFolder) -> None:
        rules.add("on_query_start", emit("ping", n="1 + 1"))
        rules.add("on_event", emit("pong"), more='event = "ping"')
        rules.add("on_event", note("heard {{ context.event.data.n }}"), "context.event.name == 'ping'")
        ran = Ran(rules, say("ok"))
        assert (ran.told, ran.notices) == ([("ping", {"n": 2})], [("heard 2",)])
        [fault] = ran.result.faults
        assert fault["rule"] == "rule-2"
        assert "pong" in fault["reason"]

    def test_a_log_line_is_written_and_told(self, rules: RuleFolder, caplog: pytest.LogCaptureFixture) -> None:
        rules.add("on_query_start", 'type = "log"\nmessage = "Hello {{ context.run.agent }}."\nlevel = "warning"')
        with caplog.at_level(logging.INFO, "flyball.rules"):
            ran = Ran(rules, say("ok"))
        assert caplog.messages == ["rule-1: Hello agent."]
        assert ran.told == [("log.warning", {"message": "Hello agent."})]

    def test_a_person_is_asked_about_a_call_before_its_batch(self, rules: RuleFolder) -> None:
        rules.add(
            "on_tool_call",
            'type = "ask"\nmessage = "Look at {{ context.call.arguments.n }}?"',
            "context.call.arguments.n == 2",
        )
        batch = together(LOOKS[1], LOOKS[2])
        denied = Ran(rules, batch, say("ok"), plot={"verdicts": [deny("No.")]})
        first, second = denied.result.tool_results
        assert first.text == "seen 1"
        assert second.text.endswith("(approval): No.")
        [asked] = [event for event in denied.result.events if isinstance(event, AskedPerson)]
        assert asked.text == "Look at 2?"
        paused = Ran(rules, batch, say("ok"))
        assert (paused.result.stop, len(paused.result.questions)) == ("paused", 1)
        resumed = assert_honest(paused.script.resume({paused.result.questions[0].id: allow()}))
        assert [outcome.text for outcome in resumed.tool_results] == ["seen 1", "seen 2"]

    def test_a_person_is_asked_whether_the_run_may_go_on(self, rules: RuleFolder) -> None:
        rules.add("on_turn_start", 'type = "ask"\nmessage = "Go on?"', "context.turn.iteration_count == 2")
        assert Ran(rules, *LOOKS[:2], say("ok"), plot={"verdicts": [allow()]}).result.stop == "completed"
        no = Ran(rules, *LOOKS[:2], say("ok"), plot={"verdicts": [deny("Enough.")]}).result
        assert (no.stop, no.stopped_by, no.warning, no.turns) == ("halted", "rule-1", "Enough.", 1)
        paused = Ran(rules, *LOOKS[:2], say("ok"))
        assert (paused.result.stop, paused.result.questions[0].text) == ("paused", "Go on?")
        result = assert_honest(paused.script.resume({paused.result.questions[0].id: True}))
        assert (result.stop, result.turns) == ("completed", 3)

    def test_another_model_is_asked_from_then_on_and_each_has_its_cost(self, rules: RuleFolder) -> None:
        rules.add("on_turn_end", 'type = "use_model"\nmodel = "small"', "context.turn.iteration_count == 1")
        small = ScriptedModel(LOOKS[1], say("small"), name="small-1", price=TokenPrice(input=1, output=1))
        large = ScriptedModel(LOOKS[0], name="large-1", price=TokenPrice(input=10, output=10))
        agent = Agent(model=large, models={"small": small}, tools=[look], rules=rules.path)
        result = assert_honest(ScriptDriver(agent).run("Go."))
        assert (result.text, len(large.requests), len(small.requests)) == ("small", 1, 2)
        assert result.cost == {"large-1": 150_000, "small-1": 30_000}
        assert assert_honest(agent.run("Go.")).text == "small"

    def test_a_model_that_nobody_has_is_refused_when_the_agent_is_made(self, rules: RuleFolder) -> None:
        rules.add("on_turn_end", 'type = "use_model"\nmodel = "small"')
        with pytest.raises(UsageError, match=r"'small'.*models="):
            Agent(model=ScriptedModel(say("x")), rules=rules.path)


def test_an_error_in_one_rule_is_its_own_and_is_in_the_result(rules: RuleFolder) -> None:
    rules.add("on_turn_start", note("{{ context.state.nothing }}"))
    rules.add("on_turn_start", note("seen"))
    ran = Ran(rules, say("ok"))
    assert ran.notices == [("seen",)]
    assert [fault["rule"] for fault in ran.result.faults] == ["rule-1"]
    assert [event.rule for event in ran.result.events if isinstance(event, RuleFailed)] == ["rule-1"]
    assert ran.result.to_dict()["faults"][0]["trigger"] == "on_turn_start"


def test_each_tool_that_fails_again_and_again_is_told_of_and_a_denied_call_is_no_failure(rules: RuleFolder) -> None:
    @tool(effects="read")
    def other(n: int = 0) -> str:
        """Fail."""
        raise ValueError("no")

    rules.add("on_tool_call", 'type = "deny"\nmessage = "No."', "context.call.arguments.n == -9")
    lines = [together(call("look", n=-1 - n), call("other", n=n), call("look", n=-9)) for n in range(3)]
    model = ScriptedModel(*lines, say("ok"))
    ScriptDriver(Agent(model=model, tools=[look, other], rules=rules.path)).run("Go.")
    told = [notice for request in model.requests for notice in request.notices if "has failed" in notice]
    assert told == [f"{name} has failed 3 times. Look for the cause, or do without it." for name in ("look", "other")]


def test_a_condition_that_cannot_be_worked_out_is_false(rules: RuleFolder) -> None:
    rules.add("on_turn_start", note("never"), "context.state.nothing > 3")
    ran = Ran(rules, say("ok"))
    assert (ran.notices, ran.result.faults) == ([()], ())


def test_a_bad_file_stops_neither_the_others_nor_the_core_rules(rules: RuleFolder) -> None:
    rules.add("on_turn_start", note("good"))
    (rules.path / "bad.toml").write_bytes(b"\xff")
    model = ScriptedModel(say("ok"))
    agent = Agent(model=model, rules=[rules.path], limits=Limits(turns=1))
    ScriptDriver(agent).run("Go.")
    assert model.requests[0].notices[1] == "good"
    assert "last turn" in model.requests[0].notices[0]
    assert len(agent.ruleset.problems) == 1


def test_a_run_with_rules_is_played_again_to_the_same(rules: RuleFolder) -> None:
    rules.add("on_turn_start", 'type = "set_state"\nkey = "n"\nincrement = 1')
    rules.add("on_turn_end", note("{{ context.state.n }}"))
    ran = Ran(rules, *LOOKS[:3], say("ok"), plot={"signals": {2: [Steer("x")]}})
    again = ran.script.replay()
    assert again.state == ran.result.state == {"n": 4}
    assert [event.to_dict() for event in again.events] == [event.to_dict() for event in ran.result.events]


@pytest.mark.parametrize("wrong", [3, [3], {"a": 1}, "nowhere.toml", ["nowhere"]], ids=str)
def test_what_are_no_rules_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="agent, rules"):
        Agent(model=ScriptedModel(say("x")), rules=wrong)
