"""A person in the loop: asked before anything of a batch is made; what is not allowed is not done, on any path."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import Agent, Limits, tool
from flyball.errors import ConfigError
from flyball.event import AskedPerson, Extended, PersonAnswered, Postponed, ToolStarted
from flyball.loop.effects import Act, Cancel, Decide, Steer, TimeUp
from flyball.person import About, Question, Verdict, allow, deny, edit, extend
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say, together
from flyball.tools import ToolContext


class Desk:
    """Tools that note what was really done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[Any]:
        @tool(effects="read")
        def look(at: str = "it") -> str:
            """Look."""
            self.done.append(f"look {at}")
            return f"seen {at}"

        @tool(approve=True)
        def delete(path: str) -> str:
            """Delete a file."""
            self.done.append(f"delete {path}")
            return f"deleted {path}"

        def is_dear(arguments: Mapping[str, Any]) -> bool | str:
            return f"Pay {arguments['usd']} dollars?" if arguments["usd"] > 10 else False

        @tool(approve=is_dear, sensitive=["card"])
        def pay(usd: int, card: str = "") -> str:
            """Pay."""
            self.done.append(f"pay {usd}")
            return f"paid {usd}"

        @tool(effects="read", approve=lambda arguments: arguments["question"])
        def ask(question: str, ctx: ToolContext) -> str:
            """Ask the user."""
            return ctx.answer or "yes"

        return [look, delete, pay, ask]


LOOK, DELETE = call("look"), call("delete", path="a")
BATCH = together(LOOK, DELETE, call("look", at="more"))


def script(
    *lines: Line, desk: Desk | None = None, verdicts: Any = (), signals: Any = None, **options: Any
) -> ScriptDriver:
    model = ScriptedModel(*lines, say("ok"), grace=say("I report."))
    return ScriptDriver(
        Agent(model=model, tools=(desk or Desk()).tools(), **options), verdicts=verdicts, signals=signals
    )


def run(*lines: Line, **options: Any) -> Result:
    return assert_honest(script(*lines, **options).run("Go."))


class TestCalls:
    def test_allowed_it_is_made(self) -> None:
        desk = Desk()
        result = run(DELETE, desk=desk, verdicts=[allow()])
        assert (result.stop, desk.done) == ("completed", ["delete a"])

    def test_denied_it_is_an_outcome_that_the_model_sees_with_the_reason(self) -> None:
        desk = Desk()
        result = run(DELETE, desk=desk, verdicts=[deny("Keep that.")])
        assert (result.stop, desk.done) == ("completed", [])
        assert result.tool_results[0].text.endswith("(approval): Keep that.")
        assert result.messages[2].content == result.tool_results[0].text

    def test_an_edited_call_is_made_so_and_the_model_is_told(self, snapshot: Callable[..., None]) -> None:
        desk = Desk()
        result = run(DELETE, desk=desk, verdicts=[edit(path="b")])
        assert desk.done == ["delete b"]
        assert result.tool_results[0].text.endswith("\ndeleted b")
        snapshot(result.tool_results[0].text)

    def test_a_call_edited_to_what_cannot_be_is_not_made(self) -> None:
        desk = Desk()
        result = run(DELETE, desk=desk, verdicts=[edit(pth="b")])
        assert desk.done == []
        assert "(validation)" in result.tool_results[0].text
        assert "pth" in result.tool_results[0].text

    def test_what_is_sensitive_is_hidden_from_questions_events_and_notes(self) -> None:
        paying = script(call("pay", usd=50, card="visa one"), verdicts=[edit(usd=20, card="visa two")])
        result = assert_honest(paying.run("Go."))
        [asked] = [effect.question for effect in paying.effects if isinstance(effect, Decide)]
        assert asked.arguments == {"usd": 50, "card": "***"}
        assert "visa" not in str([event.to_dict() for event in result.events])
        assert "visa" not in result.tool_results[0].text

    def test_a_function_of_the_arguments_says_whether_and_what_to_ask(self) -> None:
        desk = Desk()
        paying = script(call("pay", usd=5), call("pay", usd=50), desk=desk, verdicts=[allow()])
        paying.run("Go.")
        assert [effect.question.text for effect in paying.effects if isinstance(effect, Decide)] == ["Pay 50 dollars?"]
        assert desk.done == ["pay 5", "pay 50"]

    def test_a_tool_gets_the_answer_to_what_it_asks(self) -> None:
        result = run(call("ask", question="Which branch?"), verdicts=[allow("main")])
        assert result.tool_results[0].text == "main"

    def test_a_call_with_wrong_arguments_asks_nobody(self) -> None:
        asked = script(call("delete", pat="a"))
        assert asked.run("Go.").stop == "completed"
        assert not [effect for effect in asked.effects if isinstance(effect, Decide)]

    def test_a_call_that_is_rejected_as_a_duplicate_asks_nobody(self) -> None:
        asked = script(DELETE, DELETE, duplicates="reject", verdicts=[allow()])
        result = assert_honest(asked.run("Go."))
        assert [outcome.ok for outcome in result.tool_results] == [True, False]
        assert sum(isinstance(effect, Decide) for effect in asked.effects) == 1

    def test_a_denied_call_that_is_asked_again_and_again_ends_the_run(self) -> None:
        result = run(*[DELETE] * 9, verdicts=[deny("No.")] * 9)
        assert (result.stop, result.turns) == ("stalled", 5)

    def test_asking_comes_before_any_call_of_the_batch(self) -> None:
        two = script(together(LOOK, DELETE, LOOK, call("pay", usd=50)), verdicts=[allow(), deny()])
        result = assert_honest(two.run("Go."))
        kinds = [type(effect).__name__ for effect in two.effects]
        assert kinds[:3] == ["Ask", "Decide", "Decide"]
        asked = [event.seq for event in result.events if isinstance(event, PersonAnswered)]
        started = [event.seq for event in result.events if isinstance(event, ToolStarted)]
        assert max(asked) < min(started)

    @pytest.mark.parametrize("letter", [Cancel(), TimeUp()])
    def test_what_comes_in_meanwhile_counts_before_the_answer(self, letter: Any) -> None:
        desk = Desk()
        result = run(BATCH, desk=desk, verdicts=[allow()], signals={1: [letter]})
        assert (desk.done, result.stop) == ([], "cancelled" if isinstance(letter, Cancel) else "deadline")

    def test_a_cancel_while_nobody_answers_cancels_the_calls(self) -> None:
        result = run(BATCH, signals={1: [Cancel()]})
        assert (result.stop, {outcome.status.value for outcome in result.tool_results}) == ("cancelled", {"cancelled"})


