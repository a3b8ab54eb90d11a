"""Bound a retry loop by attempts and by time, and tell the truth about how it ended.

Prints:
    attempt 1: the server is busy
    attempt 2: the server is busy
    attempt 3: the answer is 42
    completed after 3 requests
    a hopeless one: budget, ('max_agent_iterations_reached',)
"""

import flyball
from flyball import Limits, Result


def fetch(attempt: int, answers_at: int) -> str:
    """Stands for a server that is busy at first."""
    if attempt < answers_at:
        raise ConnectionError("the server is busy")
    return "the answer is 42"


def retry(answers_at: int, *, quiet: bool = False) -> Result:
    with flyball.govern(Limits(turns=5, seconds=30), grace=False) as run:
        for turn in run:
            try:
                run.complete(fetch(turn.number, answers_at))
            except ConnectionError as error:
                said = str(error)
            else:
                said = "the answer is 42"
            if not quiet:
                print(f"attempt {turn.number}: {said}")
    return run.result()


result = retry(answers_at=3)
print(f"{result.stop} after {result.requests} requests")
hopeless = retry(answers_at=99, quiet=True)
print(f"a hopeless one: {hopeless.stop}, {hopeless.flags}")
