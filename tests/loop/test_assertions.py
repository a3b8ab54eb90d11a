"""A run with assertions ends as completed when it has proved what it must, and not because the model says so."""

from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.completion.assertions import Assertions
from flyball.completion.policy import AssertionPolicy
from flyball.errors import ConfigError, ModelError
from flyball.event import CompletionChecked, Nudged
from flyball.loop.effects import Cancel, LeaseLost, Steer, TimeUp
from flyball.progress import Complete, Continue, Halt, Point, Progress, Unfinished
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, together

SEED = {
    "completion_assertions": {
        "complete_when_any": [
            {
                "name": "content_proposal",
                "tools": [
                    {"name": "create_or_update_github_file", "min_successful_calls": 2},
                    {"name": "create_github_pull_request", "required_output": ["html_url"]},
                ],
            },
            {
                "name": "issue_reply",
                "tools": [
                    {
                        "name": "manage_github_issue",
                        "required_parameters": {"action": "comment"},
                        "required_output": ["comment.html_url"],
                    }
                ],
            },
        ]
    }
}


@tool
def create_or_update_github_file(path: str) -> str:
    if path == "broken":
        raise ValueError("no such branch")
    return path


@tool
def create_github_pull_request(title: str = "x") -> dict[str, Any]:
    return {"html_url": "https://example.org/1"}


@tool
def manage_github_issue(action: str) -> dict[str, Any]:
    return {"comment": {"html_url": "https://example.org/c"}} if action == "comment" else {"comment": {}}


TOOLS = [create_or_update_github_file, create_github_pull_request, manage_github_issue]
FILE, PR = call("create_or_update_github_file", path="a"), call("create_github_pull_request")
REQUIRED = {"required_tool_names": ["create_or_update_github_file", "create_github_pull_request"]}


def run(*lines: Any, completion: Any = None, **options: Any) -> Result:
    grace, signals = options.pop("said_last", None), options.pop("signals", None)
    agent = Agent(model=ScriptedModel(*lines, grace=grace), tools=TOOLS, completion=completion, **options)
    result = ScriptDriver(agent, signals=signals).run("Propose the change.")
    assert_honest(result)
    return result


class TestSeed:
    def test_the_first_example_needs_both_tools(self) -> None:
        result = run(FILE, say("done"), PR, say("really done"), completion={"completion_assertions": REQUIRED})
        assert (result.stop, result.text, result.budgets["nudges"].used) == ("completed", "really done", 1)
        assert result.completion["satisfied"] == [
            "required tool create_or_update_github_file",
            "required tool create_github_pull_request",
        ]

    def test_the_second_example_ends_as_soon_as_one_outcome_is_there(self) -> None:
        result = run(together(FILE, FILE), PR, completion=SEED)
        assert (result.stop, result.turns) == ("completed", 2)
        assert "outcome content_proposal" in result.completion["satisfied"]

    def test_the_second_example_ends_as_soon_as_the_other_outcome_is_there(self) -> None:
        result = run(call("manage_github_issue", action="comment"), completion=SEED)
        assert (result.stop, result.turns) == ("completed", 1)

    def test_wrong_parameters_and_missing_output_prove_nothing(self) -> None:
        close = call("manage_github_issue", action="close")
        result = run(close, say("done"), say("done"), say("done"), say("done"), completion=SEED)
        assert (result.stop, result.budgets["nudges"].used) == ("unfinished", 3)

    def test_a_failed_call_proves_nothing(self) -> None:
        broken = call("create_or_update_github_file", path="broken")
        result = run(together(broken, broken), PR, say("done"), *[say("done")] * 3, completion=SEED)
        assert result.stop == "unfinished"
        assert result.completion["complete"] is False


