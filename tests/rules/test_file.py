"""Rule files: all of it is checked when it is read, and all mistakes are told together, each with its line."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from flyball.errors import ConfigError, Mistakes, TomlError
from flyball.progress import Deliver, Notice, Priority, Raise, SetState, Veto
from flyball.rules import Fire, Rule, Trigger
from flyball.rules.file import MOST_BYTES, read
from flyball.rules.trial import failures, tried

HEAD = '[rule]\nid = "my-rule"\ntrigger = "on_turn_start"\n'
NOTE = '[action]\ntype = "notify_self"\nmessage = "Hello."\n'


def file(folder: Path, text: str) -> Path:
    path = folder / "rule.toml"
    path.write_text(dedent(text))
    return path


def rule(folder: Path, text: str, **settings: Any) -> Rule:
    return read(file(folder, text), lambda rule, name: settings.get(name))


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(Mistakes) as raised:
        rule(folder, text)
    return [str(error).replace(f"{folder}/", "") for error in raised.value.errors]


def test_a_rule_says_what_it_says_and_the_rest_is_usual(tmp_path: Path) -> None:
    found = rule(tmp_path, HEAD + NOTE)
    assert (found.id, found.trigger, found.priority, found.enabled, found.core) == (
        "my-rule",
        Trigger.TURN_START,
        100,
        True,
        False,
    )
    assert (found.fire, found.cooldown_turns, found.condition, found.tests) == (Fire.ALWAYS, 0, None, ())
    assert tried(found, {}).orders == (Notice("Hello.", "my-rule", "notice", Priority.NORMAL, Deliver.TURN_START),)


def test_every_key_is_read(tmp_path: Path) -> None:
    found = rule(
        tmp_path,
        """
        [rule]
        id = "a-2"
        trigger = "on_event"
        event = "alarm"
        name = "A"
        description = "d"
        version = "1.2.3"
        priority = 1000
        enabled = false
        core = true
        fire = "crossing"
        cooldown_turns = 3
        [params]
        share = 0.5
        word = "x"
        [condition]
        expression = "context.event.data.level > params.share"
        [action]
        type = "notify_self"
        message = "{{ params.word }}"
        category = "c"
        priority = "low"
        deliver_at = "after_tool"
        """,
        share=1,
    )
    assert (found.event, found.name, found.version, found.priority) == ("alarm", "A", "1.2.3", 1_000)
    assert (found.enabled, found.core, found.fire, found.cooldown_turns) == (False, True, Fire.CROSSING, 3)
    assert found.params == {"share": 1.0, "word": "x"}, "an int stands for a float"
    [notice] = tried(found, {"event": {"name": "alarm", "data": {"level": 2}}}).orders
    assert notice == Notice("x", "a-2", "c", Priority.LOW, Deliver.AFTER_TOOL)


def test_all_mistakes_of_a_file_are_told_together_each_with_its_line(tmp_path: Path) -> None:
    told = mistakes(
        tmp_path,
        """\
        [rule]
        id = "Bad Id"
        triger = "on_turn_start"
        priority = 5000
        enabled = "yes"
        fire = "crosing"
        [condition]
        expression = "context.turn.iteration_cont > 7 and budgt('turns').ratio > 1"
        [action]
        type = "notify_self"
        message = "{{ context.trn.x }}"
        priority = "hihg"
        [parms]
        x = 1
        """,
    )
    assert [one.partition(":")[2].partition(")")[0] for one in told if "(" in one]
    places = {one.split("(")[1].split(")")[0]: one for one in told}
    assert "expected the key params" in places["rule.toml:13"]
    assert "expected the key trigger" in places["rule.toml:3"]
    assert "found 'Bad Id'" in places["rule.toml:2"]
    assert "from 1 to 1,000" in places["rule.toml:4"]
    assert "true or false" in places["rule.toml:5"]
    assert "one of crossing" in places["rule.toml:6"]
    assert sum("rule.toml:8" in one for one in told) == 2
    assert "expected context.turn" in places["rule.toml:11"]
    assert "one of high" in places["rule.toml:12"]
    assert "rule.trigger" in places["rule.toml:1"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "rule (rule.toml): found None; expected a table [rule]"),
        ("rule = 3\n" + NOTE, "a table [rule]"),
        (HEAD, "action (rule.toml): found None; expected a table [action]"),
        (HEAD + "[action]\n", "action.type"),
        (HEAD + '[action]\ntype = "notify"\nmessage = "x"\n', "an action: notify_self"),
        (HEAD + '[action]\ntype = "notify_self"\nmessage = ""\n', "a text that is not empty"),
        (HEAD + '[action]\ntype = "notify_self"\n', "action.message"),
        (HEAD + '[action]\ntype = "deny"\nmessage = "x"\n', 'trigger = "on_tool_call"'),
        (HEAD + '[action]\ntype = "set_state"\nkey = "k"\n', "either value or increment"),
        (HEAD + '[action]\ntype = "set_state"\nkey = "k"\nincrement = "x"\n', "a number"),
        (HEAD + '[action]\ntype = "set_state"\nkey = "k"\nvalue = [1]\n', "a text, a number, true or false"),
        (HEAD + '[action]\ntype = "extend"\nbudget = "turn"\namount = 3\n', "a budget: turns"),
        (HEAD + '[action]\ntype = "extend"\nbudget = "turns"\namount = -3\n', "how much more, above 0"),
        (HEAD + '[action]\ntype = "stop"\nmessage = "x"\ngrace = 1\n', "true or false"),
        (HEAD + '[action]\ntype = "use_model"\n', "action.model"),
        (HEAD + '[action]\ntype = "emit_event"\nname = "x"\ndata = 3\n', "a table"),
        (HEAD + '[action]\ntype = "log"\nmessage = "x"\nlevel = "loud"\n', "one of debug"),
        (HEAD + 'event = "x"\n' + NOTE, 'trigger = "on_event"'),
        (HEAD + NOTE + "[condition]\n", "condition.expression"),
        (HEAD + NOTE + '[condition]\nexpression = "1 +"\n', "an expression in Python's syntax"),
        (HEAD + NOTE + '[condition]\nexpression = "params.x > 1"\n', "params"),
        (HEAD + NOTE + "[params]\nx = [1]\n", "a number, a text, true or false"),
        (HEAD + NOTE + '[params]\n"x y" = 1\n', "a name of letters"),
        (HEAD + NOTE + "[[test]]\ncontext = 3\n", "a table: what the rule sees"),
        (HEAD + NOTE + "[[test]]\nfire = true\n", "the key fires"),
        ("test = 3\n" + HEAD + NOTE, "tables [[test]]"),
        ("test = [3]\n" + HEAD + NOTE, "a table [[test]]"),
        (HEAD + NOTE + '[[test]]\nfires = false\nmessage = "x"\n', "none, where it does not fire"),
        (HEAD + '[action]\ntype = "extend"\nbudget = "turns"\namount = 1.5\n', "a whole number of turns"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(tmp_path: Path, text: str, told: str) -> None:
    assert told in "\n".join(mistakes(tmp_path, text))


def test_a_setting_of_another_type_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(Mistakes, match="found 'high'; expected a float"):
        rule(tmp_path, HEAD + NOTE + "[params]\nshare = 0.5\n", share="high")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[rule\n", b"x" * (MOST_BYTES + 1), b"a = " + b"[" * 5_000])
def test_what_cannot_be_read_at_all_is_a_toml_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rule.toml"
    path.write_bytes(content)
    with pytest.raises(TomlError, match=r"rule\.toml"):
        read(path)
    for other in (tmp_path / "none.toml", tmp_path, Path("x" * 300), Path("/dev/zero")):
        with pytest.raises(TomlError):
            read(other)


@pytest.mark.parametrize(
    ("action", "context", "order"),
    [
        ('type = "set_state"\nkey = "n"\nvalue = "{{ 1 + 1 }}"', {}, SetState("n", 2, "my-rule")),
        ('type = "set_state"\nkey = "n"\nvalue = 7', {}, SetState("n", 7, "my-rule")),
        ('type = "set_state"\nkey = "n"\nvalue = "a{{ 1 }}"', {}, SetState("n", "a1", "my-rule")),
        ('type = "set_state"\nkey = "n"\nincrement = 2', {"state": {"n": 3}}, SetState("n", 5, "my-rule")),
        ('type = "set_state"\nkey = "n"\nincrement = 2', {}, SetState("n", 2, "my-rule")),
        ('type = "extend"\nbudget = "usd"\namount = 0.5', {}, Raise("usd", 500_000_000, "my-rule")),
        ('type = "extend"\nbudget = "turns"\namount = 5', {}, Raise("turns", 5, "my-rule")),
    ],
)
def test_an_action_orders_what_it_says(tmp_path: Path, action: str, context: dict[str, Any], order: Any) -> None:
    assert tried(rule(tmp_path, f"{HEAD}[action]\n{action}\n"), context).orders == (order,)


def test_a_call_may_be_denied(tmp_path: Path) -> None:
    text = '[rule]\nid = "a"\ntrigger = "on_tool_call"\n[action]\ntype = "deny"\n'
    text += 'message = "No {{ context.call.tool_name }}."\n'
    assert tried(rule(tmp_path, text), {"call": {"tool_name": "rm"}}).orders == (Veto("No rm.", "a"),)


def test_its_own_tests_tell_what_does_not_hold(tmp_path: Path) -> None:
    found = rule(
        tmp_path,
        HEAD
        + '[condition]\nexpression = "context.turn.iteration_count > 7"\n'
        + '[action]\ntype = "notify_self"\nmessage = "At {{ context.turn.iteration_count }}."\n'
        + "[[test]]\ncontext.turn.iteration_count = 8\nmessage = 'At 8.'\n"
        + "[[test]]\ncontext.turn.iteration_count = 8\nmessage = 'At 9.'\n"
        + "[[test]]\ncontext.turn.iteration_count = 7\n"
        + "[[test]]\ncontext.turn.iteration_count = 9\nfires = false\n"
        + "[[test]]\nfires = false\n",
    )
    told = [failure.partition(": ")[2] for failure in failures(found)]
    assert told[0].startswith("test 2 of my-rule: it says ['At 8.'")
    assert told[1:] == [
        "test 3 of my-rule: it does not fire; expected it to fire",
        "test 4 of my-rule: it fires; expected it not to",
    ]


def test_a_rule_that_is_no_file_of_ours_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        read(tmp_path)
