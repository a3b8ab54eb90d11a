"""Three agents in three threads share one limit: two finish, one runs away and is stopped. `make demo` runs this."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from threading import Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from flyball import IterationBudget

STEP_SECONDS = 0.12


@dataclass
class Agent:
    """A loop that claims a turn before it acts, and holds tokens before it knows what they cost."""

    name: str
    wants: int
    turns: IterationBudget
    tokens: IterationBudget
    breaks_at: int = 0
    flags: list[str] = field(default_factory=list[str])

    def run(self) -> None:
        """Work until the task is done or a claim is refused."""
        done = 0
        while done < self.wants:
            if not self.turns.consume():
                self.flags.append(self.turns.to_response_flag())
                return
            with self.tokens.hold(500) as hold:
                time.sleep(STEP_SECONDS)
                if self.turns.claimed == self.breaks_at:
                    self.turns.refund(reason="round_never_started")
                    continue
                hold.settle(250 + 10 * done)
            done += 1

    def end(self) -> str:
        """Tell how it ended, and why."""
        if self.flags:
            return f"stopped: {self.turns.warning} {self.flags}"
        back = "".join(f", {n} given back ({reason})" for reason, n in self.turns.refunds.items())
        return f"completed: {self.turns.used} of {self.turns.ceiling} turns, {self.turns.claimed} claimed{back}"


def watch(workers: list[Thread], budgets: list[IterationBudget], console: Console) -> None:
    columns = (TextColumn("{task.description:>14}"), BarColumn(40), TextColumn("{task.completed:,} of {task.total:,}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bars: dict[TaskID, IterationBudget] = {progress.add_task(b.name, total=b.ceiling): b for b in budgets}
        while any(worker.is_alive() for worker in workers):
            workers[-1].join(STEP_SECONDS / 4)
            for bar, budget in bars.items():
                progress.update(bar, completed=budget.used)


def main() -> None:
    everyone = IterationBudget("all_turns", 16)
    tokens = IterationBudget("all_tokens", 6_000)
    agents = [
        Agent("scout", 3, IterationBudget("scout_turns", 4, parent=everyone), tokens),
        Agent("writer", 5, IterationBudget("writer_turns", 6, parent=everyone), tokens, breaks_at=2),
        Agent("looper", 1_000_000, IterationBudget("looper_turns", 6, parent=everyone), tokens),
    ]
    console = Console(highlight=False, soft_wrap=True)
    workers = [Thread(target=agent.run) for agent in agents]
    for worker in workers:
        worker.start()
    watch(workers, [everyone, *(agent.turns for agent in agents), tokens], console)
    for agent in agents:
        console.print(f"{agent.name:7} {agent.end()}", markup=False)
    console.print(
        f"{'all':7} {everyone.used} of {everyone.ceiling} turns, {tokens.used:,} of {tokens.ceiling:,} tokens"
    )


if __name__ == "__main__":
    main()
