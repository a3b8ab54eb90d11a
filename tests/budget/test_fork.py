"""Budgets in a forked child process."""

import subprocess
import sys
import textwrap

import pytest

LONG = 60.0

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no fork")


def run_in_child(before: str, child: str) -> str:
    """Fork after `before`, run `child` in the child process, and return what it prints."""
    program = "\n".join(
        [
            "import os, signal, threading, warnings",
            "warnings.simplefilter('ignore', DeprecationWarning)  # a fork beside threads is the point",
            "from flyball import Agent, IterationBudget, govern",
            "from flyball.errors import UsageError",
            "from flyball.testing import ScriptedModel, say",
            textwrap.dedent(before),
            "if os.fork() == 0:",
            "    signal.alarm(30)",
            textwrap.indent(textwrap.dedent(child), "    "),
            "    os._exit(0)",
            "status = os.wait()[1]",
            "assert status == 0, status",
        ]
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


@pytest.mark.parametrize(
    "claim",
    [
        "consume()",
        "consume(2)",
        "spend()",
        "hold(1)",
        "try_hold(1)",
        "reserve(1, 2)",
        "increment()",
        "refund(reason='x')",
        "extend(1, by='x')",
    ],
)
def test_a_claim_on_a_budget_from_before_the_fork_raises_in_the_child(claim: str) -> None:
    said = run_in_child(
        "budget = IterationBudget('turns', 9, parent=IterationBudget('all', 9))",
        f"""
        try: budget.{claim}
        except UsageError as error: print("before the fork" in str(error), budget.used, flush=True)
        """,
    )
    assert said == "True 0"


def test_a_claim_in_the_child_does_not_wait_for_a_lock_that_a_thread_of_the_parent_held() -> None:
    said = run_in_child(
        """
        budget, held = IterationBudget("turns", 9), threading.Event()
        def hold_lock():
            with budget.lock:
                held.set()
                threading.Event().wait(30)
        threading.Thread(target=hold_lock, daemon=True).start()
        held.wait(30)
        """,
        """
        try: budget.consume()
        except UsageError: print(budget.remaining, repr(budget), flush=True)
        """,
    )
    assert said == "9 <IterationBudget turns: 0 of 9>"


def test_a_child_can_read_restore_and_create_budgets_and_leave_the_holds_of_its_parent() -> None:
    said = run_in_child(
        """
        budget = IterationBudget("turns", 9)
        budget.spend(2)
        hold = budget.hold(3)
        """,
        """
        with hold: pass
        own = IterationBudget.restore(budget.snapshot())
        print(own.consume(), own.used, IterationBudget("other", 1).consume(), hold.open, budget.held, flush=True)
        """,
    )
    assert said == "True 6 True True 3"


def test_an_agent_from_before_the_fork_runs_in_the_child_and_earlier_results_stay_readable() -> None:
    said = run_in_child(
        """
        agent = Agent(model=ScriptedModel(say("one"), say("two")))
        earlier = agent.run("go")
        """,
        """
        print(earlier.budgets["turns"].used, agent.run("go").text, flush=True)
        """,
    )
    assert said.startswith("1 ")


def test_a_governed_loop_from_before_the_fork_refuses_turns_in_the_child() -> None:
    said = run_in_child(
        """
        from flyball import Limits
        running = govern(Limits(turns=3))
        run = running.__enter__()
        """,
        """
        try: print(run.envelope.claim_step(), flush=True)
        except UsageError: print("refused", flush=True)
        """,
    )
    assert said == "refused"
