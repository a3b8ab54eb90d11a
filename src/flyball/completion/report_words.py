"""Words with which reports tell what was done, and the stems that compare them with tools and results."""

from __future__ import annotations

import re
from collections.abc import Mapping


def _split(words: str) -> list[str]:
    return words.split()


_IRREGULAR = {
    "wrote": "write", "written": "write", "made": "make", "did": "do", "done": "do", "ran": "run", "sent": "send",
    "found": "find", "read": "read", "got": "get", "gotten": "get", "took": "take", "taken": "take", "put": "put",
    "set": "set", "built": "build", "bought": "buy", "paid": "pay", "kept": "keep", "held": "hold", "gave": "give",
    "given": "give", "saw": "see", "seen": "see", "went": "go", "gone": "go", "brought": "bring", "drew": "draw",
    "drawn": "draw", "spoke": "speak", "won": "win", "met": "meet", "cut": "cut", "drove": "drive", "driven": "drive",
    "began": "begin", "begun": "begin", "chose": "choose", "chosen": "choose", "broke": "break", "broken": "break",
    "hid": "hide", "shut": "shut", "split": "split", "reset": "reset", "dealt": "deal", "led": "lead", "fed": "feed",
    "rebuilt": "rebuild", "rewrote": "rewrite", "rewritten": "rewrite", "reran": "run", "overwrote": "write",
}  # fmt: skip
_GROUPS: Mapping[str, str] = {
    "write": "write create save generate produce store draft compose record append insert put make export add document "
    "mkdir touch tee echo back",
    "change": "update change modify edit fix repair refactor rename move replace configure patch correct improve "
    "adjust set reset increase decrease reduce raise lower optimize enable disable open close turn switch rewrite "
    "implement apply add resolve mark tag label flag archive mv cp sed chmod",
    "delete": "delete cancel remove clean clear erase drop purge uninstall rm rmdir",
    "send": "send email mail post publish submit notify message reply upload push share forward deliver announce "
    "inform alert escalate",
    "run": "run execute start launch restart build compile install deploy migrate train release commit merge rebuild "
    "shell bash terminal console command cmd python sql kubectl",
    "pay": "pay book order buy purchase transfer refund reserve charge schedule issue grant",
    "test": "test verify validate check confirm",
    "read": "read open view look inspect review examine analyze analyse load scan list see fetch retrieve download get "
    "cat ls head tail log status diff show",
    "search": "search find look query fetch retrieve download gather collect get browse visit crawl lookup obtain grep "
    "identify discover detect determine",
    "compute": "calculate compute add count measure sum multiply subtract divide convert total",
}
"""Verbs and commands for the same kind of work."""
_NOUNS = "email mail post message reply draft record document order book issue schedule charge release store test check"
"""Words that are things in the name of a tool that has another verb, such as `read_email`."""
_EFFECTS = frozenset({"write", "change", "delete", "send", "run", "pay"})
"""Kinds of work that change something. A call that only looks at something does not support them."""
_SAME_WORK = frozenset({"write", "change"})
"""Kinds of work that the same tools do: a file is changed by writing it."""
_NO_WORK = frozenset(
    _split("""
    ask want need plan try attempt fail stop reach receive exceed expect require limit interrupt deny refuse
    block skip exhaust request intend hope believe think decide consider understand learn note notice
    report say state mention describe explain summarize conclude answer apologize propose suggest recommend
    assume encounter hit spend allow use call base relate leave remain mean happen end time cause fear aim guess
    see go be have know become come feel seem appear work miss lack wait stall repeat force instruct tell assign
    provide interest involve supposed dedicate fill design locate cover experience proceed live result
    range lose face deserve follow terminate impact contain
    """)
)
"""Verbs that claim no done work."""
_STOP_WORDS = frozenset(
    _split("""
    the and for with from that this these those was were has have had been are its not but all any our your
    their his her she him they them you who what which when where how also then than into onto about over under
    after before while during out off per via each both some more most other such only own same very can will
    just now here there successfully already finally first second last next new old one two three using use used
    it'd i've we've task work run tool tools call calls called result results done make made did get got take
    took step steps time times turn turns several many few every everything something
    """)
)
_NUMBER_WORDS = _split("zero one two three four five six seven eight nine ten eleven twelve")
_SMALL_NUMBERS = {word: number for number, word in enumerate(_NUMBER_WORDS)}
_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_PARTS_OF_NAME = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?![\w])|(?<![\w.])\d[\d,]*(?:\.\d+)?(?=[.%:;])")
_MAX_STEM_LENGTH = 40


