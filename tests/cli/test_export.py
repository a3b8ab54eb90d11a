"""`flyball export`: a run as JSON lines and as a page, with its children, and as far as it came."""

import json
import re
import subprocess
from collections.abc import Callable
from typing import Any

from flyball import Agent, Limits, Result, tool
from flyball.testing import Line, ManualClock, ScriptedModel, call, say

Typed = Callable[..., subprocess.CompletedProcess[str]]


@tool(effects="read", poll=True, sensitive=("key",))
def look(path: str, key: str = "") -> str:
    """Look."""
    return f"{path} is fine,\nand `clean`" if path == "b" else f"{path} is fine"


def ran(*lines: Line, task: Any = "See to the boiler.", **options: Any) -> Result:
    model = ScriptedModel(*lines, grace=say("I looked."))
    return Agent(model=model, tools=[look], clock=ManualClock(), **options).run(task, run_id="aaaa1111")


def tree() -> Result:
    looks = ScriptedModel.looping(call("look", path="a"), grace=say("All is dusty."))
    finder = Agent(name="finder", model=looks, tools=[look], limits=Limits(turns=1), clock=ManualClock())
    tasks = [{"child": "finder", "goal": "Look around."}]
    return ran(call("delegate", tasks=tasks), say("Dust."), children=[finder], name="chief")


def test_a_page_reads_like_the_conversation_and_nothing_in_it_is_markup(
    typed: Typed, stock: Any, snapshot: Callable[..., None]
) -> None:
    lines = [call("look", path="a", key="secret"), call("look", path="b"), say("All is well.")]
    stock.keep(ran(*lines, task="See to *the* boiler."))
    done = typed("export", "aaaa")
    assert (done.returncode, done.stderr) == (0, "")
    assert "> See to \\*the\\* boiler." in done.stdout
    assert "```text\nb is fine,\nand `clean`\n```" in done.stdout
    assert "secret" not in done.stdout
    snapshot("\n".join(line.rstrip() for line in done.stdout.splitlines()))


def lines_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_lines_have_the_start_what_was_said_what_happened_and_the_end(typed: Typed, stock: Any) -> None:
    result = ran(call("look", path="a", key="secret"), say("All is well."))
    stock.keep(result, session="boiler")
    lines = lines_of(typed("export", "aaaa", "--format=jsonl"))
    assert [line["line"] for line in lines] == ["run", *["message"] * 4, *["event"] * len(result.events), "end"]
    assert (lines[0]["session"], lines[0]["task"]) == ("boiler", "See to the boiler.")
    assert [line["content"] for line in lines[1:5]] == ["See to the boiler.", "", "a is fine", "All is well."]
    assert [line["seq"] for line in lines[5:-1]] == list(range(len(result.events)))
    assert (lines[-1]["stop"], lines[-1]["text"]) == ("completed", "All is well.")
    assert "secret" not in json.dumps(lines)
    assert {line["run_id"] for line in lines} == {"aaaa1111"}


def test_the_runs_below_come_behind_it_and_the_page_draws_them(typed: Typed, stock: Any) -> None:
    result = tree()
    stock.keep(result)
    [child] = result.children
    lines = lines_of(typed("export", "aaaa", "--format=jsonl"))
    assert [line["run_id"] for line in lines if line["line"] == "end"] == ["aaaa1111", child.run_id]
    page = typed("export", "aaaa").stdout
    assert "| finder 1 | 1 of 1 | 30 | ? | 0.0 s | budget: " in page
    assert page.index("# See to the boiler.") < page.index("## finder 1: Look around.")
    assert page.count("**Agent**") == 2
    names = [line.split()[0] for line in typed("runs", "--children").stdout.splitlines()[1:]]
    assert names == [child.run_id, "aaaa1111"]
    assert typed("why", "aaaa1111.").stdout == typed("why", child.run_id).stdout
    assert typed("why", child.run_id).stdout.splitlines()[0] == " budget  Look around."


def test_a_killed_run_is_exported_as_far_as_it_came(typed: Typed, stock: Any) -> None:
    stock.keep(ran(call("look", path="a", key="secret"), say("Fine.")), killed=(5, 2))
    lines = lines_of(typed("export", "aaaa", "--format=jsonl"))
    assert [line["line"] for line in lines] == ["run", *["message"] * 2, *["event"] * 5, "end"]
    assert lines[-1]["stop"] is None
    assert lines[-1]["explanation"]
    page = typed("export", "aaaa").stdout
    assert page.splitlines()[2].startswith("**")
    assert '**Call** `look` `{"path": "a", "key": "***"}`' in page
    assert "secret" not in page + json.dumps(lines)


def test_a_parent_that_was_killed_has_the_children_that_had_ended(typed: Typed, stock: Any) -> None:
    stock.keep(tree(), killed=(6, 2))
    shown = " ".join(typed("why", "aaaa").stdout.split())
    assert "chief 1 of 90 15 ? 0.0 s" in shown
    assert "finder 1 1 of 1 30 ? 0.0 s budget: " in shown


def test_what_was_said_before_in_the_session_is_only_counted(typed: Typed, stock: Any) -> None:
    before = ran(say("All is well.")).messages
    agent = Agent(model=ScriptedModel(say("Still.")), clock=ManualClock())
    result = agent.run([*before, {"role": "user", "content": "And now?"}], run_id="bbbb2222")
    messages = [*before, *(one for one in result.messages if one.run == "bbbb2222")]
    stock.keep(result)
    page = typed("export", "bbbb").stdout
    assert len(messages) == len(result.messages) == 4
    assert page.splitlines()[0] == "# And now?"
    assert re.search(r"^2 earlier messages", page, re.MULTILINE)
    assert page.count("All is well.") == 0


def test_the_journal_is_only_for_programs(typed: Typed, stock: Any) -> None:
    stock.keep(ran(say("Fine.")))
    refused = typed("export", "aaaa", "--journal")
    assert (refused.returncode, "--format jsonl" in refused.stderr) == (2, True)
    wrong = typed("export", "aaaa", "--format=pdf")
    assert (wrong.returncode, "found 'pdf'; expected jsonl or md" in wrong.stderr) == (2, True)
