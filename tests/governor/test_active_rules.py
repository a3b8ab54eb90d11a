"""Rules over a loop that is not ours: what they order is done, and their notices are handed out with the turn."""

from contextlib import nullcontext
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flyball import Limits, TurnBudget, govern
from flyball.event import Extended, RuleEmitted
from flyball.governor.active_rules import ActiveRules
from flyball.governor.turn import Turn
from flyball.outcome import Failure, Success
from flyball.progress import Notice, SetState
from flyball.result import Result
from flyball.rules import RuleSet, Trigger
from flyball.rules.orders import apply_order
from flyball.testing import ManualClock, RuleFolder


@pytest.fixture
def folder(tmp_path: Path) -> RuleFolder:
    return RuleFolder(tmp_path)


def note(text: str, more: str = "") -> str:
    return f'type = "notify_self"\nmessage = "{text}"\n{more}'


def governed(rules: RuleSet, turns: int = 3, **options: Any) -> tuple[list[tuple[str, ...]], Result]:
    said: list[tuple[str, ...]] = []
    with govern(Limits(turns=turns), rules=rules, **options) as run:
        for turn in run:
            said.append(turn.messages_to_add)
    return said, run.result()


def test_the_core_warning_comes_with_the_eighth_turn_of_ten() -> None:
    said, result = governed(RuleSet().with_core(), turns=10)
    warned = "Iteration 8 of 10. Consider completing current task or breaking it down."
    last = "This is the last turn (10 of 10): give your answer now, or say what is missing."
    assert said == [()] * 7 + [(warned,), (), (last,), ()]
    assert [event.kind for event in result.events].count("notice_delivered") == 2


def test_every_trigger_of_a_governed_loop_fires_in_its_order(folder: RuleFolder) -> None:
    """Except `on_stalled`: repetition is found in an agent's runs only."""
    for trigger in Trigger:
        if trigger is not Trigger.EVENT:
            folder.add(trigger.value, f'type = "emit_event"\nname = "{trigger.value}"')
    folder.add("on_event", 'type = "log"\nmessage = "heard"', more='event = "on_query_start"')
    with govern(Limits(turns=1), rules=folder.load()) as run:
        for turn in run:
            if not turn.grace:
                assert turn.claim_tool("look")
                turn.tool_ended(Success(call_id="1", tool="look", content="7", value=7))
                turn.tool_ended(Failure(call_id="2", tool="look", kind="OSError", error="down"))
    names = [event.name for event in run.result().events if isinstance(event, RuleEmitted)]
    assert names == [
        "on_query_start",
        "log.info",
        "on_turn_start",
        "on_tool_call",
        "on_tool_complete",
        "on_tool_failure",
        "on_turn_end",
        "on_budget_refused",
        "on_session_end",
    ]
    assert {*names, "on_event", "on_stalled"} == {"log.info", *Trigger}


def test_the_most_urgent_comes_first(folder: RuleFolder) -> None:
    for priority in ("low", "critical", "normal", "high"):
        folder.add("on_turn_start", note(priority, f'priority = "{priority}"'), "context.turn.iteration_count == 1")
    said, _ = governed(folder.load(), turns=1)
    assert said[0] == ("critical", "high", "normal", "low")


def test_what_is_said_at_the_end_of_a_turn_comes_with_the_next(folder: RuleFolder) -> None:
    folder.add("on_turn_end", note("{{ context.turn.iteration_count }} over"))
    said, _ = governed(folder.load(), turns=2)
    assert said == [(), ("1 over",), ()]


def test_only_what_is_immediate_comes_with_the_report(folder: RuleFolder) -> None:
    folder.add("on_budget_refused", note("{{ context.event.name }} refused", 'deliver_at = "immediate"'))
    folder.add("on_budget_refused", note("never seen"))
    said, _ = governed(folder.load(), turns=1)
    assert said == [(), ("turns refused",)]


@pytest.mark.parametrize(("grace", "turns"), [("true", 3), ("false", 2)])
def test_a_rule_stops_the_run_with_its_report_or_at_once(folder: RuleFolder, grace: str, turns: int) -> None:
    action = f'type = "stop"\nmessage = "Enough."\ngrace = {grace}'
    folder.add("on_turn_end", action, "context.turn.iteration_count == 2")
    said, result = governed(folder.load(), turns=9)
    assert (len(said), result.stop, result.stopped_by, result.warning) == (turns, "halted", "rule-1", "Enough.")


