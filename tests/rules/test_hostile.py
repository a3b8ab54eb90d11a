"""What somebody who means harm may write, each tried as a condition and in a template, under limits of the system.

All are tried in one process of their own, with 200 MB more than it begins with, and 40 s of the processor. It tells
what became of each, and whether any code of the objects in the data was run.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import json, resource, sys
from pathlib import Path

from flyball.errors import ConfigError, RuleError
from flyball.rules.expression import Condition
from flyball.rules.template import Template
from flyball.rules.view import Lazy, View, to_plain
from flyball.rules.vocabulary import Helper, Vocabulary

pages = Path("/proc/self/statm")
there = int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 2**30
resource.setrlimit(resource.RLIMIT_AS, (there + 200 * 2**20,) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (40, 40))

touched = []

def told(name):
    def tell(self, *arguments):
        touched.append(name)
        return "pwned"
    return tell

NAMES = "eq ne lt le gt ge add radd mod rmod mul rmul bool call contains format getattr getitem index int iter len repr"
NAMES += " str"
Trap = type("Trap", (), {"__hash__": object.__hash__, **{f"__{name}__": told(name) for name in NAMES.split()}})

class TrapText(str):
    pass

for name in NAMES.split():
    if name != "getattr":
        setattr(TrapText, f"__{name}__", told(name))

def lost():
    raise SystemError("lost")

circle = []
circle.append(circle)
ring = {}
ring["ring"] = ring
doubled = [0]
for _ in range(40):
    doubled = [doubled, doubled]
doubles = {"a": 0}
for _ in range(40):
    doubles = {"a": doubles, "b": doubles}
DATA = {
    "context": {
        "trap": Trap(), "traps": [Trap()], "text": TrapText("abc"), "module": sys, "function": lost,
        "million": "a" * 10**6, "many": list(range(100_000)), "circle": circle, "ring": ring, "doubled": doubled,
        "doubles": doubles, "huge": 10**5000, "lost": Lazy(lost), "bytes": b"x", "x": 1, "odd": {Trap(): 1},
    }
}
WORDS = Vocabulary({"context"}, helpers={"helper": Helper(lambda view, x: x), "trap": Helper(lambda view: Trap(), 0)})

def condition(text):
    try:
        verdict = Condition(text, WORDS).evaluate(View(DATA))
    except ConfigError as error:
        return ["refused", str(error)]
    return ["value", str(verdict.value)] if verdict.reason is None else ["false", verdict.reason]

def template(text):
    try:
        return ["value", repr(Template(text, WORDS).render_value(View(DATA)))[:200]]
    except ConfigError as error:
        return ["refused", str(error)]
    except RuleError as error:
        return ["false", str(error)]

def outcomes(text):
    return [condition(text), template("{{ " + text + " }}"), template("a {{ " + text + " }}")]

found = {text: outcomes(text) for text in json.load(sys.stdin)}
json.dump({"found": found, "touched": touched}, sys.stdout)
"""

