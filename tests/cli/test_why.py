"""`flyball why`: the screen of runs of every kind, the same in Markdown, and records that somebody has damaged."""

import json
import subprocess
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from flyball import Agent, Limits, tool
from flyball.cli.page import markdown_of
from flyball.cli.record import Record
from flyball.cli.screen import drawn
from flyball.errors import Retryable
from flyball.limits import Reserve
from flyball.person import extend
from flyball.steadiness import Reflection
from flyball.testing import Line, ManualClock, ScriptedModel, call, fail, say, together

Typed = Callable[..., subprocess.CompletedProcess[str]]


@tool(effects="read", poll=True)
def look(path: str) -> str:
    """Look."""
    return "forty lines about steam, of which this is the first" if path == "a" else f"{path} is fine"


@tool
def break_down(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"{what} is broken")


@tool(approve=True)
def launch() -> str:
    """Launch."""
    return "gone"


def record_of(*lines: Line, task: str = "See to the boiler.", **options: Any) -> dict[str, Any]:
    """The record of a run whose clock stands still."""
    model = ScriptedModel(*lines, grace=say("I looked at a.\nThe rest is open."), reflection=say("I go in circles."))
    options = {"limits": Limits(turns=3, tokens=9_000, seconds=100), **options}
    agent = Agent(model=model, tools=[look, break_down, launch], clock=ManualClock(), **options)
    return json.loads(json.dumps(agent.run(task).to_dict()))


def screen(record: object, width: int = 80) -> list[str]:
    console = Console(width=width, file=StringIO(), color_system=None, highlight=False, markup=False, emoji=False)
    return drawn(Record.of(record), console).splitlines()


def timeline(record: object) -> list[str]:
    """The lines between the head and the bars, without what was used."""
    lines = screen(record, 120)
    return [line[11:68].rstrip() for line in lines[4 : lines.index("", 4)]]


def end(record: object) -> list[str]:
    lines = screen(record, 120)
    return lines[lines.index("", lines.index("", 4) + 1) + 1 :]


SCREEN = """\
 budget  See to the boiler.
scripted · 3 turns, 4 requests, 4 calls · 0.0 s · 2023-11-14 22:13 UTC

turn   at  what                                                    tokens   took
   1  0.0  scripted wants 2 calls                                      15  0.0 s
      0.0    look(path='a') done: forty lines about steam, of wh…          0.0 s
      0.0    break_down(what='the valve') failed: RuntimeError:            0.0 s
             the valve is broken
   2  0.0  scripted wants 1 call                                       15  0.0 s
      0.0    look(path='b') done: b is fine                                0.0 s
   3  0.0    notice This is the last turn (3 of 3): give your
             answer now, or say what is missing.
      0.0  scripted wants 1 call                                       15  0.0 s
      0.0    look(path='c') done: c is fine                                0.0 s
      0.0    refused max_agent_iterations_reached
      0.0    grace one last request, without tools, from what was
             set aside
      0.0  scripted reports                                            15  0.0 s

       turns ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 3 of 3
      tokens ──────────────────────────────── 60 of 9,000
     seconds ──────────────────────────────── 0 s of 85 s

report
  I looked at a.
  The rest is open.
why it ended
  It met a limit: Maximum agent iterations (3) reached. It used 3 of 3 turns, 4
  tool calls, 60 of 9,000 tokens in 0 s. A higher limit would let it go on.
what would let it go on
  --turns 6"""
RUNAWAY = (
    together(call("look", path="a"), call("break_down", what="the valve")),
    call("look", path="b"),
    call("look", path="c"),
)


def test_a_run_that_met_a_limit_fits_a_terminal_of_80_columns() -> None:
    shown = screen(record_of(*RUNAWAY))
    assert max(map(len, shown)) <= 80
    assert "\n".join(shown) == SCREEN


def test_a_wide_terminal_also_shows_when_each_thing_happened() -> None:
    record = record_of(*RUNAWAY)
    for n, event in enumerate(record["events"]):
        event["at"] = n / 10
    record["seconds"] = len(record["events"]) / 10
    tracks = [line[104:] for line in screen(record, 120)[4:]]
    assert "━━━━━━━━━━━━━━━━"[:1] in tracks[0]
    assert len({len(track) - len(track.lstrip()) for track in tracks[:9]}) > 4
    assert max(map(len, screen(record, 120))) <= 120


