"""Five runs share one money limit: what a request can cost is set aside before it is made, so they cannot pass it.

Prints:
    ended by: budget
    inside the limit: True
    adds up: True
"""

from concurrent.futures import ThreadPoolExecutor

from flyball import Agent, Limits, Result, TokenPrice, Usage, tool
from flyball.testing import ScriptedModel, call, say


@tool(poll=True)
def read_page(n: int) -> str:
    """Read a page."""
    return f"page {n}"


model = ScriptedModel.looping(
    call("read_page", n=1).using(Usage(input=900, output=80, cached=600)),
    grace=say("I read some pages.").using(Usage(input=400, output=30)),
    price=TokenPrice(input=3, output=15, cached=0.3),
    max_output_tokens=200,
)
agent = Agent(model=model, tools=[read_page], limits=Limits(turns=100))

with Limits(usd=0.10).open() as shared, ThreadPoolExecutor(5) as pool:

    def research(task: str) -> Result:
        """Do one task with what is left of the money."""
        return agent.run(task, within=shared)

    results = list(pool.map(research, [f"Topic {n}" for n in range(5)]))
    money = shared.budgets["usd"]
    print("ended by:", *{result.stop.value for result in results})
    print("inside the limit:", money.used <= (money.ceiling or 0))
    print("adds up:", money.used == sum(result.cost["scripted"] for result in results))
