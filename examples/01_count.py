"""Bound a loop: claim before acting, and tell why it ended.

Prints:
    looking at page 1
    looking at page 2
    looking at page 3
    Maximum pages (3) reached.
    flags: ['max_pages_reached']
"""

from flyball import IterationBudget

pages = IterationBudget("pages", 3)
flags: list[str] = []

while True:
    if not pages.consume():
        print(pages.warning)
        flags.append(pages.to_response_flag())
        break
    print(f"looking at page {pages.used}")

print(f"flags: {flags}")
