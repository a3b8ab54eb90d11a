"""Rule files: all of it is checked when it is read, and all mistakes are told together, each with its line."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from flyball import Agent, tool
from flyball.errors import ConfigError, ConfigErrors, SettingError, TomlError
from flyball.progress import Deliver, Emit, Notice, Priority, Raise, SetState, Veto
from flyball.rules import Fire, Rule, Trigger
from flyball.rules.file import MAX_BYTES, read_rule
from flyball.rules.trial import failures, try_rule
from flyball.testing import ScriptedModel, call, say

DAY = date(1979, 5, 27)
HEAD = '[rule]\nid = "my-rule"\ntrigger = "on_turn_start"\n'
NOTE = '[action]\ntype = "notify_self"\nmessage = "Hello."\n'


def file(folder: Path, text: str) -> Path:
    path = folder / "rule.toml"
    path.write_text(dedent(text))
    return path


def rule(folder: Path, text: str, **settings: Any) -> Rule:
    return read_rule(file(folder, text), lambda rule, name: settings.get(name))


def mistakes(folder: Path, text: str) -> list[ConfigError]:
    with pytest.raises(ConfigErrors) as raised:
        rule(folder, text)
    return list(raised.value.errors)


def line_of(error: ConfigError) -> str:
    """Of what is wrong in `rule.toml`: `13` for line 13, and nothing where it is the whole file."""
    source = error.source if isinstance(error, SettingError) else error.where
    assert "rule.toml" in source
    return source.partition("rule.toml")[2].strip(":()")


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
    assert try_rule(found, {}).orders == (Notice("Hello.", "my-rule", "info", Priority.NORMAL, Deliver.TURN_START),)


def test_a_message_with_a_statement_is_an_error_with_its_line(tmp_path: Path) -> None:
    [error] = mistakes(tmp_path, HEAD + '[action]\ntype = "notify_self"\nmessage = "{% if true %}Hello.{% endif %}"\n')[
        :1
    ]
    assert (line_of(error), error.found) == ("6", "{% if true %}")


def test_a_rule_without_name_and_version_has_the_usual_ones(tmp_path: Path) -> None:
    found = rule(tmp_path, HEAD.replace("my-rule", "2-rules") + NOTE)
    assert (found.name, found.version) == ("2-rules", "1.0.0")


def test_an_event_may_be_written_with_event_type_and_payload(tmp_path: Path) -> None:
    ours = rule(tmp_path, HEAD + '[action]\ntype = "emit_event"\nname = "a.b"\ndata = { x = "{{ 1 }}", y = [2] }\n')
    theirs = rule(
        tmp_path, HEAD + '[action]\ntype = "emit_event"\nevent_type = "a.b"\npayload = { x = "{{ 1 }}", y = [2] }\n'
    )
    assert try_rule(ours, {}).orders == try_rule(theirs, {}).orders == (Emit("a.b", {"x": 1, "y": [2]}, "my-rule"),)
    assert ours.meaning == theirs.meaning


def test_an_event_with_both_spellings_is_a_mistake(tmp_path: Path) -> None:
    wrong = HEAD + '[action]\ntype = "emit_event"\nname = "a"\nevent_type = "b"\ndata = {}\npayload = {}\n'
    assert [line_of(error) for error in mistakes(tmp_path, wrong)] == ["7", "9"]


def test_an_event_nested_too_deeply_is_a_mistake(tmp_path: Path) -> None:
    deep = "{ a = " * 60 + "1" + " }" * 60
    assert mistakes(tmp_path, HEAD + f'[action]\ntype = "emit_event"\nname = "a"\ndata = {deep}\n')


def test_a_lua_script_is_refused_with_the_hook_to_write(tmp_path: Path, snapshot: Callable[..., None]) -> None:
    [error] = mistakes(tmp_path, HEAD + '[condition]\nscript = "scripts/check.lua"\n' + NOTE)
    assert (line_of(error), error.found) == ("5", "scripts/check.lua")
    assert "hooks=[check]" in error.expected
    snapshot(error.expected)


@tool(effects="read")
def look(n: int) -> int:
    """Look."""
    return n


def test_the_hook_of_the_refusal_runs(tmp_path: Path) -> None:
    [error] = mistakes(tmp_path, HEAD + '[condition]\nscript = "x.lua"\n' + NOTE)
    code, names = dedent(error.expected.partition("\n")[2]).replace("Agent(..., ", "options = dict("), dict[str, Any]()
    exec(code, names)
    model = ScriptedModel(*[call("look", n=n) for n in range(8)], say("done"))
    Agent(model=model, tools=[look], **names["options"]).run("Go.")
    assert [request.notices for request in model.requests][7] == ("Finish soon.",)


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
    [notice] = try_rule(found, {"event": {"name": "alarm", "data": {"level": 2}}}).orders
    assert notice == Notice("x", "a-2", "c", Priority.LOW, Deliver.AFTER_TOOL)


def test_all_mistakes_of_a_file_are_told_together_each_with_its_line(
    tmp_path: Path, snapshot: Callable[..., None]
) -> None:
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
    assert {(line_of(one), one.where.partition(",")[0], one.found) for one in told} == {
        ("1", "rule.trigger", None),
        ("2", "rule.id", "Bad Id"),
        ("3", "rule.triger", "triger"),
        ("4", "rule.priority", 5000),
        ("5", "rule.enabled", "yes"),
        ("6", "rule.fire", "crosing"),
        ("8", "condition.expression", "context.turn.iteration_cont"),
        ("8", "condition.expression", "budgt"),
        ("11", "action.message", "context.trn.x"),
        ("12", "action.priority", "hihg"),
        ("13", "parms", "parms"),
    }
    right = {one.where: one.expected for one in told}
    for where, name in {"parms": "params", "rule.triger": "trigger", "rule.fire": "crossing"}.items():
        assert name in right[where]
    snapshot("\n".join(map(str, told)).replace(f"{tmp_path}/", ""))


@pytest.mark.parametrize(
    ("text", "line", "where", "found"),
    [
        ("", "", "rule", None),
        ("rule = 3\n" + NOTE, "1", "rule", 3),
        (HEAD, "", "action", None),
        (HEAD + "[action]\n", "4", "action.type", None),
        (HEAD + '[action]\ntype = "notify"\nmessage = "x"\n', "5", "action.type", "notify"),
        (HEAD + '[action]\ntype = "notify_self"\nmessage = ""\n', "6", "action.message", ""),
        (HEAD + '[action]\ntype = "notify_self"\n', "4", "action.message", None),
        (HEAD + '[action]\ntype = "deny"\nmessage = "x"\n', "5", "action.type", "deny"),
        (HEAD + '[action]\ntype = "set_state"\nkey = "k"\n', "4", "action", []),
        (HEAD + '[action]\ntype = "set_state"\nkey = "k"\nincrement = "x"\n', "7", "action.increment", "x"),
        (
            HEAD + '[action]\ntype = "set_state"\nkey = "k"\nvalue = 1979-05-27\n',
            "7",
            "action.value",
            DAY,
        ),
        (HEAD + '[action]\ntype = "extend"\nbudget = "turn"\namount = 3\n', "6", "action.budget", "turn"),
        (HEAD + '[action]\ntype = "extend"\nbudget = "turns"\namount = -3\n', "7", "action.amount", -3),
        (HEAD + '[action]\ntype = "extend"\nbudget = "turns"\namount = 1.5\n', "7", "action.amount", 1.5),
        (HEAD + '[action]\ntype = "stop"\nmessage = "x"\ngrace = 1\n', "7", "action.grace", 1),
        (HEAD + '[action]\ntype = "use_model"\n', "4", "action.model", None),
        (HEAD + '[action]\ntype = "emit_event"\nname = "x"\ndata = 3\n', "7", "action.data", 3),
        (HEAD + '[action]\ntype = "log"\nmessage = "x"\nlevel = "loud"\n', "7", "action.level", "loud"),
        (HEAD + 'event = "x"\n' + NOTE, "4", "rule.event", "x"),
        (HEAD + NOTE + "[condition]\n", "7", "condition.expression", None),
        (HEAD + NOTE + '[condition]\nexpression = "1 +"\n', "8", "condition.expression, column 4", "1 +"),
        (HEAD + NOTE + '[condition]\nexpression = "params.x > 1"\n', "8", "condition.expression, column 1", "params"),
        (HEAD + NOTE + "[params]\nx = [1]\n", "8", "params.x", [1]),
        (HEAD + NOTE + '[params]\n"x y" = 1\n', "8", "params['x y']", "x y"),
        (HEAD + NOTE + "[[test]]\ncontext = 3\n", "8", "test[0].context", 3),
        (HEAD + NOTE + "[[test]]\nfire = true\n", "8", "test[0].fire", "fire"),
        ("test = 3\n" + HEAD + NOTE, "1", "test", 3),
        ("test = [3]\n" + HEAD + NOTE, "1", "test[0]", 3),
        (HEAD + NOTE + '[[test]]\nfires = false\nmessage = "x"\n', "9", "test[0].message", "x"),
    ],
)
def test_a_mistake_in_a_rule_file_is_named_with_its_line_and_key(
    tmp_path: Path, text: str, line: str, where: str, found: object
) -> None:
    first = mistakes(tmp_path, text)[0]
    assert (first.code, line_of(first), first.where, first.found) == ("setting_invalid", line, where, found)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (HEAD + '[action]\ntype = "notify"\nmessage = "x"\n', "notify_self"),
        (HEAD + '[action]\ntype = "deny"\nmessage = "x"\n', 'trigger = "on_tool_call"'),
        (HEAD + '[action]\ntype = "extend"\nbudget = "turn"\namount = 3\n', "turns"),
        (HEAD + '[action]\ntype = "log"\nmessage = "x"\nlevel = "loud"\n', "debug"),
        (HEAD + 'event = "x"\n' + NOTE, 'trigger = "on_event"'),
        (HEAD + NOTE + "[[test]]\nfire = true\n", "fires"),
    ],
)
def test_a_mistake_in_a_rule_file_tells_the_name_that_would_be_right(tmp_path: Path, text: str, right: str) -> None:
    assert right in mistakes(tmp_path, text)[0].expected


def test_a_setting_of_another_type_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        rule(tmp_path, HEAD + NOTE + "[params]\nshare = 0.5\n", share="high")
    assert (caught.value.where, caught.value.found) == ("params.share", "high")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[rule\n", b"x" * (MAX_BYTES + 1), b"a = " + b"[" * 5_000])
def test_what_cannot_be_read_at_all_is_a_toml_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rule.toml"
    path.write_bytes(content)
    with pytest.raises(TomlError, match=r"rule\.toml"):
        read_rule(path)
    for other in (tmp_path / "none.toml", tmp_path, Path("x" * 300), Path("/dev/zero")):
        with pytest.raises(TomlError):
            read_rule(other)


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
    assert try_rule(rule(tmp_path, f"{HEAD}[action]\n{action}\n"), context).orders == (order,)


def test_a_call_may_be_denied(tmp_path: Path) -> None:
    text = '[rule]\nid = "a"\ntrigger = "on_tool_call"\n[action]\ntype = "deny"\n'
    text += 'message = "No {{ context.call.tool_name }}."\n'
    assert try_rule(rule(tmp_path, text), {"call": {"tool_name": "rm"}}).orders == (Veto("No rm.", "a"),)


def test_failed_tests_of_a_rule_file_are_told_with_their_lines(tmp_path: Path, snapshot: Callable[..., None]) -> None:
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
    told = [failure.replace(f"{tmp_path}/", "") for failure in failures(found)]
    lines = [[line for line in ("12", "15", "17", "20") if f"rule.toml:{line}:" in one] for one in told]
    assert lines == [["12"], ["15"], ["17"]]
    assert "'At 8.'" in told[0]
    assert "'At 9.'" in told[0]
    snapshot("\n".join(told))


def test_a_rule_that_is_no_file_of_ours_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        read_rule(tmp_path)
