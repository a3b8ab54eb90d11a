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
from ..models.model import OnText
from ..models.scripted import get_run_id
from ..request import ModelFailure, Reply, Request, estimate_request_tokens
from .cassette import Cassette, RecordedExchange, Recording, Redactor, RequestFingerprint


@dataclass(slots=True)
class _PlaybackPosition:
    """How far one run is in its take."""

    recording: Recording
    next_request: int = 0
    next_count: int = 0


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
        self._positions: dict[str, _PlaybackPosition] = {}
        self._cassette = self._open_cassette(model)
        self._unplayed = list(self._cassette.recordings)
        self.ask: Callable[[Request, OnText], Reply | Awaitable[Reply]] = self._play
        """Answers from the file, or asks the model and writes it down; a `def` where it asks one that is a `def`."""
        if model is not None and not self.playing:
            self.ask = self._record if inspect.iscoroutinefunction(model.ask) else self._record_sync
        if self._cassette.counts:
            self.count = self._count

    def _open_cassette(self, model: Model | None) -> Cassette:
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
        return self._cassette.name

    @property
    def provider(self) -> str | None:
        """That of the model."""
        return self._cassette.provider

    @property
    def price(self) -> Price | None:
        """That of the model; the file has it where it is a TokenPrice."""
        return self._cassette.price if self._model is None else self._model.price

    @property
    def max_output_tokens(self) -> int | None:
        """That of the model."""
        return self._cassette.max_output_tokens

    @property
    def context_tokens(self) -> int | None:
        """That of the model."""
        return self._cassette.context_tokens

    def secrets(self) -> tuple[str, ...]:
        """Those of the model."""
        return self._redactor.secrets

    def ready(self) -> str | None:
        """A recording is; else what the model says."""
        return None if self.playing or self._model is None else self._model.ready()

    def assert_played(self) -> None:
        """Check that every recorded request was asked again."""
        with self._lock:
            left = [take.exchanges for take in self._unplayed]
            left += [head.recording.exchanges[head.next_request :] for head in self._positions.values()]
        unasked = sum(map(len, left)) if self.playing else 0
        assert not unasked, f"{unasked} requests of {self.path} were not asked again"

    async def _play(self, request: Request, tell: OnText, /) -> Reply:
        exchange = self._next_exchange(request)
        for piece in exchange.pieces:
            tell(piece)
        return exchange.reply_or_raise()

    def _next_exchange(self, request: Request) -> RecordedExchange:
        with self._lock:
            head = self._get_position(request)
            place = head.next_request
            if place == len(head.recording.exchanges):
                raise self._build_mismatch(f"has {place} requests for this run, and this is another")
            exchange = head.recording.exchanges[place]
            if wrong := exchange.request.find_differences(request, self._redactor):
                raise self._build_mismatch(f"differs in request {place + 1} of this run: {'; '.join(wrong)}")
            head.next_request += 1
            return exchange

    def _get_position(self, request: Request) -> _PlaybackPosition:
        """How far this run is; a new one gets the first recorded run that begins as it does."""
        run = get_run_id(request)
        if run not in self._positions:
            if not self.playing:
                self._cassette.recordings.append(Recording())
                self._positions[run] = _PlaybackPosition(self._cassette.recordings[-1])
            else:
                take = self._find_recording(request)
                self._unplayed.remove(take)
                self._positions[run] = _PlaybackPosition(take)
        return self._positions[run]

    def _find_recording(self, request: Request) -> Recording:
        firsts = [(take, take.exchanges[0].request) for take in self._unplayed if take.exchanges]
        if not firsts:
            raise self._build_mismatch(f"has {len(self._cassette.recordings)} runs, all played; this is another")
        imprint = RequestFingerprint.from_request(request, self._redactor)
        for take, first in firsts:
            if first == imprint:
                return take
        wrong = "; ".join(firsts[0][1].find_differences(request, self._redactor))
        if len(firsts) == 1:
            raise self._build_mismatch(f"differs in request 1 of this run: {wrong}")
        raise self._build_mismatch(f"has no run left that begins with this request; the next one differs: {wrong}")

    def _build_mismatch(self, problem: str) -> ModelError:
        return ModelError(
            self._redactor.redact_text(f"the recording {self.path} {problem}. Delete the file to record anew")
        )

    @property
    def _redactor(self) -> Redactor:
        """Made for each use: a key may be given to the environment only when it is needed."""
        return Redactor.for_model(self._model)

    async def _record(self, request: Request, tell: OnText, /) -> Reply:
        with self._record_exchange(request, tell) as (exchange, ask):
            exchange.reply = _require_reply(await cast("Awaitable[Reply]", ask()))
            return exchange.reply

    def _record_sync(self, request: Request, tell: OnText, /) -> Reply:
        with self._record_exchange(request, tell) as (exchange, ask):
            exchange.reply = _require_reply(ask())
            return exchange.reply

    @contextmanager
    def _record_exchange(
        self, request: Request, tell: OnText
    ) -> Generator[tuple[RecordedExchange, Callable[[], object]]]:
        """Write down what comes of a request, whatever does; one that is cut has neither reply nor failure."""
        model, exchange = (
            cast("Model", self._model),
            RecordedExchange(RequestFingerprint.from_request(request, self._redactor)),
        )
        with self._lock:
            self._get_position(request).recording.exchanges.append(exchange)

        def on_text(text: str) -> None:
            exchange.pieces.append(text)
            tell(text)

        try:
            yield exchange, partial(model.ask, request, on_text)
        except (Exception, SystemExit) as error:
            exchange.failure = ModelFailure.from_error(error)
            raise
        finally:
            with self._lock:
                self._cassette.write(self.path, self._redactor)

    def _count(self, request: Request) -> int:
        if not self.playing:
            counted = cast("Any", self._model).count(request)
            with self._lock:
                self._get_position(request).recording.counts.append(counted)
            return counted
        with self._lock:
            head = self._get_position(request)
            head.next_count += 1
            counts = head.recording.counts
            return counts[head.next_count - 1] if head.next_count <= len(counts) else estimate_request_tokens(request)


def record(model: Model, path: str | os.PathLike[str]) -> RecordedModel:
    """A model that asks `model`, also where there is a recording at `path`, and writes that anew, without secrets."""
    return RecordedModel(path, model, anew=True)


def playback(path: str | os.PathLike[str]) -> RecordedModel:
    """A model that plays the recording at `path` back, and asks nobody."""
    return RecordedModel(path)


def _require_reply(reply: object) -> Reply:
    if isinstance(reply, Reply):
        return reply
    raise ModelError(f"the model gave a {type(reply).__name__}; expected a Reply")