class TestEarlyEnd:
    COMMENT = call("manage_github_issue", action="comment")

    def test_who_steers_a_run_that_had_its_outcome_is_heard_to_the_end(self) -> None:
        lines = (self.COMMENT, FILE, FILE, say("Both files are written."))
        for n in range(3):
            result = run(*lines, completion=SEED, signals={n: [Steer("Write two files as well.")]})
            assert (result.stop, result.text, len(result.tool_results)) == ("completed", "Both files are written.", 3)

    def test_an_outcome_counts_even_if_the_time_is_over_with_it(self) -> None:
        result = run(self.COMMENT, completion=SEED, signals={1: [TimeUp()]})
        assert (result.stop, result.requests, result.flags) == ("completed", 1, ())

    def test_a_cancel_or_a_lost_lease_goes_before_an_outcome_that_came_with_it(self) -> None:
        assert run(self.COMMENT, completion=SEED, signals={1: [Cancel("me")]}).stop == "cancelled"
        assert run(self.COMMENT, completion=SEED, signals={1: [LeaseLost()]}).stop == "contended"

    def test_a_hook_that_halts_goes_before_an_outcome(self) -> None:
        def halting(point: Point, progress: Progress, about: object = None) -> list[Halt]:
            return [Halt("guard")] if point is Point.TOOL_ENDED else []

        result = run(self.COMMENT, completion=SEED, hooks=[halting])
        assert (result.stop, result.stopped_by, result.completion["complete"]) == ("halted", "guard", True)
        late = run(self.COMMENT, completion=SEED, hooks=[halting], signals={1: [TimeUp()]}, said_last=say("report"))
        assert late.stop == "deadline"

    def test_an_outcome_may_come_in_the_last_turn_or_the_only_one(self) -> None:
        assert run(self.COMMENT, completion=SEED, limits=Limits(turns=1)).flags == ()
        assert run(self.COMMENT, completion=SEED, single_turn=True).stop == "completed"

    def test_a_typed_answer_is_waited_for(self) -> None:
        result = run(self.COMMENT, say("5"), completion=SEED, output=int)
        assert (result.stop, result.output, result.turns) == ("completed", 5, 2)

    def test_a_policy_behind_the_assertions_must_agree(self) -> None:
        def second_turn(progress: Progress) -> Complete | Continue:
            return Complete() if progress.turn > 1 else Continue("Look again.")

        result = run(self.COMMENT, say("I looked."), completion=AssertionPolicy(Assertions.of(SEED), second_turn))
        assert (result.stop, result.turns, result.completion["nudge_count"]) == ("completed", 2, 0)


class TestNudges:
    def test_a_stubborn_model_ends_as_unfinished_with_what_is_missing(self) -> None:
        result = run(*[say("It is done.")] * 4, completion=REQUIRED)
        assert (result.stop, result.text, result.requests) == ("unfinished", "It is done.", 4)
        assert result.flags == ("max_nudges_reached",)
        assert result.completion["missing"] == [
            "required tool create_or_update_github_file",
            "required tool create_github_pull_request",
        ]
        assert result.completion["nudge_count"] == 3
        assert result.completion["nudge"] == result.messages[-2].content

    def test_a_nudge_is_a_message_of_the_users_that_says_what_is_missing_and_what_is_done(self) -> None:
        result = run(FILE, say("done"), PR, say("yes"), completion=REQUIRED)
        nudges = [message for message in result.messages if message.content == result.completion["nudge"]]
        assert [message.role for message in nudges] == ["user"]
        assert "create_github_pull_request" in nudges[0].content
        assert "1 of 2" in nudges[0].content
        assert "Propose the change." in nudges[0].content

    def test_a_model_may_comply_after_the_second_nudge(self) -> None:
        result = run(say("done"), FILE, say("done"), PR, say("Now it is."), completion=REQUIRED)
        assert (result.stop, result.text, result.completion["nudge_count"]) == ("completed", "Now it is.", 2)
        nudges = [event.text for event in result.events if isinstance(event, Nudged)]
        assert [f"{done} of 2" in text for done, text in enumerate(nudges)] == [True, True]

    def test_with_hidden_mechanics_no_tool_is_named(self) -> None:
        result = run(say("done"), FILE, PR, say("yes"), completion={**REQUIRED, "hide_mechanics": True})
        nudge = result.completion["nudge"]
        assert nudge
        assert "github" not in nudge

    def test_an_outcome_that_no_tool_offers_is_not_spoken_of(self) -> None:
        ways = [
            {"name": name, "tools": [{"name": tool}]} for name, tool in (("out", "publish"), ("pull", PR.calls[0][0]))
        ]
        result = run(say("done"), PR, completion={"complete_when_any": ways})
        nudge = result.completion["nudge"]
        assert "\n- pull" in nudge
        assert "publish" not in nudge

    def test_no_nudge_without_a_budget_for_it(self) -> None:
        result = run(say("done"), completion=REQUIRED, limits=Limits(nudges=0))
        assert (result.stop, result.requests) == ("unfinished", 1)

    def test_a_forbidden_tool_ends_it_without_a_nudge(self) -> None:
        result = run(PR, say("done"), completion={"forbidden_tool_names": ["create_github_pull_request"]})
        assert (result.stop, result.budgets["nudges"].used) == ("unfinished", 0)
        assert result.completion["missing"] == ["forbidden tool create_github_pull_request was called"]

    def test_events_say_what_the_result_says(self) -> None:
        result = run(FILE, say("done"), PR, say("yes"), completion=REQUIRED)
        checked = [event for event in result.events if isinstance(event, CompletionChecked)]
        [nudged] = [event for event in result.events if isinstance(event, Nudged)]
        assert [event.complete for event in checked] == [False, True]
        assert list(checked[-1].satisfied) == result.completion["satisfied"]
        assert (nudged.text, nudged.count) == (result.completion["nudge"], 1)
        assert nudged.missing == checked[0].missing == ("required tool create_github_pull_request",)
        assert nudged.satisfied == ("required tool create_or_update_github_file",)