ATTRIBUTES = [
    "context.__class__",
    "context.__class__.__mro__[1].__subclasses__()",
    "().__class__.__bases__[0].__subclasses__()",
    "''.__class__.__mro__[-1]",
    "'{0.__class__}'.format(context)",
    "'{0.__class__.__init__.__globals__}'.format_map(context)",
    "'%s' % context.trap",
    "'%(a)s' % context",
    "f'{context.__class__}'",
    "f'{context.x!r:>{10**9}}'",
    "context.x.real",
    "context.x.bit_length()",
    "context.million.upper()",
    "'a'.join(context.many)",
    "[].append(1)",
    "[1].__len__()",
    "len.__self__",
    "len.__call__([1])",
    "helper.function",
    "helper.__globals__",
    "helper(1).__class__",
    "helper(1).real",
    "context['x'].__class__",
    "context['__class__']",
    "context.trap['__class__']",
    "context.module.modules",
    "context.function()",
    "context.function.__globals__",
    "getattr(context, 'x')",
    "(context).__getattribute__('x')",
    "view",
    "view['context']",
    "__builtins__",
    "__import__('os').system('id')",
    "eval('1')",
    "exec('1')",
    "open('/etc/passwd')",
    "globals()",
    "vars(context)",
    "type(context)",
    "print(1)",
    "breakpoint()",
    "exit()",
    "input()",
    "(lambda: 1)()",
    "(x := 1)",
    "[x for x in context.many]",
    "(x for x in context.many)",
    "{x: 1 for x in context.many}",
    "[*context.many]",
    "{**context}",
    "max(context.many, key=len)",
    "len(*[[1]])",
    "len(**{})",
    "await context",
    "(yield)",
    "(yield from context.many)",
    "import os",
    "x = 1",
    "1; 2",
    "1) or (2",
    "1\n2",
    "del context",
    "assert 1",
]
UNICODE = [  # what Python's parser takes for ASCII: fullwidth lines and letters, script letters
    "context.\uff3f\uff3fclass\uff3f\uff3f",
    "context.__\uff43lass__",
    "context.__\U0001d4b8\U0001d4c1\U0001d4b6\U0001d4c8\U0001d4c8__",
    "\uff3f\uff3fimport\uff3f\uff3f('os')",
    "\uff45\uff56\uff41\uff4c('1')",
    "\U0001d4eeval('1')",
    "conte\u200bxt.x",
    "context\u2024x",
    "context.x\x00",
    "\x00",
    "'a\x00b' + c",
    "\ud800",
    "'\udfff'",
    "context.\ude00\ud83d",
    "\ufeffcontext.y",
    "context.x\u202e.y",
    "\x0c1 +",
    "1 if 1 else\u00a02 +",
    "'\\N{LATIN SMALL LETTER A' + 1",
    "'\\U00110000'",
]
SIZES = [
    "9" * 1_999,
    "9" * 5_000,
    "0x" + "f" * 1_900,
    "1e999999999999999999 * 'a'",
    "10 ** 10 ** 10",
    "2 ** 64",
    "pow(2, 10**9)",
    "1 << 10000000000",
    "1 >> -1",
    "~1 << 9",
    "1 | 2",
    "1 ^ 2",
    "[1] @ [2]",
    "'a' * 1000000000",
    "1000000000 * 'a'",
    "[0] * 1000000000",
    "True * 'a'",
    "context.million + context.million",
    "'a' + context.million",
    "str(context.million)",
    "str(context.many) + str(context.many)",
    "str([context.million])",
    "sorted(context.million)",
    "context.many + context.many",
    "[context.many + [1]]",
    "sum([context.many, context.many])",
    "sum(context.many, 9)",
    "'%099999999999d' % 1",
    "'%*d' % (10**9, 1)",
    "round(5, -1000000000)",
    "round(5.5, 9999999999)",
    "round(1e308)",
    "int('9' + '9' * 10)",
    "int(context.million)",
    "float(context.million)",
    "int('0x10', 16)",
    "int('9999999999999999999')",
    "int(1e308)",
    "9223372036854775807 * 9223372036854775807",
    "9223372036854775807 + 9223372036854775807",
    "-9223372036854775807 - 2",
    "9223372036854775807 // -0.0",
    "context.huge",
    "context.huge + 1",
    "str(context.huge)",
    "context.many[10000000000000000000]",
    "context.many[-1000000000000000000]",
    "context.many[::0]",
    "b'a' * 3",
    "1j + 1",
    "...",
    "{1, 2}",
    "{}",
    "context.million[0] * 5",
]
SHAPES = [
    "+".join(["1"] * 20_000),
    "+".join(["1"] * 900),
    "+".join(["context.many"] * 130),
    " and ".join(["1"] * 350),
    " < ".join(["1"] * 400),
    "[" + "1," * 900 + "]",
    "(" * 10_000 + "1" + ")" * 10_000,
    "(" * 900 + "1" + ")" * 900,
    "[" * 190 + "]" * 190,
    "[" * 100_000,
    "-" * 1_990 + "1",
    "-" * 1_000_000 + "1",
    "not " * 490 + "1",
    "~" * 1_990 + "1",
    "lambda: " * 240 + "1",
    "1 if 1 else " * 160 + "1",
    "context" + ".x" * 900,
    "context" + "[0]" * 600,
    "len(" * 190 + "1" + ")" * 190,
    "{" * 180 + "}" * 180,
    "2**" * 600 + "2",
    "f'{" * 300 + "1" + "}'" * 300,
    "'" * 1_999,
    '"""' * 601,
    "\\" * 1_999,
    "\n" * 100_000 + "x",
    "#" * 1_999,
    "a" * 2_000_000,
    "(" + "\n" * 1_900 + "x",
]
DATA = [
    "context.trap",
    "context.trap == 1",
    "context.trap + 'a'",
    "context.trap in [1]",
    "str(context.trap)",
    "len(context.traps)",
    "context.traps[0]",
    "context.text",
    "context.text + 'a'",
    "context.text == 'abc'",
    "'a' in context.text",
    "context.bytes",
    "context.odd",
    "trap()",
    "trap().x",
    "helper(context.trap)",
    "context.circle",
    "context.circle == context.circle",
    "str(context.ring)",
    "context.ring.ring == context.ring.ring.ring and context.ring.ring == context.ring",
    "context.doubled",
    "context.doubled == context.doubled",
    "str(context.doubles)",
    "context.doubles.a == context.doubles.b",
    "context.lost",
    "context.lost.x",
    "context.nothing",
    "context.many.x",
    "context.million.x",
    "min(context)",
    "sum(context)",
]
HARMLESS = {"context.ring.ring == context.ring.ring.ring and context.ring.ring == context.ring", "min(context)"}
"""What may have a value, as long as it comes to an end."""
CORPUS = [*ATTRIBUTES, *UNICODE, *SIZES, *SHAPES, *DATA]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(CORPUS),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_there_are_more_than_sixty() -> None:
    assert len(set(CORPUS)) == len(CORPUS) > 60


def test_each_is_refused_or_has_a_reason(told: dict[str, Any]) -> None:
    assert list(told["found"]) == CORPUS
    values = {text: found for text, found in told["found"].items() if "value" in [kind for kind, _ in found]}
    assert {ascii(text[:80]): found for text, found in values.items() if text not in HARMLESS} == {}


def test_the_memory_of_the_system_is_no_reason(told: dict[str, Any]) -> None:
    assert [text[:80] for text, found in told["found"].items() if "MemoryError" in str(found)] == []


def test_no_code_of_an_object_in_the_data_was_run(told: dict[str, Any]) -> None:
    assert told["touched"] == []
