"""A rule file warns the model, and denies what must not be done; it is checked and tested like code.

Prints:
    flyball: no mistakes, 2 of 2 tests pass
    turn 2: Half of the 4 turns are used.
    turn 3: Iteration 3 of 4. Consider completing current task or breaking it down.
    turn 3: not run: Not on a Friday.
    turn 4: This is the last turn (4 of 4): give your answer now, or say what is missing.
    completed: Everything else is done.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from flyball import Agent, Limits, tool
from flyball.rules import RuleSet
from flyball.rules.trial import failures
from flyball.testing import ScriptedModel, call, say

HALF = """
[rule]
id = "half-time"
trigger = "on_turn_start"
fire = "crossing"

[condition]
expression = "context.budget.turns.ratio >= 0.5"

[action]
type = "notify_self"
message = "Half of the {{ context.turn.max_iterations }} turns are used."

[[test]]
context.budget.turns.ratio = 0.5
context.turn.max_iterations = 8
message = "Half of the 8 turns are used."

[[test]]
context.budget.turns.ratio = 0.25
fires = false
"""

FRIDAY = """
[rule]
id = "no-release-on-friday"
trigger = "on_tool_call"

[condition]
expression = "context.call.tool_name == 'release' and context.project.day == 'Friday'"

[action]
type = "deny"
message = "Not on a Friday."
"""


@tool
def build(part: str) -> str:
    """Build a part."""
    return f"{part} is built"


@tool
def release() -> str:
    """Release it."""
    return "released"


with TemporaryDirectory() as folder:
    for name, text in {"half.toml": HALF, "friday.toml": FRIDAY}.items():
        (Path(folder) / name).write_text(text)
    rules = RuleSet.load(folder, strict=True)

count = sum(len(rule.tests) for rule in rules)
passed = count - len([failure for rule in rules for failure in failures(rule)])
print(f"flyball: no mistakes, {passed} of {count} tests pass")
model = ScriptedModel(
    call("build", part="valve"), call("build", part="boiler"), call("release"), say("Everything else is done.")
)
agent = Agent(model=model, tools=[build, release], rules=rules, limits=Limits(turns=4))
result = agent.run("Build and release.", metadata={"project": {"day": "Friday"}})
for n, request in enumerate(model.requests, 1):
    for notice in request.notices:
        print(f"turn {n}: {notice}")
    if n == 3:
        print(f"turn {n}: not run: {result.tool_results[2].text.partition(': ')[2]}")
print(f"{result.stop}: {result.text}")
