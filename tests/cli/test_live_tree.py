"""The tree of a run that goes on: who stands under whom, what each does, and who is left out where there is no room."""

import re
from typing import Any

from flyball import event as events
from flyball.cli.live import RunTree
from flyball.display.timeline import Severity
from flyball.event import Event, Header


class Story:
    """Tells a tree what happens in its runs; `a.b` is a child of `a`."""

    def __init__(self) -> None:
        self.tree = RunTree()
        self.tell(events.RunStarted, "a", limits={"steps_max": 9}, agent="editor")

    def tell(self, kind: type[Event], run: str, turn: int = 1, at: float = 1.0, **fields: Any) -> None:
        header = Header(run, parent_run_id=run.rpartition(".")[0] or None)
        self.tree.update(kind(seq=0, at=at, turn=turn, header=header, **fields))

    def announce(self, child: str, agent: str) -> None:
        self.tell(events.ChildStarted, child.rpartition(".")[0], child_id=child, agent=agent)

    def begin(self, child: str, agent: str, turns: int = 5) -> None:
        self.announce(child, agent)
        self.tell(events.RunStarted, child, 0, 0.0, limits={"steps_max": turns}, agent=agent)

    def end(self, child: str, stop: str, turns: int) -> None:
        fields: dict[str, Any] = {"stopped_by": None, "flags": (), "requests": turns, "budgets": {}}
        self.tell(events.RunEnded, child, turns, 2.0, stop=stop, turns=turns, **fields)

    def ask(self, run: str, purpose: str = "turn") -> None:
        fields: dict[str, Any] = {
            "messages": 1,
            "estimated_tokens": 1,
            "tools": (),
            "attempt": 1,
            "size": 1,
            "timeout_s": None,
        }
        self.tell(events.ModelRequested, run, purpose=purpose, model="gpt", provider=None, **fields)

    def reply(self, run: str, tokens: int) -> None:
        fields: dict[str, Any] = {
            "error": None,
            "code": None,
            "cached_tokens": 0,
            "reasoning_tokens": 0,
            "estimated": False,
        }
        self.tell(
            events.ModelReplied,
            run,
            purpose="turn",
            finish="stop",
            input_tokens=tokens,
            output_tokens=1,
            calls=0,
            **fields,
        )

    def lines(self, room: int = 40, ascii_only: bool = False) -> list[str]:
        """Without seconds, which go on."""
        return [line for line, _ in self.tree.iter_lines(room, ascii_only)]


def test_a_run_without_children_has_no_tree() -> None:
    assert Story().lines() == []


def test_children_stand_under_their_parents_in_the_order_in_which_they_were_announced() -> None:
    story = Story()
    story.announce("a.1", "finder")
    story.announce("a.2", "finder")
    story.begin("a.2.1", "reader")
    story.announce("a.1.1", "reader")
    assert [line.partition(":")[0] for line in story.lines()] == [
        "├─ finder 1",
        "│  └─ reader 1.1",
        "└─ finder 2",
        "   └─ reader 2.1",
    ]
    assert [line.partition(":")[0] for line in story.lines(ascii_only=True)] == [
        "|- finder 1",
        "|  `- reader 1.1",
        "`- finder 2",
        "   `- reader 2.1",
    ]


def test_a_child_waits_then_works_then_has_its_end() -> None:
    story = Story()
    story.announce("a.1", "finder")
    assert story.lines() == ["└─ finder 1: waits"]
    story.begin("a.1", "finder")
    story.ask("a.1")
    assert story.lines()[0].startswith("└─ finder 1: turn 1 of 5, 0 tokens, ")
    assert story.lines()[0].endswith(" s: asks gpt")
    story.reply("a.1", 44)
    story.tell(events.ToolStarted, "a.1", call_id="c", tool="look", arguments={"path": "x\ny"})
    assert story.lines()[0].startswith("└─ finder 1: turn 1 of 5, 45 tokens, ")
    assert story.lines()[0].endswith(" s: look(path='x\\ny')")
    story.end("a.1", "budget", 5)
    [(line, mark)] = story.tree.iter_lines(9)
    assert (line, mark) == ("└─ finder 1: budget, 5 of 5 turns, 45 tokens, 2.0 s", Severity.WARN)


def test_what_a_child_does_is_its_own_and_not_that_of_the_run_at_the_top() -> None:
    story = Story()
    story.begin("a.1", "finder")
    story.tell(events.ToolStarted, "a", 3, call_id="same", tool="count", arguments={})
    story.tell(events.ToolStarted, "a.1", 1, call_id="same", tool="look", arguments={})
    story.tell(events.ToolEnded, "a.1", 1, call_id="same", tool="look", status="done", reason=None, seconds=1.0)
    assert (story.tree.top.turn, story.tree.top.activity) == (3, "count()")
    story.announce("a.2", "finder")
    assert story.tree.top.activity != "count()"


def test_the_words_of_a_child_are_heard_as_they_come() -> None:
    story = Story()
    story.begin("a.1", "finder")
    story.ask("a.1")
    for word in ("A ", "ball\n", "is \x1b[2Jround."):
        story.tell(events.Delta, "a.1", text=word)
    assert story.lines()[0].endswith("s: …A ball is \\x1b[2Jround.")
    story.ask("a.1", "grace")
    assert story.lines()[0].endswith("s: asks for the report: gpt")
    assert story.tree.top.reply_tail == ""


def test_a_child_that_nobody_announced_is_shown_under_its_parent_and_an_orphan_under_the_top() -> None:
    story = Story()
    story.tell(events.RunStarted, "a.1", limits={}, agent="finder")
    story.tell(events.RunStarted, "a.1.1", limits={}, agent="reader")
    story.tell(events.RunStarted, "nobody.1", limits={}, agent=None)
    first, below, second = story.lines()
    assert first.startswith("├─ finder 1: turn 1, 0 tokens")
    assert below.startswith("│  └─ reader 1.1: turn 1, 0 tokens")
    assert second.startswith("└─ child 2: turn 1, 0 tokens")


def test_where_there_is_no_room_those_that_go_on_are_shown_and_the_others_counted() -> None:
    story = Story()
    for n in range(1, 4):
        story.begin(f"a.{n}", "done")
        story.end(f"a.{n}", "completed", 1)
    story.begin("a.4", "cut")
    story.end("a.4", "budget", 5)
    story.begin("a.5", "busy")
    story.begin("a.5.1", "busy")
    story.announce("a.6", "late")
    lines = story.lines(room=4)
    assert [line.partition(":")[0] for line in lines[:-1]] == ["├─ busy 5", "│  └─ busy 5.1", "└─ late 6"]
    assert re.fullmatch(r".* 4 .*: 3 completed, 1 budget", lines[-1])
    assert len(story.lines(room=7)) == 7
    assert "completed, " not in story.lines(room=7)[-1]
    assert re.fullmatch(r".* 6 .*: 1 .*, 1 .*, 3 completed, 1 budget", story.lines(room=2)[-1])
