"""Description of an error of a model client, with what to check if its server cannot be reached or rejects requests."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from ..errors import describe_error
from ..models.failures import is_unreachable
from .client_call import find_status

_HINTS = {
    401: "check the key that the client sends to {}",
    403: "check the key that the client sends to {}, and what it allows",
    404: "check the model's name, and the URL {}",
}
_UNREACHABLE = "check the network, and that a server runs at {}"


def describe_failure(error: BaseException | str) -> dict[str, str]:
    """Return an error as a result carries it."""
    described = describe_error(error)
    url = _find_url(error)
    if url is None or isinstance(error, str):
        return described
    hint, cause = _HINTS.get(find_status(error) or 0), ""
    if is_unreachable(error):
        hint, cause = _UNREACHABLE, str(error.__cause__ or "")
    if hint is not None:
        message = described["message"].rstrip(".")
        shown = f"{message}: {cause}" if cause and cause not in message else message
        described["message"] = f"{shown}; {hint.format(url)}"
    return described


def _find_url(error: object) -> str | None:
    """Return the URL of the request that failed, without a query or a password. None if it is not known."""
    with suppress(Exception):  # some clients raise if there is no request
        request: Any = getattr(error, "request", None) or getattr(error, "response").request  # noqa: B009
        parts = urlsplit(str(request.url))
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    return None