def test_where_there_is_only_ascii_nothing_else_is_drawn() -> None:
    lines = drawn(Record.of(record_of(*RUNAWAY)), _Ascii(width=100, file=StringIO(), color_system=None)).splitlines()
    assert "       turns ################################ 3 of 3" in lines


class _Ascii(Console):
    @property
    def encoding(self) -> str:
        return "ascii"


def test_a_completed_run_has_an_answer_and_needs_nothing() -> None:
    record = record_of(call("look", path="b"), say("All is well."))
    assert timeline(record) == [
        "scripted wants 1 call",
        "  look(path='b') done: b is fine",
        "scripted answers",
    ]
    assert end(record)[:3] == ["answer", "  All is well.", "why it ended"]
    assert "what would let it go on" not in end(record)


def test_a_failed_run_shows_its_retries_its_error_and_the_refund() -> None:
    lines = [fail(Retryable("busy")), fail(Retryable("busy"))]
    record = record_of(*lines, limits=Limits(retries=1, seconds=100))
    shown = timeline(record)
    assert shown[0] == "scripted failed: busy"
    assert shown[1].startswith("  again after ")
    assert shown[2:] == [
        "scripted failed: busy",
        "  refused max_retries_reached",
        "  refund 1 of turns: round_never_started",
    ]
    assert "  It failed (busy)." in "\n".join(end(record))
    assert end(record)[-2:] == [
        "  FLYBALL_MAX_RETRIES=2 in the environment",
        "  the error mended, and the same command again",
    ]


def test_a_paused_run_shows_what_it_waits_for() -> None:
    record = record_of(call("launch"))
    assert timeline(record)[1:3] == ["  asked May launch be called with {}?", "  answered not yet"]
    assert "it waits for an answer" in end(record)
    assert end(record)[-1] == "  a terminal, on which you are asked, or --yes"


def test_a_cancelled_run_says_so() -> None:
    record = record_of(say("late"), limits=Limits(seconds=100))
    record = changed(record, stop="cancelled", text="", explanation="It was cancelled.")
    assert end(record) == [
        "report", "  nothing was said", "why it ended", "  It was cancelled.", "what would let it go on",
        "  the same command again",
    ]  # fmt: skip


def test_nudges_reflections_and_extensions_are_told() -> None:
    def more(_: object) -> Any:
        return extend(2)

    record = record_of(
        *[call("look", path=path) for path in "abcde"],
        say("no number"),
        say("7"),
        reflection=Reflection(every=2),
        approver=more,
        on_exhausted="ask",
        output=int,
        limits=Limits(turns=5, seconds=100),
    )
    shown = "\n".join(timeline(record))
    assert "  reflection I go in circles." in shown
    assert "scripted looks back" in shown
    assert "  extended turns by 2 (" in shown
    assert "  nudge The answer does not have the form that was" in shown
    assert record["stop"] == "completed"


def test_calls_side_by_side_and_calls_that_were_not_made_have_a_line_each() -> None:
    batch = together(call("look", path="d"), call("look", path="e"), call("look", paht="f"))
    record = record_of(batch, say("Done."), limits=Limits(tool_calls=2, seconds=100))
    assert timeline(record)[1:3] == [
        "  look(path='d') done: d is fine",
        "  look(path='e') done: e is fine",
    ]
    assert "  look(paht='f') denied (validation): " in "\n".join(timeline(record))


def test_of_a_long_run_the_first_and_the_last_lines_are_shown_and_all_on_demand(typed: Typed, tmp_path: Path) -> None:
    record = record_of(*[call("look", path=str(n)) for n in range(40)], limits=Limits(turns=40, seconds=100))
    (tmp_path / "long.json").write_text(json.dumps(record))
    short, whole = typed("why", "long.json").stdout, typed("why", "long.json", "--all").stdout
    assert "more 49 lines, turns 7 to 30, of which 0 failed;" in " ".join(short.split())
    assert ("look(path='12')" in short, "look(path='12')" in whole) == (False, True)
    assert "look(path='39')" in short
    assert "more " not in whole


