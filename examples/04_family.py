"""Many workers, one ceiling above them: what counts below counts above, or nowhere.

Prints:
    reader: 4 of 4, refused by reader
    writer: 3 of 5, refused by tree
    tree: 7 of 7
    after a refund the tree has 1 left, and so has the writer: 1
"""

from flyball import BudgetExceeded, IterationBudget

tree = IterationBudget("tree", 7)
reader = IterationBudget("reader", 4, parent=tree)
writer = IterationBudget("writer", 5, parent=tree)

for worker in (reader, writer):
    try:
        while True:
            worker.spend()
    except BudgetExceeded as refusal:
        print(f"{worker.name}: {worker.used} of {worker.ceiling}, refused by {refusal.budget}")

print(f"{tree.name}: {tree.used} of {tree.ceiling}")
writer.refund(reason="round_never_started")
print(f"after a refund the tree has {tree.remaining} left, and so has the writer: {writer.available}")
