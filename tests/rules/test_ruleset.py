"""Sets of rules: one bad file never stops the others, and nobody switches a core rule off."""

from pathlib import Path

import pytest

from flyball import ConfigError, Settings
from flyball.errors import ConfigErrors
from flyball.rules import RuleSet
from flyball.rules.trial import failures

CORE = {
    "iteration-budget-warning", "last-turn-warning", "token-budget-warning", "cost-budget-warning",
    "deadline-budget-warning", "repeated-failure-warning", "large-result-hint",
}  # fmt: skip


def write(folder: Path, name: str, id_: str, more: str = "") -> Path:
    path = folder / name
    path.write_text(f'[rule]\nid = "{id_}"\ntrigger = "on_turn_start"\n{more}\n[action]\ntype = "log"\nmessage = "x"\n')
    return path


def ids(rules: RuleSet) -> list[str]:
    return [rule.id for rule in rules]


def test_the_core_rules_are_right_and_pass_their_own_tests() -> None:
    core = RuleSet.core()
    assert (set(ids(core)), core.problems) == (CORE, ())
    assert [failure for rule in core for failure in failures(rule)] == []
    for rule in core:
        assert rule.core
        assert rule.fire == "crossing"
        assert rule.tests


def test_each_core_rule_about_a_budget_is_tried_at_ceilings_of_1_10_and_90() -> None:
    for rule in RuleSet.core():
        if rule.trigger == "on_turn_start":
            readings = [reading for test in rule.tests for reading in test.context["budget"].values()]
            assert {reading["ceiling"] for reading in readings} >= {1, 10, 90}, rule.id


def test_rules_come_by_priority_and_then_by_the_name_of_their_file(tmp_path: Path) -> None:
    write(tmp_path, "b.toml", "second")
    write(tmp_path, "a.toml", "first")
    write(tmp_path, "c.toml", "urgent", "priority = 500")
    assert ids(RuleSet.load(tmp_path)) == ["urgent", "first", "second"]


def test_one_bad_file_never_stops_the_others(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", "good")
    (tmp_path / "b.toml").write_bytes(b"\xff")
    (tmp_path / "c.toml").write_text("[rule\n")
    write(tmp_path, "d.toml", "Bad")
    write(tmp_path, "e.toml", "good")
    (tmp_path / "f.toml").mkdir()
    rules = RuleSet.load(tmp_path, tmp_path / "none.toml", "x" * 300).with_core()
    assert set(ids(rules)) == CORE | {"good"}
    told = "\n".join(map(str, rules.problems))
    for name in ("b.toml:1", "c.toml:1", "d.toml:2", "e.toml", "f.toml", "none.toml"):
        assert name in told
    [twice] = [problem for problem in rules.problems if problem.found == "good"]
    assert "a.toml" in twice.expected, "the file that has the id already is named"
    with pytest.raises(ConfigErrors):
        RuleSet.load(tmp_path, strict=True)


def test_a_link_out_of_the_folder_is_refused_and_its_target_not_quoted(tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    write(folder, "own.toml", "own")
    (folder / "inside.toml").symlink_to(write(folder, "inside.txt", "inside"))
    (tmp_path / "secret").write_text("the password is steam\n")
    (folder / "outside.toml").symlink_to(tmp_path / "secret")
    (folder / "loop.toml").symlink_to(folder / "loop.toml")
    rules = RuleSet.load(folder)
    assert ids(rules) == ["inside", "own"]
    assert {problem.where for problem in rules.problems} == {str(folder / "outside.toml"), str(folder / "loop.toml")}
    assert "steam" not in str(rules.problems)


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    [problem] = RuleSet.load(tmp_path).problems
    assert (problem.where, problem.found) == ("rules", str(tmp_path))
    assert "*.toml" in problem.expected


def test_a_file_with_the_id_of_a_core_rule_and_another_meaning_is_ignored_with_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path, "mine.toml", "last-turn-warning")
    rules = RuleSet.load(path).with_core()
    [rule] = [rule for rule in rules if rule.id == "last-turn-warning"]
    assert rule.source != str(path)
    [warning] = rules.warnings
    assert (warning.found, rules.problems) == ("last-turn-warning", ())
    assert ids(RuleSet.load(path)) == ["last-turn-warning"], "alone, it is just a rule"


def test_a_file_with_the_id_and_the_meaning_of_a_core_rule_is_accepted_in_silence(tmp_path: Path) -> None:
    for rule in RuleSet.core():
        text = (
            Path(rule.source).read_text().replace('name = "', 'name = "My ').replace("expression = ", "expression   = ")
        )
        (tmp_path / Path(rule.source).name).write_text(text.replace("{{ context", "{{context"))
    rules = RuleSet.load(tmp_path, strict=True).with_core()
    assert (rules.warnings, set(ids(rules))) == ((), CORE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("share = 0.7", "share = 0.6"),
        ("ratio > params", "ratio >= params"),
        ("Finish what", "End what"),
        ('priority = "high"', 'priority = "low"'),
        ('fire = "crossing"', 'fire = "always"'),
        ("on_turn_start", "on_turn_end"),
    ],
)
def test_a_core_rule_with_any_other_meaning_is_a_warning(tmp_path: Path, old: str, new: str) -> None:
    [core] = [rule for rule in RuleSet.core() if rule.id == "cost-budget-warning"]
    text = Path(core.source).read_text()
    assert old in text
    (tmp_path / "mine.toml").write_text(text.replace(old, new))
    assert len(RuleSet.load(tmp_path, strict=True).with_core().warnings) == 1