def test_a_turn_that_a_rule_stops_before_anything_is_asked_is_not_handed_out(folder: RuleFolder) -> None:
    folder.add("on_turn_start", 'type = "stop"\nmessage = "No."\ngrace = false', "context.turn.iteration_count == 2")
    said, result = governed(folder.load(), turns=9)
    assert (len(said), result.turns, result.requests, result.stop) == (1, 1, 1, "halted")
    kinds = [event.kind for event in result.events]
    assert kinds.count("turn_started") == kinds.count("turn_ended") == 2


def test_a_rule_gives_more_turns_within_the_clamp(folder: RuleFolder) -> None:
    folder.add("on_turn_start", 'type = "extend"\nbudget = "turns"\namount = 2', "context.turn.iteration_count == 2")
    said, result = governed(folder.load(), turns=2)
    assert (len(said), result.budgets["turns"].ceiling) == (5, 4)
    assert [event.by for event in result.events if isinstance(event, Extended)] == ["rule-1"]


def test_a_rule_denies_a_call_and_says_why(folder: RuleFolder) -> None:
    denied = 'type = "deny"\nmessage = "No {{ context.call.arguments.path }}."'
    folder.add("on_tool_call", denied, "context.call.tool_name == 'rm'")
    folder.add("on_tool_call", 'type = "ask"\nmessage = "Pay?"', "context.call.tool_name == 'pay'")
    with govern(Limits(turns=1), rules=folder.load()) as run:
        for turn in run:
            if turn.grace:
                continue
            assert turn.claim_tool("ls")
            assert turn.denied is None
            assert not turn.claim_tool("rm", {"path": "/"})
            assert turn.denied == "No /."
            assert not turn.claim_tool("pay")
            assert str(turn.denied).endswith(": Pay?")
    assert run.result().budgets["tool_calls"].used == 1


def test_rules_look_at_what_calls_came_to(folder: RuleFolder) -> None:
    folder.add("on_tool_failure", note("{{ context.result.error }}"), "failure_count('fetch') == 2")
    folder.add("on_tool_complete", note("{{ context.result.result }} in {{ context.result.duration_ms }} ms"))
    with govern(Limits(turns=2), rules=folder.load()) as run:
        said: list[tuple[str, ...]] = []
        for turn in run:
            said.append(turn.messages_to_add)
            for n in range(2):
                turn.tool_ended(Failure(call_id=str(n), tool="fetch", kind="OSError", error=f"down {n}"))
            turn.tool_ended(Success(call_id="x", tool="read", seconds=0.5, content="7", value=7))
    assert said[1] == ("OSError: down 1", "7 in 500.0 ms")


def test_state_events_and_the_model(folder: RuleFolder) -> None:
    folder.add("on_turn_start", 'type = "set_state"\nkey = "n"\nincrement = 2')
    folder.add(
        "on_turn_start", 'type = "emit_event"\nname = "high"\ndata.n = "{{ context.state.n }}"', "context.state.n > 3"
    )
    folder.add("on_event", 'type = "use_model"\nmodel = "small"', "context.event.data.n == 4", 'event = "high"')
    folder.add("on_session_end", 'type = "log"\nmessage = "{{ context.event.name }} with {{ context.state.n }}"')
    models: list[str | None] = []
    with govern(Limits(turns=2), rules=folder.load(), grace=False) as run:
        for turn in run:
            models.append(turn.model)
    emitted = [event for event in run.result().events if isinstance(event, RuleEmitted)]
    told = [(event.name, dict(event.data)) for event in emitted]
    assert models == [None, "small"]
    assert told == [("high", {"n": 4}), ("log.info", {"message": "budget with 4"})]


def test_a_rule_that_cannot_do_what_it_says_is_told_and_changes_nothing(folder: RuleFolder) -> None:
    folder.add("on_turn_start", note("{{ context.state.none }}"))
    folder.add("on_turn_start", note("seen"))
    said, result = governed(folder.load(), turns=1)
    [failed] = [event for event in result.events if event.kind == "rule_failed"]
    assert said[0] == ("seen",)
    assert "'none'" in failed.to_dict()["reason"]


def test_rules_of_a_governed_loop_see_its_time() -> None:
    clock = ManualClock()
    said: list[tuple[str, ...]] = []
    with govern(Limits(seconds=100), rules=RuleSet().with_core(), clock=clock) as run:
        for turn in run:
            said.append(turn.messages_to_add)
            clock.move(30)
    assert said[2] == ("25 seconds are left for this task. Finish what matters most.",)


