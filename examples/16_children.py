"""A tree of agents: an editor with two researchers, each with a reader, under one ceiling that nobody can pass.

Prints:
    editor: completed, 2 turns
      researcher: completed, 2 turns
        reader: budget, 5 turns
      researcher: completed, 2 turns
        reader: budget, 5 turns
    turns of the tree: 16 of 20
    children: 4
"""

from flyball import Agent, Child, Limits, Result, tool
from flyball.testing import Line, ScriptedModel, call, say


@tool(poll=True)
def read_page(n: int) -> str:
    """Read a page."""
    return f"page {n}"


def delegate(*goals: str, to: str) -> Line:
    """What a model says that hands tasks over."""
    return call("delegate", tasks=[{"child": to, "goal": goal} for goal in goals])


reader = Agent(
    name="reader",
    description="Reads pages.",
    model=ScriptedModel.looping(call("read_page", n=1), grace=say("I read five pages; the rest is open.")),
    tools=[read_page],
    limits=Limits(turns=5),
)
researcher = Agent(
    name="researcher",
    description="Finds out about one topic.",
    model=ScriptedModel(delegate("Read about it.", to="reader"), say("This is what is known.")),
    children=[Child(reader, budget="carved")],
)
editor = Agent(
    name="editor",
    model=ScriptedModel(delegate("Steam.", "Governors.", to="researcher"), say("Here is the page.")),
    children=[Child(researcher, budget="shared")],
)


def show(name: str, result: Result, level: int = 0) -> None:
    """Print a run and those below it."""
    print(f"{'  ' * level}{name}: {result.stop.value}, {result.turns} turns")
    for child in result.children:
        show(["researcher", "reader"][level], child, level + 1)


with Limits(turns=20, children=10).open() as tree:
    result = editor.run("A page about engines.", within=tree)
    show("editor", result)
    turns = tree.budgets["turns"]
    print(f"turns of the tree: {turns.used} of {turns.ceiling}")
    print("children:", tree.budgets["children"].used)
