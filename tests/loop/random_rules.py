"""Random rules: every trigger and action, conditions that hold, fail or raise, and templates that fail."""

import tempfile
from functools import lru_cache
from pathlib import Path

from flyball.rules import RuleSet, Trigger
from flyball.rules.file import read_rule
from flyball.rules.rule import Rule

from .dice import Dice

TRIGGERS = [*[trigger.value for trigger in Trigger], "on_tool_call", "on_tool_call"]
CONDITIONS = [
    *["true"] * 8,
    "context.turn.iteration_count % 2 == 0",
    "context.budget.turns.ratio > 0.5 or context.budget.tokens.ratio > 0.5",
    "context.state.n > 2",
    "context.state['m'] in context.history.tools",
    "context.call.arguments.n > 1",
    "context.result.success and context.result.characters > 5",
    "failure_count('read') > 1",
    "len(context.history.messages) > 4 and context.turn.context_usage > 0.001",
    "context.event.name == 'ping'",
    "context.run.agent > 3",
    "1 / 0 > context.turn.number",
    "context.user.name == 'Ada' or context.run.remaining < 30",
]
TEXTS = ["{{ context.turn.iteration_count }}", "x", "{{ context.state.n }}", "{{ 1 / 0 }}", "word " * 300]


def draw_rules(dice: Dice) -> RuleSet:
    """Return one to eight random rules. The agent needs a model named `other`."""
    return RuleSet(tuple(_parse_rule(_draw_rule(dice, n)) for n in range(dice.pick(1, 2, 3, 5, 8))))


def _draw_rule(dice: Dice, n: int) -> str:
    trigger = dice.pick(*TRIGGERS)
    more = dice.pick("", 'fire = "crossing"', "cooldown_turns = 2", "priority = 900", 'fire = "crossing"')
    text = f'[rule]\nid = "rule-{n}"\ntrigger = "{trigger}"\n{more}\n'
    return (
        f"{text}[condition]\nexpression = '''{dice.pick(*CONDITIONS)}'''\n[action]\n{_draw_action(dice, trigger, n)}\n"
    )


def _draw_action(dice: Dice, trigger: str, n: int) -> str:
    text = f'message = "{n}: {dice.pick(*TEXTS)}"'
    due, urgent = dice.pick("turn_start", "after_tool", "immediate"), dice.pick("low", "normal", "high", "critical")
    actions = [
        f'type = "notify_self"\n{text}\ndeliver_at = "{due}"\npriority = "{urgent}"',
        f'type = "log"\n{text}',
        f'type = "set_state"\nkey = "{dice.pick("n", "m", "a.b")}"\n{dice.pick("increment = 1", "increment = 2.5")}',
        f"type = \"set_state\"\nkey = \"m\"\nvalue = '''{dice.pick('read', '{{ context.state }}', '{{ none }}')}'''",
        f'type = "emit_event"\nname = "{dice.pick("ping", "pong")}"\ndata.n = "{{{{ context.turn.number }}}}"',
        f'type = "extend"\nbudget = "{dice.pick("turns", "seconds", "tokens", "usd", "depth")}"\namount = 3',
        f'type = "ask"\n{text}',
        'type = "use_model"\nmodel = "other"',
        f'type = "stop"\n{text}\ngrace = {dice.pick("true", "false")}',
        f'type = "deny"\n{text}',
    ]
    usual = [*actions[:9], *[actions[0]] * 5]
    return dice.pick(*([*usual, *actions[8:] * 8] if trigger == "on_tool_call" else usual))


@lru_cache(4_096)
def _parse_rule(text: str) -> Rule:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rule.toml")
        path.write_text(text)
        return read_rule(path)