class TestWhatGuards:
    def test_a_governed_loop_that_a_person_must_allow_to_go_on_halts(self, folder: RuleFolder) -> None:
        folder.add("on_turn_start", 'type = "ask"\nmessage = "Go on?"', "context.turn.iteration_count == 2")
        said, result = governed(folder.load(), turns=9)
        assert (len(said), result.stop, result.stopped_by) == (2, "halted", "rule-1")
        assert str(result.warning).endswith(": Go on?")

    def test_a_stop_before_a_call_denies_it(self, folder: RuleFolder) -> None:
        folder.add("on_tool_call", 'type = "stop"\nmessage = "Enough."')
        with govern(Limits(turns=3), rules=folder.load()) as run:
            for turn in run:
                assert not turn.claim_tool("ls")
        assert (run.result().stop, run.result().budgets["tool_calls"].used) == ("halted", 0)

    def test_a_veto_holds_however_many_threads_claim(self, folder: RuleFolder) -> None:
        folder.add("on_tool_call", 'type = "deny"\nmessage = "No."', "context.call.tool_name == 'rm'")
        claimed: list[tuple[str, bool]] = []

        def claim(turn: Turn, name: str) -> None:
            for _ in range(200):
                claimed.append((name, turn.claim_tool(name)))

        with govern(Limits(turns=1), rules=folder.load(), grace=False) as run:
            for turn in run:
                threads = [Thread(target=claim, args=(turn, name), daemon=True) for name in ("rm", "ls") * 3]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(60)
        assert set(claimed) == {("rm", False), ("ls", True)}


class TestTheEnd:
    def test_a_stop_does_not_hide_the_warning_of_a_limit(self, folder: RuleFolder) -> None:
        folder.add("on_budget_refused", 'type = "stop"\nmessage = "Enough."')
        _, result = governed(folder.load(), turns=1)
        assert (result.stop, result.flags) == ("budget", ("max_agent_iterations_reached",))

    def test_a_stop_after_the_end_changes_nothing(self, folder: RuleFolder) -> None:
        folder.add("on_session_end", 'type = "stop"\nmessage = "Enough."')
        with govern(Limits(turns=1), rules=folder.load()) as run:
            for _ in run:
                run.complete("done")
        assert (run.result().stop, run.result().warning) == ("completed", None)

    def test_without_grace_no_rule_gives_any(self, folder: RuleFolder) -> None:
        folder.add("on_turn_end", 'type = "stop"\nmessage = "Enough."\ngrace = true')
        said, result = governed(folder.load(), turns=9, grace=False)
        assert (len(said), result.stop) == (1, "halted")


def test_a_notice_that_nobody_was_handed_is_not_told_as_delivered(folder: RuleFolder) -> None:
    folder.add("on_session_end", note("too late"))
    folder.add("on_turn_end", note("in time"))
    said, result = governed(folder.load(), turns=2)
    assert said == [(), ("in time",), ()]
    assert [event.kind for event in result.events].count("notice_delivered") == 1


def test_after_tool_waits_for_the_result_of_a_tool(folder: RuleFolder) -> None:
    folder.add("on_query_start", note("later", 'deliver_at = "after_tool"'))
    said: list[tuple[str, ...]] = []
    with govern(Limits(turns=3), rules=folder.load(), grace=False) as run:
        for turn in run:
            said.append(turn.messages_to_add)
            if turn.number == 2:
                turn.tool_ended(Success(call_id="x", tool="read", content="7", value=7))
    assert said == [(), (), ("later",)]


def test_more_time_is_given_within_the_clamp_and_is_still_time_of_work(folder: RuleFolder) -> None:
    folder.add("on_turn_start", 'type = "extend"\nbudget = "seconds"\namount = 86000')
    clock = ManualClock()
    with govern(Limits(seconds=1_000), rules=folder.load(), clock=clock) as run:
        for _ in run:
            clock.move(100)
            assert run.envelope.postponed_s <= 86_400 - 1_000
            if clock.now() >= 300:
                run.complete()
    assert run.result().seconds == 300


class Unheard:
    """A governed run whose events nobody reads."""

    lock = nullcontext(True)

    def tell(self, kind: object, *fields: object) -> None:
        pass

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        pass


def test_equal_notices_are_handed_out_once_as_in_an_agent() -> None:
    rules = ActiveRules(RuleSet(), Unheard(), "r", TurnBudget.create(), {})
    for _ in range(2):
        apply_order(Notice("look out", by="rule"), rules)
    assert (rules.pop_notices(grace=False), rules.pop_notices(grace=False)) == (("look out",), ())


def test_setting_a_key_to_none_deletes_it_as_in_an_agent() -> None:
    rules = ActiveRules(RuleSet(), Unheard(), "r", TurnBudget.create(), {})
    apply_order(SetState("phase", 1), rules)
    assert rules.state == {"phase": 1}
    apply_order(SetState("phase", None), rules)
    assert rules.state == {}