def test_a_record_comes_from_a_file_or_from_standard_input_or_is_the_last_one(typed: Typed, tmp_path: Path) -> None:
    text = json.dumps(record_of(*RUNAWAY))
    (tmp_path / "saved.json").write_text(text)
    (tmp_path / "answer.toml").write_text('[[reply]]\ntext = "Here."\n')
    saved = typed("why", "saved.json")
    assert (saved.returncode, saved.stderr) == (0, "")
    assert saved.stdout == typed("why", "-", stdin=text).stdout
    run = typed("run", "Another.", "--model=script:answer.toml", "--json")
    last = typed("why").stdout
    assert last.splitlines()[0] == " completed  Another."
    assert last == typed("why", "-", stdin=run.stdout).stdout


def test_markdown_has_the_same_and_nothing_in_it_is_markup(typed: Typed) -> None:
    record = record_of(*RUNAWAY, task="Mind | `this` <b>and</b>\n# that")
    page = typed("why", "-", "--markdown", stdin=json.dumps(record)).stdout
    lines = page.splitlines()
    assert lines[0] == "### Mind \\| \\`this\\` \\<b\\>and\\</b\\> \\# that"
    assert lines[2].startswith("**budget** · scripted · 3 turns, 4 requests")
    assert "| 1 | 0.0 | scripted: wants 2 calls | 15 | 0.0 s |" in lines
    assert "|  | 0.0 | refused: max\\_agent\\_iterations\\_reached |  |  |" in lines
    assert "| turns | 3 of 3 |" in lines
    assert lines[-1] == "> --turns 6"
    rows = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {6, 3}


def changed(record: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return record | fields


def hinted(record: dict[str, Any]) -> Sequence[str]:
    lines = end(record)
    return lines[lines.index("what would let it go on") + 1 :]


def test_what_would_let_it_go_on_is_what_one_can_type() -> None:
    calls = record_of(*RUNAWAY, limits=Limits(tool_calls=1, seconds=100))
    assert hinted(calls) == ["  --tool-calls 2"]
    top = record_of(*[call("look", path=str(n)) for n in range(3)], limits=Limits(turns=3))
    top["budgets"]["turns"]["maximum"] = 4
    assert hinted(top) == ["  --turns 4"]
    top["budgets"]["turns"]["maximum"] = 3
    assert hinted(top) == ["  turns: 3 is the most that is allowed"]
    tokens = record_of(*RUNAWAY, limits=Limits(tokens=40, seconds=100, reserve=Reserve(tokens=0)))
    assert hinted(tokens) == ["  --tokens 80"]
    late = changed(calls, stop="deadline", flags=["max_seconds_reached"], seconds=31.0)
    assert hinted(late) == ["  --seconds 62 or more"]
    halted = changed(calls, stop="halted", flags=[], stopped_by="my-rule")
    assert hinted(halted) == ["  a look at my-rule, which halted it: flyball rules list"]
    unfinished = changed(calls, stop="unfinished", flags=[], completion={"missing": ["look", "tidy"]})
    assert hinted(unfinished) == ["  what is missing: look, tidy"]


def test_events_that_the_record_does_not_have_are_missed() -> None:
    record = record_of(*RUNAWAY, events_kept=9)
    assert end(record)[-2] == "not shown"
    assert end(record)[-1].endswith(" events, which the record does not have")


WHOLE = record_of(*RUNAWAY) | {"children": [record_of(*RUNAWAY), record_of(say("All is well."))]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_record_is_shown_as_far_as_it_goes_or_refused(data: st.DataObject) -> None:
    record: Any = json.loads(json.dumps(WHOLE))
    for _ in range(data.draw(st.integers(1, 4))):
        node: Any = record
        while isinstance(node, dict | list) and node:
            key: Any = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))  # pyright: ignore[reportUnknownArgumentType]
            if data.draw(st.booleans()) or not isinstance(node[key], dict | list):
                node[key] = data.draw(JSON)
                break
            node = node[key]  # pyright: ignore[reportUnknownVariableType]
    try:
        read = Record.of(record)
    except ValueError:
        return
    assert drawn(read, Console(width=80, file=StringIO()))
    assert markdown_of(read)


@pytest.mark.parametrize(
    "event", [{}, {"event": 5}, {"event": "tool_ended"}, {"event": "model_replied"}, {"event": "__init__"}]
)
def test_events_that_say_next_to_nothing_do_not_hide_the_rest(event: dict[str, Any]) -> None:
    record = WHOLE | {"events": [event, *WHOLE["events"]]}
    assert "  refused max_agent_iterations_reached" in timeline(record)
