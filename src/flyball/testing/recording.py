"""A model that is asked once and played back from then on."""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, cast

from ..budget.price import Price
from ..errors import ConfigError, ModelError
from ..models import Model
from ..models.model import Tell
from ..models.scripted import run_of
from ..request import ModelFailure, Reply, Request, estimate
from .cassette import Cassette, RecordedExchange, Recording, Redactor, RequestFingerprint


@dataclass(slots=True)
class _Head:
    """How far one run is in its take."""

    take: Recording
    asked: int = 0
    counted: int = 0


class RecordedModel:
    """Where there is no file at `path`, it asks `model` and writes the file; where there is one, it plays that back.

    The file has an imprint of each request and each reply or failure as it came, but none of the texts that were sent,
    and *** for each secret: for what looks like a key, and for what the model's `secrets()` tells, if it has that.
    Played back, nothing is asked and nothing waits. A run gets the recorded run that begins with the same request, each
    is played once, and a request that differs fails with a ModelError that says what does. Delete the file to record
    anew. Without a file, `model` must be given; with one, it is used for its price and its secrets only.
    """

    def __init__(self, path: str | os.PathLike[str], model: Model | None = None, *, anew: bool = False) -> None:
        self.path = Path(path)
        self.playing = not anew and self.path.exists()
        """Whether there is a file, and so nothing is asked."""
        self._model = model
        self._lock = Lock()
        self._heads: dict[str, _Head] = {}
        self._tape = self._tape_of(model)
        self._unplayed = list(self._tape.takes)
        self.ask: Callable[[Request, Tell], Reply | Awaitable[Reply]] = self._play
        """Answers from the file, or asks the model and writes it down; a `def` where it asks one that is a `def`."""
        if model is not None and not self.playing:
            self.ask = self._record if inspect.iscoroutinefunction(model.ask) else self._record_def
        if self._tape.counts:
            self.count = self._count

    def _tape_of(self, model: Model | None) -> Cassette:
        if self.playing:
            return Cassette.read(self.path)
        if model is None:
            raise ConfigError("recorded model", f"no file {self.path}", "a recording, or a model to make one with")
        counts = callable(getattr(model, "count", None))
        bounds = getattr(model, "max_output_tokens", None), getattr(model, "context_tokens", None)
        return Cassette(model.name, model.provider, model.price, counts, *bounds)

    @property
    def name(self) -> str:
        """That of the model."""
        return self._tape.name

    @property
    def provider(self) -> str | None:
        """That of the model."""
        return self._tape.provider

    @property
    def price(self) -> Price | None:
        """That of the model; the file has it where it is a TokenPrice."""
        return self._tape.price if self._model is None else self._model.price

    @property
    def max_output_tokens(self) -> int | None:
        """That of the model."""
        return self._tape.max_output_tokens

    @property
    def context_tokens(self) -> int | None:
        """That of the model."""
        return self._tape.context_tokens

    def secrets(self) -> tuple[str, ...]:
        """Those of the model."""
        return self._censor.secrets

    def ready(self) -> str | None:
        """A recording is; else what the model says."""
        return None if self.playing or self._model is None else self._model.ready()

    def assert_played(self) -> None:
        """Check that every recorded request was asked again."""
        with self._lock:
            left = [take.exchanges for take in self._unplayed]
            left += [head.take.exchanges[head.asked :] for head in self._heads.values()]
        unasked = sum(map(len, left)) if self.playing else 0
        assert not unasked, f"{unasked} requests of {self.path} were not asked again"

    async def _play(self, request: Request, tell: Tell, /) -> Reply:
        exchange = self._next(request)
        for piece in exchange.pieces:
            tell(piece)
        return exchange.outcome()

    def _next(self, request: Request) -> RecordedExchange:
        with self._lock:
            head = self._head(request)
            place = head.asked
            if place == len(head.take.exchanges):
                raise self._unlike(f"has {place} requests for this run, and this is another")
            exchange = head.take.exchanges[place]
            if wrong := exchange.request.differences(request, self._censor):
                raise self._unlike(f"differs in request {place + 1} of this run: {'; '.join(wrong)}")
            head.asked += 1
            return exchange

    def _head(self, request: Request) -> _Head:
        """How far this run is; a new one gets the first recorded run that begins as it does."""
        run = run_of(request)
        if run not in self._heads:
            if not self.playing:
                self._tape.takes.append(Recording())
                self._heads[run] = _Head(self._tape.takes[-1])
            else:
                take = self._beginning_with(request)
                self._unplayed.remove(take)
                self._heads[run] = _Head(take)
        return self._heads[run]

    def _beginning_with(self, request: Request) -> Recording:
        firsts = [(take, take.exchanges[0].request) for take in self._unplayed if take.exchanges]
        if not firsts:
            raise self._unlike(f"has {len(self._tape.takes)} runs, all played; this is another")
        imprint = RequestFingerprint.of(request, self._censor)
        for take, first in firsts:
            if first == imprint:
                return take
        wrong = "; ".join(firsts[0][1].differences(request, self._censor))
        if len(firsts) == 1:
            raise self._unlike(f"differs in request 1 of this run: {wrong}")
        raise self._unlike(f"has no run left that begins with this request; the next one differs: {wrong}")

    def _unlike(self, what: str) -> ModelError:
        return ModelError(self._censor.text(f"the recording {self.path} {what}. Delete the file to record anew"))

    @property
    def _censor(self) -> Redactor:
        """Made for each use: a key may be given to the environment only when it is needed."""
        return Redactor.of(self._model)

    async def _record(self, request: Request, tell: Tell, /) -> Reply:
        with self._written(request, tell) as (exchange, ask):
            exchange.reply = _whole(await cast("Awaitable[Reply]", ask()))
            return exchange.reply

    def _record_def(self, request: Request, tell: Tell, /) -> Reply:
        with self._written(request, tell) as (exchange, ask):
            exchange.reply = _whole(ask())
            return exchange.reply

    @contextmanager
    def _written(self, request: Request, tell: Tell) -> Generator[tuple[RecordedExchange, Callable[[], object]]]:
        """Write down what comes of a request, whatever does; one that is cut has neither reply nor failure."""
        model, exchange = cast("Model", self._model), RecordedExchange(RequestFingerprint.of(request, self._censor))
        with self._lock:
            self._head(request).take.exchanges.append(exchange)

        def heard(text: str) -> None:
            exchange.pieces.append(text)
            tell(text)

        try:
            yield exchange, partial(model.ask, request, heard)
        except (Exception, SystemExit) as error:
            exchange.failure = ModelFailure.of(error)
            raise
        finally:
            with self._lock:
                self._tape.write(self.path, self._censor)

    def _count(self, request: Request) -> int:
        if not self.playing:
            counted = cast("Any", self._model).count(request)
            with self._lock:
                self._head(request).take.counts.append(counted)
            return counted
        with self._lock:
            head = self._head(request)
            head.counted += 1
            counts = head.take.counts
            return counts[head.counted - 1] if head.counted <= len(counts) else estimate(request)


def record(model: Model, path: str | os.PathLike[str]) -> RecordedModel:
    """A model that asks `model`, also where there is a recording at `path`, and writes that anew, without secrets."""
    return RecordedModel(path, model, anew=True)


def playback(path: str | os.PathLike[str]) -> RecordedModel:
    """A model that plays the recording at `path` back, and asks nobody."""
    return RecordedModel(path)


def _whole(reply: object) -> Reply:
    if isinstance(reply, Reply):
        return reply
    raise ModelError(f"the model gave a {type(reply).__name__}; expected a Reply")