class TestOutput:
    def test_a_typed_answer_that_never_came_is_missing_though_all_assertions_hold(self) -> None:
        result = run(FILE, PR, *[say("no number")] * 4, completion=REQUIRED, output=int)
        assert (result.stop, result.completion["complete"], result.completion["missing"]) == (
            "unfinished",
            False,
            ["output"],
        )
        assert len(result.completion["satisfied"]) == 2
        for event in result.events:
            if isinstance(event, CompletionChecked | Nudged):
                assert (list(event.missing), list(event.satisfied)) == (["output"], result.completion["satisfied"])

    def test_a_typed_answer_that_never_came_is_missing_where_a_limit_ended_the_run(self) -> None:
        result = run(FILE, PR, completion=REQUIRED, output=int, limits=Limits(turns=2), said_last=say("report"))
        assert (result.stop, result.completion["complete"], result.completion["missing"]) == (
            "budget",
            False,
            ["output"],
        )

    def test_what_a_policy_behind_the_assertions_misses_is_told(self) -> None:
        def never(progress: Progress) -> Continue:
            return Continue("Wait for a person.", ("a person",))

        policy = AssertionPolicy(Assertions.of(REQUIRED), never)
        result = run(FILE, PR, *[say("done")] * 4, completion=policy)
        assert (result.stop, result.completion["missing"]) == ("unfinished", ["a person"])


class TestState:
    def test_engine_data_is_the_runs_state(self) -> None:
        asked = Assertions(required_engine_data_keys=["report.url"])
        agent = Agent(model=ScriptedModel(say("done")), completion=asked)
        assert ScriptDriver(agent).run("x", state={"report": {"url": "here"}}).stop == "completed"
        assert (
            ScriptDriver(Agent(model=ScriptedModel(*[say("done")] * 4), completion=asked)).run("x").stop == "unfinished"
        )


class TestPreflight:
    def test_a_required_tool_that_is_not_offered_ends_it_before_any_request(self) -> None:
        result = run(say("never said"), completion={"required_tool_names": ["publish"]})
        assert (result.stop, result.requests, result.turns) == ("failed", 0, 0)
        record = result.to_dict()
        assert (record["error_code"], record["status"]) == ("completion_required_tool_unavailable", "error")
        assert record["completion_assertions_required"] == {"required_tool_names": ["publish"]}
        assert record["unavailable_required_tool_names"] == ["publish"]
        assert record["available_tool_names"] == [one.name for one in TOOLS]

    def test_outcomes_of_which_none_is_possible_end_it_before_any_request(self) -> None:
        way = {"name": "out", "tools": [{"name": "publish"}]}
        assert run(say("x"), completion={"complete_when_any": [way]}).stop == "failed"

    def test_a_contradiction_is_told_where_the_agent_is_made(self) -> None:
        asked = {"required_tool_names": ["a"], "forbidden_tool_names": ["a"]}
        with pytest.raises(ConfigError, match="a"):
            Agent(model=ScriptedModel(), completion=asked)

    def test_what_is_no_policy_is_refused(self) -> None:
        async def later(progress: Progress) -> Complete:
            return Complete()

        for wrong in (5, later):
            with pytest.raises(ConfigError, match="agent, completion"):
                Agent(model=ScriptedModel(), completion=wrong)  # pyright: ignore[reportArgumentType]


