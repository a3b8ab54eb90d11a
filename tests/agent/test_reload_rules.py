"""Rule files that change between the runs of an agent."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, ConfigError
from flyball.rules import RuleSet
from flyball.testing import ScriptedModel, say

RULE = '[rule]\nid = "{0}"\ntrigger = "on_turn_start"\n[action]\ntype = "notify_self"\nmessage = "{1}"\n'


class Place:
    """A folder of rules, and an agent that reloads them."""

    def __init__(self, folder: Path, *, reload_rules: bool = False) -> None:
        self.folder = folder
        self.write("a", "one")
        self.model = ScriptedModel.looping(say("done"))
        self.agent = Agent(model=self.model, rules=folder, reload_rules=reload_rules)

    def write(self, name: str, message: str, text: str = RULE) -> None:
        path = self.folder / f"{name}.toml"
        path.write_text(text.format(name, message))
        stamp = path.stat().st_mtime_ns + 10_000_000
        os.utime(path, ns=(stamp, stamp))

    def run(self) -> tuple[str, ...]:
        self.agent.run("Go.")
        return self.model.requests[-1].notices


def test_a_changed_a_new_and_a_removed_file_count_in_the_next_run(tmp_path: Path) -> None:
    place = Place(tmp_path, reload_rules=True)
    assert place.run() == ("one",)
    place.write("a", "two")
    assert place.run() == ("two",)
    place.write("b", "new")
    assert place.run() == ("two", "new")
    (tmp_path / "a.toml").unlink()
    assert place.run() == ("new",)
    assert [rule.id for rule in place.agent.ruleset if not rule.core] == ["b"]


def test_without_reload_rules_a_changed_file_does_not_count(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("a", "two")
    assert place.run() == ("one",)


@pytest.mark.parametrize(
    "broken", ["[rule", RULE.replace("on_turn_start", "on_turn"), "\0"], ids=["toml", "rule", "nul"]
)
def test_a_file_that_is_broken_keeps_its_last_valid_version_and_says_so(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(tmp_path, reload_rules=True)
    place.write("b", "other")
    assert place.run() == ("one", "other")
    with caplog.at_level(logging.WARNING):
        place.write("a", "two", broken)
        place.write("b", "changed")
        assert place.run() == ("one", "changed")
    assert any("stays in use" in record.getMessage() for record in caplog.records)
    assert any("stays in use" in str(problem) for problem in place.agent.ruleset.problems)
    place.write("a", "three")
    assert place.run() == ("three", "changed")
    assert place.agent.ruleset.problems == ()


def test_a_folder_that_is_gone_keeps_its_rules(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    place = Place(tmp_path / "rules", reload_rules=True)
    (tmp_path / "rules").rename(tmp_path / "moved")
    assert place.run() == ("one",)
    assert place.agent.ruleset.problems != ()


def test_a_changed_rule_that_names_an_unknown_model_is_not_used(tmp_path: Path) -> None:
    place = Place(tmp_path, reload_rules=True)
    place.write("b", "", '[rule]\nid = "b"\ntrigger = "on_turn_start"\n[action]\ntype = "use_model"\nmodel = "none"\n')
    assert place.run() == ("one",)


def test_core_rules_stay_after_a_reload(tmp_path: Path) -> None:
    place = Place(tmp_path, reload_rules=True)
    place.write("a", "two")
    place.run()
    assert {rule.id for rule in RuleSet.core()} < {rule.id for rule in place.agent.ruleset}


@pytest.mark.parametrize(
    "options", [{"rules": RuleSet(), "reload_rules": True}, {"reload_rules": 1}], ids=["set", "int"]
)
def test_only_files_can_be_reloaded(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"agent, (rules|reload_rules)"):
        Agent(model=ScriptedModel(say("x")), **options)
