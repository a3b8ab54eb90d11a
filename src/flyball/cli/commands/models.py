"""`flyball models`: models that can be used by name, and their prices."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ..._internal.json_reader import JsonReader
from ...errors import FlyballError
from ...settings import Settings
from ..output import NARROW_COLUMNS, USER_ERRORS, exit_with_error, print_line, print_raw, print_table

if TYPE_CHECKING:
    from ...budget.price import TokenPrice

LOCAL = "local:smollm2"
_RESPONSES_MODELS = re.compile(r"gpt-(4o|4\.1|[5-9])|o\d|codex|computer-use")
"""Beginnings of the names of OpenAI's models that its Responses API has."""
_RESPONSES_ONLY = re.compile(r"codex|computer-use|deep-research|-pro$")
"""Parts of the names of OpenAI's models that only its Responses API has."""
_CHAT_ONLY = re.compile(r"audio|-search")
_OTHER_MODELS = re.compile(
    r"^(ada|babbage|curie|davinci|text-)|embedding|image|instruct|live|moderation|realtime|transcribe|tts|whisper"
)
"""Parts of the names of models that write no replies: for speech, images, vectors, or plain completion."""
_HEADERS = ("model", "price of 1M tokens", "context", "key")


@dataclass(frozen=True, slots=True)
class ListedModel:
    """Known model; prices are dollars per million tokens."""

    name: str
    input: float | None
    output: float | None
    """None, like `input`: no price for tokens alone."""
    context_tokens: int | None
    ready: str
    """`ready`, or the missing part."""

    @property
    def price(self) -> str:
        if self.input is None or self.output is None:
            return "no price per token"
        return f"${self.input:g} in, ${self.output:g} out" if self.input or self.output else "free"

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Cells of its row, in the order of the headers."""
        context = "" if self.context_tokens is None else f"{self.context_tokens:,}"
        return self.name, self.price, context, self.ready


def models(
    words: Annotated[list[str] | None, typer.Argument(help="Only models whose name contains all these words.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List models by name, with their price per million tokens and whether their key is set.

    Models that are not in the list work too: newer ones by their name, and those of any server with OpenAI's chat
    completions API as http://HOST:PORT/v1#NAME. A model without a price cannot be used with a money limit.
    """
    try:
        matches = [model for model in list_models() if all(word.lower() in model.name.lower() for word in words or ())]
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    if as_json:
        print_raw(json.dumps([asdict(model) for model in matches], indent=2))
        return
    if matches:
        print_table(
            _HEADERS,
            [model.cells for model in matches],
            right=("context",),
            columns_for=dict.fromkeys(("context", "key"), NARROW_COLUMNS),
        )
    else:
        print_line("no listed model matches; a model that is not listed can still be used by its name", err=True)
        raise typer.Exit(1)


def list_models() -> Iterator[ListedModel]:
    """Yield the local model, then priced and catalog models."""
    from ...models import price_of
    from ...models.by_name import KEY_VARIABLES
    from ...models.catalog import iter_known_models

    settings = Settings.load()
    yield from _list_local_model()
    catalog = list(iter_known_models(tuple(KEY_VARIABLES)))
    prices = settings.at("prices")
    names = {f"{provider}:{name}" for provider, name, _, _ in catalog}
    for name in JsonReader(prices.value if prices is not None else None):
        if name not in names:
            yield _build_listed_model(name, price_of(None, name, settings), None, "priced in the settings")
    for provider, name, _, context in catalog:
        variables = KEY_VARIABLES[provider]
        ready = "ready" if any(map(os.environ.get, variables)) else f"no {variables[0]}"
        price = price_of(provider, name, settings)
        for scheme in _find_schemes(provider, name):
            yield _build_listed_model(f"{scheme}:{name}", price, context, ready)


def _find_schemes(provider: str, name: str) -> list[str]:
    """Return the beginnings of the names under which a model can be used."""
    if provider == "anthropic":
        return [provider]
    if _OTHER_MODELS.search(name):
        return []
    if provider == "google":  # its table has models of other APIs too
        return [provider] if name.startswith(("gemini-", "gemma-")) else []
    has_responses = _RESPONSES_MODELS.match(name) and not _CHAT_ONLY.search(name)
    return ([] if _RESPONSES_ONLY.search(name) else [provider]) + (["openai-responses"] if has_responses else [])


def _build_listed_model(name: str, price: TokenPrice | None, context: int | None, ready: str) -> ListedModel:
    return ListedModel(name, price and price.input, price and price.output, context, ready)


def _list_local_model() -> Iterator[ListedModel]:
    """Yield the model that runs on this machine, if this version has one."""
    from ...models.by_name import named

    try:
        model = named(LOCAL)
    except FlyballError:
        return
    yield ListedModel(LOCAL, 0.0, 0.0, getattr(model, "context_tokens", None), model.ready() or "ready")