ENDS: dict[str, tuple[tuple[Line, ...], dict[str, Any]]] = {
    "completed": ((FILE, PR, say("yes")), {}),
    "unfinished": ((say("no"),), {"limits": Limits(nudges=0)}),
    "budget": ((FILE, FILE), {"limits": Limits(turns=1), "said_last": say("report")}),
    "halted": ((FILE,), {"single_turn": True}),
    "failed": ((fail(ModelError("down")),), {}),
    "cancelled": ((FILE,), {"signals": {0: [Cancel("me")]}}),
    "contended": ((FILE,), {"signals": {0: [LeaseLost()]}}),
    "deadline": ((FILE,), {"signals": {0: [TimeUp()]}, "said_last": say("report")}),
}


class TestRecord:
    @pytest.mark.parametrize("end", ENDS)
    def test_every_end_has_the_fields_of_the_seed(self, end: str) -> None:
        lines, options = ENDS[end]
        result = run(*lines, completion=REQUIRED, **options)
        assert result.stop == end
        record = self.of_the_seed(result)
        assert record["completion_assertions_complete"] is (end == "completed")

    @pytest.mark.parametrize("end", [end for end in ENDS if end != "unfinished"])
    def test_every_end_has_the_fields_of_the_seed_where_nothing_had_to_be_proved(self, end: str) -> None:
        lines, options = ENDS[end]
        record = self.of_the_seed(run(*lines, **options))
        assert (record["completion_assertions_required"], record["completion_assertions_complete"]) == ({}, None)
        assert (record["completion_nudge_count"], record["completion_nudge"]) == (0, None)

    def of_the_seed(self, result: Result) -> dict[str, Any]:
        record = result.to_dict()
        seed = {"messages", "final_content", "turn_count", "completed", "status", "last_tool_calls", "usage"}
        seed |= {"tool_execution_results", "request_metadata", "completion_nudge_count", "completion_nudge"}
        seed |= {f"completion_assertions_{name}" for name in ("required", "missing", "satisfied", "complete")}
        assert seed <= record.keys()
        return record

    def test_each_request_is_described(self) -> None:
        first, second = run(FILE, say("x")).to_dict()["request_metadata"]
        assert (first["purpose"], first["message_count"], first["tool_count"], first["attempt"]) == ("turn", 1, 3, 1)
        assert (first["provider"], first["model"], first["timeout_s"]) == ("flyball", "scripted", 3_580.0)
        assert second["bytes"] > first["bytes"] > 0


class TestPolicies:
    def test_a_function_may_decide(self) -> None:
        def patient(progress: Progress) -> Complete | Continue | Unfinished:
            return Complete() if progress.turn > 1 else Continue("Look again.", ("a second look",))

        result = run(say("first"), say("second"), completion=patient)
        assert (result.stop, result.text) == ("completed", "second")
        assert result.completion == {
            "complete": True,
            "missing": [],
            "satisfied": [],
            "nudge_count": 1,
            "nudge": "Look again.",
        }

    def test_a_function_that_decides_sees_what_is_proved(self) -> None:
        seen: list[int] = []

        def look(progress: Progress) -> Complete:
            seen.append(progress.evidence.count("create_github_pull_request"))
            return Complete()

        run(PR, say("x"), completion=look)
        assert seen == [1, 1]

    @pytest.mark.parametrize("answer", [True, None, Complete, "go on"])
    def test_what_is_no_decision_fails_the_run_and_says_what_would_be_one(self, answer: Any) -> None:
        def confused(progress: Progress) -> Any:
            return answer

        result = run(say("x"), completion=confused)
        assert result.stop == "failed"
        assert "Continue(message)" in (result.error or {})["message"]
