"""Runs that an earlier version stored: every later version reads them, and resumes them or says why it cannot."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, __version__
from flyball.errors import ResumeError
from flyball.runtime.history import JOURNAL_CODEC
from flyball.store import Kind, SqliteStore

Flyball = Callable[..., str]
FILES = sorted(Path(__file__).parent.glob("runs-*.db"))


def load_agents() -> Any:
    spec = spec_from_file_location("compatibility_agents", Path(__file__).with_name("agents.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


AGENTS = load_agents()


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    copy = tmp_path / "runs.db"
    shutil.copy(request.param, copy)
    return copy


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with SqliteStore(path) as opened:
        yield opened


@pytest.fixture
def flyball(path: Path, typed: Callable[..., Any]) -> Callable[..., str]:
    """Run a command on the file and return what it printed."""

    def run(*arguments: str) -> str:
        done = typed(*arguments, "--store", f"sqlite:///{path}")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


def agent_for(run_id: str, store: SqliteStore) -> Agent:
    return AGENTS.agent_for(run_id, store)


def test_runs_lists_every_stored_run_with_its_end(flyball: Flyball) -> None:
    rows = json.loads(flyball("runs", "--json"))["runs"]
    assert {row["run_id"]: row["stop"] for row in rows} == {**AGENTS.ENDS, "killed": None}


@pytest.mark.parametrize("run_id", AGENTS.LINES)
def test_why_explains_every_stored_run(run_id: str, flyball: Flyball) -> None:
    printed = flyball("why", run_id)
    assert f"Do {run_id}." in printed
    assert AGENTS.ENDS.get(run_id, "interrupted") in printed


@pytest.mark.parametrize("kind", ["jsonl", "md"])
@pytest.mark.parametrize("run_id", AGENTS.LINES)
def test_export_writes_every_stored_run(run_id: str, kind: str, flyball: Flyball) -> None:
    assert f"Do {run_id}." in flyball("export", run_id, "--format", kind)


def test_prune_throws_every_stored_run_away(flyball: Flyball) -> None:
    flyball("prune", "--older-than", "0s", "--yes")
    assert json.loads(flyball("runs", "--json"))["runs"] == []


def test_a_stored_run_that_was_killed_is_resumed(store: SqliteStore) -> None:
    result = agent_for("killed", store).resume("killed")
    assert (result.stop, result.text) == ("completed", "It is four.")
    assert [child.stop for child in result.children] == ["completed", "completed"]
    assert result.budgets["turns"].used == 5


def test_a_stored_run_that_was_paused_is_resumed_with_its_answer(store: SqliteStore) -> None:
    entry = store.runs.get("paused")
    assert entry is not None
    assert entry.finish is not None
    [question] = (entry.finish.record or {})["questions"]
    result = agent_for("paused", store).resume("paused", {question["id"]: True})
    assert (result.stop, result.text) == ("completed", "It is erased.")


def test_a_stored_run_that_met_its_limit_is_extended(store: SqliteStore) -> None:
    result = agent_for("limited", store).resume("limited", extend={"turns": 5})
    assert (result.stop, result.text) == ("completed", "It is six.")


def test_a_stored_session_is_continued(store: SqliteStore) -> None:
    before = len(store.transcript.read("talk"))
    result = agent_for("talk-1", store).run("And now?", session="talk")
    assert result.stop == "completed"
    assert len(store.transcript.read("talk")) > before


def test_journals_keep_their_names() -> None:
    """Names that a journal has are stored data. One may be added; one that is gone makes old journals unreadable."""
    names = json.loads(Path(__file__).with_name("journal-1.json").read_text())
    missing = {name: sorted(set(keys) - set(JOURNAL_CODEC.keys(name))) for name, keys in names.items()}
    assert {name: keys for name, keys in missing.items() if keys} == {}


def test_a_journal_of_a_newer_format_is_refused_with_both_versions(store: SqliteStore) -> None:
    [first] = [row for row in store.journal.read("killed") if row.kind is Kind.RUN]
    newer = json.dumps({**json.loads(first.data), "format": 99, "version": "9.9.9"})
    store.write(lambda connection: connection.execute("UPDATE trace SET data = ? WHERE data = ?", (newer, first.data)))
    with pytest.raises(ResumeError, match=r"format 99.*9\.9\.9.*format 1"):
        agent_for("killed", store).resume("killed")


def test_a_run_that_decides_otherwise_today_is_refused_with_both_versions(store: SqliteStore) -> None:
    [first] = [row for row in store.journal.read("killed") if row.kind is Kind.RUN]
    older = json.dumps({**json.loads(first.data), "version": "0.0.1"})
    store.write(lambda connection: connection.execute("UPDATE trace SET data = ? WHERE data = ?", (older, first.data)))
    changed = replace(agent_for("killed", store), tools=[])
    with pytest.raises(ResumeError, match=rf"0\.0\.1.*{re.escape(str(__version__))}"):
        changed.resume("killed")