def find_stem(word: str) -> str:
    """Return a common start of the forms of a word.

    >>> [find_stem(word) for word in ("writing", "wrote", "files", "stopped", "created", "create", "creations")]
    ['writ', 'writ', 'fil', 'stop', 'creat', 'creat', 'creat']
    """
    word = word.lower()[:_MAX_STEM_LENGTH]
    word = _IRREGULAR.get(word, word)
    for ending, shortest in (
        ("tions", 8),
        ("tion", 7),
        ("ing", 6),
        ("ied", 5),
        ("ies", 5),
        ("ed", 4),
        ("es", 5),
        ("s", 4),
    ):
        if word.endswith(ending) and len(word) >= shortest and not word.endswith("ss"):
            if ending == "es" and not word[:-2].endswith(("s", "x", "z", "ch", "sh")):
                continue
            word = word[: -len(ending)] + {"ied": "y", "ies": "y", "tion": "t", "tions": "t"}.get(ending, "")
            if ending in ("ing", "ed") and len(word) > 3 and word[-1] == word[-2] and word[-1] not in "sl":
                word = word[:-1]
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


_GROUPS_OF: dict[str, frozenset[str]] = {}
for _name, _verbs in _GROUPS.items():
    for _verb in _verbs.split():
        _GROUPS_OF[find_stem(_verb)] = _GROUPS_OF.get(find_stem(_verb), frozenset()) | {_name}
_NOUN_STEMS = frozenset(map(find_stem, _split(_NOUNS)))
_NO_WORK_STEMS = frozenset(map(find_stem, _NO_WORK))
_STOP_STEMS = frozenset(map(find_stem, (*_STOP_WORDS, *_NUMBER_WORDS)))


def find_groups(stems: frozenset[str]) -> frozenset[str]:
    """Return the kinds of work that some of these verbs name."""
    groups = frozenset[str]().union(*[_GROUPS_OF.get(stem, frozenset[str]()) for stem in stems])
    return groups | _SAME_WORK if groups & _SAME_WORK else groups


def find_groups_of_call(name: frozenset[str], arguments: str) -> frozenset[str]:
    """Return the kinds of work of a call, by the words of its tool's name. Empty means that any is possible.

    A tool such as `shell` or `run_query` may do what its arguments say.
    """
    named = find_groups(name - _NOUN_STEMS) or find_groups(name)
    if "run" not in named:
        return named
    asked = find_groups(frozenset(map(find_stem, _WORD.findall(arguments))))
    return asked | named if asked else frozenset()


def has_effect(groups: frozenset[str]) -> bool:
    """Check whether some of these kinds of work change something."""
    return bool(groups & _EFFECTS)


def claims_work(stem: str) -> bool:
    """Check whether a verb claims work, unlike `asked` or `failed`."""
    return stem not in _NO_WORK_STEMS


def is_past(word: str) -> bool:
    """Check whether a word may be a verb in the past."""
    word = word.lower()
    return word in _IRREGULAR or (len(word) > 4 and word.endswith("ed") and not word.endswith("eed"))


def split_name(name: str) -> frozenset[str]:
    """Return the stems of the parts of a tool's name, such as `write_file` or `readFile`."""
    return frozenset(find_stem(part) for part in _PARTS_OF_NAME.findall(name))


def find_content(text: str) -> frozenset[str]:
    """Return the stems of the words of a text that say what it is about."""
    stems = {find_stem(word) for word in _WORD.findall(text) if len(word) > 2 and not word.isdigit()}
    return frozenset(stems - _STOP_STEMS)


def find_numbers(text: str) -> frozenset[float]:
    """Return the numbers in a text, small ones also as words.

    >>> sorted(find_numbers("Two files with 1,200 lines and 3.5 %."))
    [2.0, 3.5, 1200.0]
    """
    found = {float(number.replace(",", "")) for number in _NUMBER.findall(text)}
    words = {_SMALL_NUMBERS[word] for word in text.lower().split() if word in _SMALL_NUMBERS}
    return frozenset(found | {float(number) for number in words if number > 1})
