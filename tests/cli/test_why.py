"""`flyball why`: the screen of runs of every kind, the same in Markdown, and records that somebody has damaged."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai import Agent as FrameworkAgent
from pydantic_ai import ModelResponse, TextPart, Tool, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from rich.console import Console

from flyball import Agent, Limits, tool
from flyball.adapters import AdapterOptions, pydantic_ai
from flyball.budget.limits import Reserve
from flyball.cli.report import render_markdown, render_report
from flyball.errors import Retryable
from flyball.gateway import transport
from flyball.history.record import RunRecord, result_to_dict
from flyball.person import extend
from flyball.steadiness import Reflection
from flyball.store import open_store
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
    """The record of a run whose clock stands still, as `flyball run --json` prints it."""
    model = ScriptedModel(*lines, grace=say("I looked at a.\nThe rest is open."), reflection=say("I go in circles."))
    options = {"limits": Limits(turns=3, tokens=9_000, seconds=100), **options}
    agent = Agent(model=model, tools=[look, break_down, launch], clock=ManualClock(), **options)
    return json.loads(json.dumps(result_to_dict(agent.run(task), stored=False)))


def screen(record: object, width: int = 80) -> list[str]:
    console = Console(width=width, file=StringIO(), color_system=None, highlight=False, markup=False, emoji=False)
    return render_report(RunRecord.from_dict(record), console).splitlines()


def timeline(record: object) -> list[str]:
    """The lines between the head and the bars, without what was used."""
    lines = screen(record, 120)
    return [line[11:68].rstrip() for line in lines[4 : lines.index("", 4)]]


def end(record: object) -> list[str]:
    lines = screen(record, 120)
    return lines[lines.index("", lines.index("", 4) + 1) + 1 :]


RUNAWAY = (
    together(call("look", path="a"), call("break_down", what="the valve")),
    call("look", path="b"),
    call("look", path="c"),
)


def test_a_run_that_met_a_limit_fits_a_terminal_of_80_columns(snapshot: Callable[..., None]) -> None:
    shown = screen(record_of(*RUNAWAY))
    assert max(map(len, shown)) <= 80
    snapshot("\n".join(shown))


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
    lines = render_report(
        RunRecord.from_dict(record_of(*RUNAWAY)), _Ascii(width=100, file=StringIO(), color_system=None)
    ).splitlines()
    assert any("turns ################################ 3" in line for line in lines)


class _Ascii(Console):
    @property
    def encoding(self) -> str:
        return "ascii"


def test_a_completed_run_has_an_answer_and_needs_nothing(snapshot: Callable[..., None]) -> None:
    record = record_of(call("look", path="b"), say("All is well."))
    assert timeline(record)[1] == "  look(path='b') done: b is fine"
    assert end(record)[1] == "  All is well."
    snapshot("\n".join([*timeline(record), *end(record)]))


def test_a_failed_run_shows_its_retries_its_error_and_the_refund(snapshot: Callable[..., None]) -> None:
    lines = [fail(Retryable("busy")), fail(Retryable("busy"))]
    record = record_of(*lines, limits=Limits(retries=1, seconds=100))
    shown = timeline(record)
    assert [line.endswith(": busy") for line in shown] == [True, False, True, False, False]
    assert shown[3] == "  refused max_retries_reached"
    assert shown[4].endswith(": round_never_started")
    assert any("FLYBALL_MAX_RETRIES=2" in line for line in end(record))
    snapshot("\n".join([shown[0], *shown[2:], *end(record)]))


def test_a_paused_run_shows_what_it_waits_for(snapshot: Callable[..., None]) -> None:
    record = record_of(call("launch"))
    assert "launch" in timeline(record)[1]
    assert "--yes" in end(record)[-1]
    snapshot("\n".join([*timeline(record), *end(record)]))


def test_a_cancelled_run_says_so(snapshot: Callable[..., None]) -> None:
    record = record_of(say("late"), limits=Limits(seconds=100))
    record = changed(record, stop="cancelled", text="", explanation="It was cancelled.")
    assert "  It was cancelled." in end(record)
    snapshot("\n".join(end(record)))


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
    assert "  extended turns " in shown
    assert "  nudge " in shown
    assert record["stop"] == "completed"


def test_calls_side_by_side_and_calls_that_were_not_made_have_a_line_each() -> None:
    batch = together(call("look", path="d"), call("look", path="e"), call("look", paht="f"))
    record = record_of(batch, say("Done."), limits=Limits(tool_calls=2, seconds=100))
    assert timeline(record)[1:3] == [
        "  look(path='d') done: d is fine",
        "  look(path='e') done: e is fine",
    ]
    assert "  look(paht='f') denied (validation): " in "\n".join(timeline(record))


def test_a_long_run_is_shown_by_its_first_and_last_lines_and_whole_on_demand(typed: Typed, tmp_path: Path) -> None:
    record = record_of(*[call("look", path=str(n)) for n in range(40)], limits=Limits(turns=40, seconds=100))
    (tmp_path / "long.json").write_text(json.dumps(record))
    short, whole = typed("why", "long.json").stdout, typed("why", "long.json", "--all").stdout
    assert "50 lines" in " ".join(short.split())
    assert ("look(path='12')" in short, "look(path='12')" in whole) == (False, True)
    assert "look(path='39')" in short
    assert "50 lines" not in " ".join(whole.split())


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
    assert any(line.startswith("| 1 | 0.0 | scripted: ") for line in lines)
    assert "|  | 0.0 | refused: max\\_agent\\_iterations\\_reached |  |  |" in lines
    assert "| turns | 3 of 3 |" in lines
    assert lines[-1] == "> the same command with --turns 6"
    rows = [line for line in lines if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {6, 3}


def changed(record: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return record | fields


def hinted(record: dict[str, Any]) -> str:
    """The one thing that would let it go on."""
    heading, hint = end(record)[-2:]
    assert not heading.startswith(" ")
    return hint.strip()


def test_the_hint_of_a_run_that_can_go_on_is_what_one_can_type() -> None:
    calls = record_of(*RUNAWAY, limits=Limits(tool_calls=1, seconds=100))
    assert hinted(calls) == "the same command with --tool-calls 2"
    top = record_of(*[call("look", path=str(n)) for n in range(3)], limits=Limits(turns=3))
    top["budgets"]["turns"]["maximum"] = 4
    assert hinted(top) == "the same command with --turns 4"
    top["budgets"]["turns"]["maximum"] = 3
    assert hinted(top).startswith("turns: 3 ")
    tokens = record_of(*RUNAWAY, limits=Limits(tokens=40, seconds=100, reserve=Reserve(tokens=0)))
    assert hinted(tokens) == "the same command with --tokens 80"
    late = changed(calls, stop="deadline", flags=["max_seconds_reached"], seconds=31.0)
    assert hinted(late).startswith("the same command with --seconds 170")
    halted = changed(calls, stop="halted", flags=[], stopped_by="my-rule")
    assert hinted(halted).endswith(": flyball rules list")
    unfinished = changed(calls, stop="unfinished", flags=[], completion={"missing": ["look", "tidy"]})
    assert hinted(unfinished).endswith(": look, tidy")


def test_the_hint_of_a_run_that_met_a_shared_limit_names_the_shared_budget() -> None:
    with Limits(turns=2).open() as shared:
        result = Agent(model=ScriptedModel(*RUNAWAY, grace=say("So far.")), tools=[look]).run("Go.", within=shared)
    assert hinted(json.loads(json.dumps(result.to_dict()))).startswith("Limits(turns=…) of the shared budget")


def test_the_hint_of_a_programs_own_record_is_what_to_write_there() -> None:
    record = record_of(*RUNAWAY)
    del record["starter"]
    assert hinted(record) == "in its program: Limits(turns=6)"
    assert hinted(changed(record, stop="cancelled", flags=[])) == "run its program again"
    executed = changed(record, starter="command", metadata={"exec_command": "python agent.py"})
    assert hinted(executed) == "the same command with --turns 6", "a program under flyball exec cannot be resumed"


def test_a_stored_run_of_another_framework_has_its_task_and_continues_in_its_program(
    typed: Typed, tmp_path: Path
) -> None:
    def count(messages: object, info: AgentInfo) -> ModelResponse:
        return ModelResponse([ToolCallPart("look", {"path": "a"})] if info.function_tools else [TextPart("So far.")])

    store = f"sqlite:///{tmp_path}/runs.db"
    agent = FrameworkAgent(FunctionModel(count), tools=[Tool(look.function, name="look")])
    options = AdapterOptions(Limits(turns=2), store=store)
    asyncio.run(pydantic_ai.run(agent, "Look for ever.", options=options))
    lines = typed("why", "last", "--store", store).stdout.splitlines()
    assert lines[0] == " budget  Look for ever."
    assert lines[-1] == "  in its program: Limits(turns=4)"


def test_a_stored_run_without_a_task_has_the_name_of_its_agent(typed: Typed, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    with transport(Limits(turns=2), store=store):
        pass
    assert typed("why", "last", "--store", store).stdout.splitlines()[0].endswith("  transport")


def test_a_stored_run_of_a_program_continues_in_that_program(typed: Typed, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    model = ScriptedModel(*RUNAWAY, call("launch"), say("Gone."), grace=say("So far."))
    with open_store(store) as opened:
        agent = Agent(model=model, tools=[look, break_down, launch], limits=Limits(turns=2), store=opened)
        agent.run("See to the boiler.", run_id="boiler")
        shown = typed("why", "boiler", "--store", store).stdout.splitlines()
        assert shown[-1] == '  in its program: agent.resume("boiler", extend={"turns": 2})'
        assert agent.resume("boiler", extend={"turns": 3}).stop == "paused"
        shown = typed("why", "boiler", "--store", store).stdout.splitlines()
        assert shown[-1] == '  in its program: agent.resume("boiler", answers={"call-300": True})'
        assert agent.resume("boiler", answers={"call-300": True}).text == "Gone."


def test_events_that_the_record_does_not_have_are_missed() -> None:
    record = record_of(*RUNAWAY, events_kept=9)
    assert " events" in end(record)[-1]
    assert len(end(record)) > len(end(record_of(*RUNAWAY)))


@cache
def whole() -> dict[str, Any]:
    """The record of a run with children."""
    return record_of(*RUNAWAY) | {"children": [record_of(*RUNAWAY), record_of(say("All is well."))]}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_record_is_shown_as_far_as_it_goes_or_refused(data: st.DataObject) -> None:
    record: Any = json.loads(json.dumps(whole()))
    for _ in range(data.draw(st.integers(1, 4))):
        node: Any = record
        while isinstance(node, dict | list) and node:
            key: Any = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))  # pyright: ignore[reportUnknownArgumentType]
            if data.draw(st.booleans()) or not isinstance(node[key], dict | list):
                node[key] = data.draw(JSON)
                break
            node = node[key]  # pyright: ignore[reportUnknownVariableType]
    try:
        read = RunRecord.from_dict(record)
    except ValueError:
        return
    assert render_report(read, Console(width=80, file=StringIO()))
    assert render_markdown(read)


@pytest.mark.parametrize(
    "event", [{}, {"event": 5}, {"event": "tool_ended"}, {"event": "model_replied"}, {"event": "__init__"}]
)
def test_events_that_say_next_to_nothing_do_not_hide_the_rest(event: dict[str, Any]) -> None:
    record = whole() | {"events": [event, *whole()["events"]]}
    assert "  refused max_agent_iterations_reached" in timeline(record)