class TestPause:
    def test_without_an_answer_the_run_pauses_with_what_is_asked_and_nothing_is_made(
        self, snapshot: Callable[..., None]
    ) -> None:
        desk = Desk()
        result = run(BATCH, desk=desk)
        assert (result.stop, desk.done) == ("paused", [])
        assert result.to_dict()["status"] == "approval_required"
        [question] = result.questions
        assert question == Question("call-1", question.text, About.CALL, "delete", {"path": "a"})
        snapshot(question.text, "question")
        assert result.to_dict()["questions"][0]["arguments"] == {"path": "a"}
        snapshot(result.explain(), "explanation")

    def test_a_paused_run_goes_on_in_place_after_a_denial_and_nothing_is_repeated(self) -> None:
        desk = Desk()
        paused = script(LOOK, BATCH, desk=desk)
        paused.run("Go.")
        assert desk.done == ["look it"]
        result = assert_honest(paused.resume({"call-101": deny("Not that.")}))
        assert (result.stop, desk.done) == ("completed", ["look it", "look it", "look more"])
        assert [outcome.status for outcome in result.tool_results] == ["done", "done", "denied", "done"]
        assert (result.turns, result.requests, result.questions) == (3, 3, ())

    def test_all_questions_of_a_batch_are_asked_at_once_and_may_be_answered_one_by_one(self) -> None:
        desk = Desk()
        paused = script(together(DELETE, call("pay", usd=50), LOOK), desk=desk)
        first = paused.run("Go.")
        assert [question.id for question in first.questions] == ["call-0", "call-1"]
        second = assert_honest(paused.resume({"call-0": True}))
        assert (second.stop, [question.id for question in second.questions], desk.done) == ("paused", ["call-1"], [])
        third = assert_honest(paused.resume({"call-1": allow()}))
        assert (third.stop, desk.done) == ("completed", ["delete a", "pay 50", "look it"])

    def test_what_was_steered_in_before_is_heard_once(self) -> None:
        paused = script(LOOK, DELETE, signals={1: [Steer("Be careful.")]})
        paused.run("Go.")
        result = assert_honest(paused.resume({"call-100": True}))
        assert [message.content for message in result.messages].count("Be careful.") == 1

    def test_a_run_that_paused_is_played_again_to_its_pause(self) -> None:
        paused = script(LOOK, BATCH)
        first = paused.run("Go.")
        assert paused.replay().questions == first.questions

    def test_a_run_that_did_not_pause_cannot_go_on(self, snapshot: Callable[..., None]) -> None:
        done = script(LOOK)
        done.run("Go.")
        with pytest.raises(ConfigError) as caught:
            done.resume({})
        snapshot(caught.value)


LIMITED = Limits(turns=2)


def looks(count: int) -> list[Line]:
    return [call("look", at=str(n)) for n in range(count)]


