"""Bound what is only known afterwards: hold the worst case, settle the fact, give back what failed.

Prints:
    'Hello' cost 12 tokens, 988 left
    'Explain steam engines' cost 410 tokens, 578 left
    'Crash' failed and cost nothing, 578 left
    'Write a book': budget 'tokens': asked for 600, but 578 of 1,000 is left
"""

from flyball import BudgetExceeded, IterationBudget

WORST_CASE = 600
COSTS = {"Hello": 12, "Explain steam engines": 410}
tokens = IterationBudget("tokens", 1_000)


def ask(question: str) -> int:
    """Stand for a model: tells what the answer really cost, or fails."""
    return COSTS[question]


for question in ["Hello", "Explain steam engines", "Crash", "Write a book"]:
    try:
        with tokens.hold(WORST_CASE if question == "Write a book" else 500) as hold:
            hold.settle(ask(question))
        print(f"{question!r} cost {hold.settled} tokens, {tokens.remaining} left")
    except BudgetExceeded as error:
        print(f"{question!r}: {error}")
    except KeyError:
        print(f"{question!r} failed and cost nothing, {tokens.remaining} left")
