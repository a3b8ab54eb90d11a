"""What a command sees of our environment: all but what looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(
    r"""
    SECRET | TOKEN | PASSW | PASSPHRASE | CREDENTIAL | APIKEY
    | (?:^|_) (?: KEYS? | AUTH | PASS | PWD | PAT | DSN | COOKIES? ) (?:_|$)
    """,
    re.VERBOSE | re.IGNORECASE,
)
_VALUE = re.compile(
    r"""
    ://[^/\s@:]*+:[^/\s@]++@                                           # a URL with a password
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY
    | ^eyJ[\w-]{10,}\.                                                 # a JSON web token
    | ^(?:sk|pk|rk)[-_][\w-]{16,}$
    | ^(?:gh[oprsu]_|github_pat_|glpat-|hf_|npm_|pypi-|xox[a-z]-|AKIA|AIza)[\w-]{16,}$
    """,
    re.VERBOSE,
)
_PLAIN = frozenset({"PWD", "OLDPWD"})


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables whose name and value look harmless.

    >>> without_secrets({"PATH": "/bin", "OPENAI_API_KEY": "x", "KEYBOARD": "de", "DB": "pg://me:pw@host/db"})
    {'PATH': '/bin', 'KEYBOARD': 'de'}
    """
    return {
        name: value
        for name, value in environment.items()
        if name in _PLAIN or not (_NAME.search(name) or _VALUE.search(value))
    }