class TestMore:
    def test_a_run_that_meets_a_limit_asks_for_more_and_goes_on(self, snapshot: Callable[..., None]) -> None:
        more = script(*looks(4), limits=LIMITED, on_exhausted="ask", verdicts=[extend(5)])
        result = assert_honest(more.run("Go."))
        assert (result.stop, result.turns, result.flags) == ("completed", 5, ("max_agent_iterations_reached",))
        [question] = [effect.question for effect in more.effects if isinstance(effect, Decide)]
        assert question == Question("turns-2", question.text, About.LIMIT, budget="turns", amount=2)
        snapshot(question.text)
        [extended] = [event for event in result.events if isinstance(event, Extended)]
        assert (extended.budget, extended.amount, extended.by) == ("turns", 5, "person")

    def test_a_plain_yes_gives_what_the_question_names(self) -> None:
        result = run(*looks(5), limits=LIMITED, on_exhausted="ask", verdicts=[allow(), Verdict(True)])
        assert (result.stop, result.turns) == ("completed", 6)

    @pytest.mark.parametrize("no", [deny("Enough."), extend(0.5)], ids=str)
    def test_a_no_and_what_no_turn_can_be_lead_to_the_report(self, no: Verdict) -> None:
        result = run(*looks(4), limits=LIMITED, on_exhausted="ask", verdicts=[no])
        assert (result.stop, result.text, result.turns) == ("budget", "I report.", 2)

    def test_never_above_what_the_registry_allows(self) -> None:
        settings = {"clamp.max_iterations": 3}
        result = run(*looks(9), limits=LIMITED, on_exhausted="ask", verdicts=[extend(50)] * 9, settings=settings)
        assert (result.stop, result.turns) == ("budget", 3)

    def test_more_time_is_asked_for_in_seconds(self, snapshot: Callable[..., None]) -> None:
        model = ScriptedModel(call("look").after(50), call("look", at="2").after(50), say("ok").after(5))
        agent = Agent(model=model, tools=Desk().tools(), limits=Limits(seconds=60), on_exhausted="ask")
        late = ScriptDriver(agent, verdicts=[extend(100)])
        result = assert_honest(late.run("Go."))
        [asked] = [event for event in result.events if isinstance(event, AskedPerson)]
        snapshot(asked.text)
        assert [event.seconds for event in result.events if isinstance(event, Postponed)] == [100]
        assert result.stop == "completed"

    def test_tool_calls_may_be_extended_too(self) -> None:
        result = run(*looks(4), limits=Limits(tool_calls=2), on_exhausted="ask", verdicts=[extend(9)])
        assert (result.stop, len(result.tool_results)) == ("completed", 4)

    def test_without_an_answer_it_pauses_and_goes_on_from_there(self) -> None:
        desk = Desk()
        more = script(*looks(4), desk=desk, limits=LIMITED, on_exhausted="ask")
        first = assert_honest(more.run("Go."))
        assert (first.stop, len(desk.done)) == ("paused", 2)
        assert "(2)" in str(first.warning)
        result = assert_honest(more.resume({"turns-2": extend(9)}))
        assert (result.stop, desk.done) == ("completed", [f"look {n}" for n in range(4)])

    def test_a_time_of_day_is_not_for_sale(self) -> None:
        result = run(*looks(4), on_exhausted="ask", signals={1: [TimeUp()]}, verdicts=[extend(9)])
        assert result.stop == "deadline"
        assert not [event for event in result.events if isinstance(event, AskedPerson)]

    def test_what_others_share_cannot_be_given_by_this_runs_person_for_ever(self) -> None:
        with Limits(turns=2).open() as shared:
            more = script(*looks(9), on_exhausted="ask", verdicts=[extend(1)] * 99)
            result = assert_honest(more.run("Go.", within=shared))
        assert (result.stop, result.turns) == ("budget", 2)


SAYS = st.sampled_from([allow(), deny("no"), Verdict(None), edit(path="z")])
ASKS = st.lists(
    st.sampled_from([LOOK, DELETE, call("delete", path="b"), call("delete", pth=1)]), min_size=1, max_size=5
)
LETTERS = st.dictionaries(st.integers(0, 12), st.sampled_from([Cancel(), TimeUp(), Steer("x")]), max_size=2)


@given(st.lists(ASKS, min_size=1, max_size=4), st.lists(SAYS, max_size=12), LETTERS, st.booleans())
def test_nothing_is_made_before_its_approval_on_any_path(
    batches: list[list[Line]], says: list[Verdict], letters: Mapping[int, Any], shared: bool
) -> None:
    desk = Desk()
    signals = {at: [letter] for at, letter in letters.items()}
    played = script(*[together(*batch) for batch in batches], desk=desk, verdicts=list(says), signals=signals)
    with Limits(turns=50, tool_calls=6).open() as envelope:
        result = assert_honest(played.run("Go.", **({"within": envelope} if shared else {})))
        while result.stop == "paused":
            answers = {
                question.id: says[0] if says and says[0].approved is not None else False
                for question in result.questions
            }
            result = assert_honest(played.resume(answers))
    approved: dict[str, Verdict] = {}
    made = 0
    for effect, answer in zip(played.effects, played.answers, strict=True):
        if isinstance(effect, Decide):
            approved[effect.question.id] = answer.value
        if isinstance(effect, Act):
            for act in effect.acts:
                if act.call.name == "delete":
                    made += 1
                    assert approved[act.call.id].approved is True
    assert sum(one.startswith("delete") for one in desk.done) == made
