from flyball import Agent
from flyball.event import Header, TurnEnded
from flyball.loop.effects import Answer
from flyball.outcome import Success
from flyball.runtime.journal import PendingStep
from flyball.store import Kind, MemoryStore, Step
from flyball.testing import ScriptedModel, say


def keep(store: MemoryStore, step: Step | None) -> None:
    if step is not None:
        store.keep(step)


def ledger(store: MemoryStore) -> PendingStep:
    ledger = PendingStep(is_child=True)
    ledger.plan = Agent(model=ScriptedModel(say("x"))).plan("go", run_id="run")
    ledger.add_started(0, 1, '{"events":0}', ())
    keep(store, ledger.build(None))
    return ledger


def kinds(store: MemoryStore) -> list[Kind]:
    return [row.kind for row in store.journal.read("run")]


def test_outcomes_are_kept_while_their_batch_is_under_way() -> None:
    store = MemoryStore()
    book = ledger(store)
    book.add_outcome(0, "call-0", Success(call_id="call-0", tool="add", content="3"))
    keep(store, book.build_outcomes(None))
    keep(store, book.build_outcomes(None))
    assert kinds(store) == [Kind.RUN, Kind.STARTED, Kind.OUTCOME]


def test_what_is_told_behind_an_answer_is_kept_with_the_next_beginning_and_not_before() -> None:
    """Else a run that is killed in between would not know which of its events are in the store, and tell them twice."""
    store = MemoryStore()
    book = ledger(store)
    book.add_outcome(0, "call-0", Success(call_id="call-0", tool="add", content="3"))
    book.add_answer(0, 1, Answer((), 0.5))
    keep(store, book.build_outcomes(None))
    assert (kinds(store), store.runs.events("run")) == ([Kind.RUN, Kind.STARTED], [])
    book.add_started(1, 2, '{"events":1}', ())
    keep(store, book.build(None, events=[TurnEnded(0, 0.5, 1, Header("run")).to_dict()]))
    assert kinds(store) == [Kind.RUN, Kind.STARTED, Kind.OUTCOME, Kind.ANSWER, Kind.STARTED]
    assert [event["event"] for event in store.runs.events("run")] == ["turn_ended"]