def test_settings_switch_a_rule_off_but_no_core_rule(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", "mine")
    write(tmp_path, "b.toml", "firm", "core = true")
    settings = Settings({"rules": {name: {"enabled": False} for name in ("mine", "firm", "last-turn-warning")}})
    rules = RuleSet.load(tmp_path, settings=settings).with_core(settings)
    assert [rule.id for rule in rules if not rule.enabled] == ["mine"]
    assert sorted(problem.where for problem in rules.problems) == [
        "rules.firm.enabled",
        "rules.last-turn-warning.enabled",
    ]


def test_a_file_or_a_name_switches_no_core_rule_off(tmp_path: Path) -> None:
    write(tmp_path, "b.toml", "firm", "core = true\nenabled = false")
    write(tmp_path, "c.toml", "loose", "enabled = false")
    rules = RuleSet.load(tmp_path)
    assert [rule.id for rule in rules if rule.enabled] == ["firm"]
    assert [problem.where for problem in rules.problems] == ["rule.enabled"]
    assert ids(rules.without("loose")) == ["firm"]
    for wrong in ("firm", "none"):
        with pytest.raises(ConfigError, match="rules, without"):
            rules.without(wrong)


def test_settings_override_parameters(tmp_path: Path) -> None:
    core = RuleSet.core(Settings({"rules.iteration-budget-warning.share": 0.5}))
    [rule] = [rule for rule in core if rule.id == "iteration-budget-warning"]
    assert rule.params == {"share": 0.5}
    broken = RuleSet.core(Settings({"rules.iteration-budget-warning.share": "half"}))
    assert len(broken.problems) == 1


@pytest.mark.parametrize(
    "wrong", [{"share": "half"}, {"share": True}, 3, {"share": {"x": 1}}, {"shares": 0.5}, {"enabled": "off"}], ids=str
)
def test_no_setting_however_wrong_takes_a_core_rule_away(wrong: object) -> None:
    rules = RuleSet().with_core(Settings({"rules": {"iteration-budget-warning": wrong}}))
    [rule] = [rule for rule in rules if rule.id == "iteration-budget-warning"]
    assert (rule.params, rule.enabled, set(ids(rules))) == ({"share": 0.7}, True, CORE)
    assert len(rules.problems) == 1
    with pytest.raises(ConfigErrors):
        RuleSet.load(Path(rule.source), settings=Settings({"rules.iteration-budget-warning": wrong}), strict=True)


def test_a_misspelt_parameter_is_told(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", "mine")
    rules = RuleSet.load(tmp_path, settings=Settings({"rules.mine.enable": False, "rules.other.x": 1}))
    [problem] = rules.problems
    assert problem.where == "rules.mine.enable"
    assert "enabled" in problem.expected


def test_the_environment_sets_parameters_and_switches_rules(tmp_path: Path) -> None:
    write(tmp_path, "a.toml", "mine")
    variables = {"FLYBALL_RULES__ITERATION-BUDGET-WARNING__SHARE": "0.5", "FLYBALL_RULES__MINE__ENABLED": "false"}
    settings = Settings.load(tmp_path, variables)
    rules = RuleSet.load(tmp_path, settings=settings).with_core(settings)
    found = {rule.id: rule for rule in rules}
    assert (rules.problems, found["mine"].enabled) == ((), False)
    assert found["iteration-budget-warning"].params == {"share": 0.5}


def test_a_mode_may_set_parameters_of_its_own() -> None:
    settings = Settings({"mode": {"chat": {"rules": {"iteration-budget-warning": {"share": 0.5}}}}})
    shares = [
        rule.params["share"]
        for mode in ("chat", "batch")
        for rule in RuleSet.core(settings.for_mode(mode))
        if rule.id == "iteration-budget-warning"
    ]
    assert shares == [0.5, 0.7]


def test_a_set_that_has_the_core_rules_already_shadows_nothing() -> None:
    rules = RuleSet().with_core().with_core()
    assert (rules.problems, set(ids(rules))) == ((), CORE)
