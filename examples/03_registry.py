"""Declare budgets once; let whoever runs the program set them, inside bounds that hold.

Prints:
    my_budget: 20, from settings given in code; clamped from 99 (allowed: from 1 to 20)
    conversation_turns: 40, from settings given in code
    retries: 10, from the default
    'retrys': there is no budget 'retrys'; did you mean retries?
"""

from flyball import IterationBudgetRegistry, UnknownBudget

# Without settings= these would come from the environment and flyball.toml.
registry = IterationBudgetRegistry(settings={"max_turns": 40, "my_budget_max": 99})
registry.register("my_budget", default=5, min=1, max=20, setting="my_budget_max")

for name in ["my_budget", "conversation_turns", "retries", "retrys"]:
    try:
        print(registry.explain(name))
    except UnknownBudget as error:
        print(f"{name!r}: {error}")
