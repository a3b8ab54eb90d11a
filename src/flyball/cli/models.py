"""`flyball models`: which models can be asked here, and what they cost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from .line import plain, say

_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}


@dataclass(frozen=True, slots=True)
class _Known:
    """A model that can be named."""

    name: str
    price: str
    context_tokens: int | None
    ready: str


def models(
    words: Annotated[list[str] | None, typer.Argument(help="Only those whose names have all these words.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the models that can be asked by name: with their price for a million tokens, and whether the key is there.

    Others can be asked too: any server that speaks OpenAI's chat completions, by http://HOST:PORT/v1#NAME, and any new
    model by its name; without a price no money limit can be held for it.
    """
    found = [one for one in _known() if all(word.lower() in one.name.lower() for word in words or ())]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    width = max((len(one.name) for one in found), default=0)
    for one in found:
        context = "" if one.context_tokens is None else f"reads {one.context_tokens:,}"
        say(plain(f"{one.name:{width}}  {one.price:26}  {context:18}  {one.ready}").rstrip())
    if not found:
        say("no model that is known here has these words; a new one can be asked by its name all the same", err=True)
        raise typer.Exit(1)


def _known() -> Iterator[_Known]:
    from ..models.catalog import known_models

    yield from _local()
    for provider, name, price, context in known_models(tuple(_KEYS)):
        shown = "no price for tokens alone" if price is None else f"${price.input:g} in, ${price.output:g} out"
        ready = "ready" if os.environ.get(_KEYS[provider]) else f"no {_KEYS[provider]}"
        yield _Known(f"{provider}:{name}", shown, context, ready)


def _local() -> Iterator[_Known]:
    from ..models.reference import named

    model = named("local:smollm2")
    yield _Known(
        "local:smollm2", "free, on this machine", getattr(model, "context_tokens", None), model.ready() or "ready"
    )
