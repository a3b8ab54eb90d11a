"""A model that is asked once, and played back from a file from then on."""

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
from ..errors import ModelError, UsageError
from ..models import Model
from ..models.model import OnText
from ..models.scripted import get_run_id
from ..request import ModelFailure, Reply, Request, estimate_request_tokens
from .cassette import Cassette, RecordedExchange, Recording, Redactor, RequestFingerprint


class RecordedModel:
    """Model that records `model` to a file, or plays an existing file back.

    The file has a fingerprint of each request and each reply or failure as it was received. It has none of the sent
    texts, and *** in place of texts that look like a key, or that are in the model's `secrets()`.

    In playback no model is asked and nothing waits. A run gets the recorded run that starts with the same request. Each
    recorded run is played once. A request that differs fails with a ModelError that says how.

    Delete the file to record again. Without a file, `model` is required. With one, it is used only for its price and
    its secrets.
    """

    def __init__(self, path: str | os.PathLike[str], model: Model | None = None, *, overwrite: bool = False) -> None:
        self.path = Path(path)
        self.playing = not overwrite and self.path.exists()
        """True if the model plays a file back."""
        self._model = model
        self._lock = Lock()
        self._positions: dict[str, _PlaybackPosition] = {}
        self._cassette = self._open_cassette(model)
        self._unplayed = list(self._cassette.recordings)
        self.ask: Callable[[Request, OnText], Reply | Awaitable[Reply]] = self._play
        """Answers from the file, or asks the model and records it. A `def` if the model's `ask` is one."""
        if model is not None and not self.playing:
            self.ask = self._record if inspect.iscoroutinefunction(model.ask) else self._record_sync
        if self._cassette.counts:
            self.count = self._count

    def _open_cassette(self, model: Model | None) -> Cassette:
        if self.playing:
            return Cassette.read(self.path)
        if model is None:
            raise UsageError(f"there is no recording {self.path}: pass a model to record with")
        counts = callable(getattr(model, "count", None))
        bounds = getattr(model, "max_output_tokens", None), getattr(model, "context_tokens", None)
        return Cassette(model.name, model.provider, model.price, counts, *bounds)

    @property
    def name(self) -> str:
        """Name of the model."""
        return self._cassette.name

    @property
    def provider(self) -> str | None:
        """Provider of the model."""
        return self._cassette.provider

    @property
    def price(self) -> Price | None:
        """Price of the model.

        The file has it only if it is a TokenPrice.
        """
        return self._cassette.price if self._model is None else self._model.price

    @property
    def max_output_tokens(self) -> int | None:
        """Maximum tokens of a reply of the model."""
        return self._cassette.max_output_tokens

    @property
    def context_tokens(self) -> int | None:
        """Context size of the model in tokens."""
        return self._cassette.context_tokens

    def secrets(self) -> tuple[str, ...]:
        """Return the secrets of the model."""
        return self._redactor.secrets

    def ready(self) -> str | None:
        """Return None in playback, otherwise the answer of the model."""
        return None if self.playing or self._model is None else self._model.ready()

    def assert_played(self) -> None:
        """Check that every recorded request was sent again."""
        with self._lock:
            unplayed = [recording.exchanges for recording in self._unplayed]
            unplayed += [position.recording.exchanges[position.next_request :] for position in self._positions.values()]
        count = sum(map(len, unplayed)) if self.playing else 0
        assert not count, f"{count} requests of {self.path} were not repeated"

    async def _play(self, request: Request, tell: OnText, /) -> Reply:
        exchange = self._next_exchange(request)
        for piece in exchange.pieces:
            tell(piece)
        return exchange.reply_or_raise()

    def _next_exchange(self, request: Request) -> RecordedExchange:
        with self._lock:
            position = self._get_position(request)
            index = position.next_request
            if index == len(position.recording.exchanges):
                raise self._build_mismatch(f"has {index} requests for this run, but the run makes one more")
            exchange = position.recording.exchanges[index]
            if differences := exchange.request.find_differences(request, self._redactor):
                raise self._build_mismatch(f"differs in request {index + 1} of this run: {'; '.join(differences)}")
            position.next_request += 1
            return exchange

    def _get_position(self, request: Request) -> _PlaybackPosition:
        """Return the position of this run.

        A new run gets the first recorded run that starts with the same request.
        """
        run = get_run_id(request)
        if run not in self._positions:
            if not self.playing:
                self._cassette.recordings.append(Recording())
                self._positions[run] = _PlaybackPosition(self._cassette.recordings[-1])
            else:
                recording = self._find_recording(request)
                self._unplayed.remove(recording)
                self._positions[run] = _PlaybackPosition(recording)
        return self._positions[run]

    def _find_recording(self, request: Request) -> Recording:
        firsts = [(recording, recording.exchanges[0].request) for recording in self._unplayed if recording.exchanges]
        if not firsts:
            raise self._build_mismatch(f"has {len(self._cassette.recordings)} runs, all used; this is one more")
        fingerprint = RequestFingerprint.from_request(request, self._redactor)
        for recording, first in firsts:
            if first == fingerprint:
                return recording
        differences = "; ".join(firsts[0][1].find_differences(request, self._redactor))
        if len(firsts) == 1:
            raise self._build_mismatch(f"differs in request 1 of this run: {differences}")
        raise self._build_mismatch(
            f"has no unused run that starts with this request; the next one differs: {differences}"
        )

    def _build_mismatch(self, problem: str) -> ModelError:
        return ModelError(
            self._redactor.redact_text(f"the recording {self.path} {problem}. Delete the file to record again")
        )

    @property
    def _redactor(self) -> Redactor:
        """Redactor, created for each use.

        A key may be set only when it is needed.
        """
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
        """Record the outcome of a request.

        A cancelled one has neither reply nor failure.
        """
        model = cast("Model", self._model)
        exchange = RecordedExchange(RequestFingerprint.from_request(request, self._redactor))
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
            count = cast("Any", self._model).count(request)
            with self._lock:
                self._get_position(request).recording.counts.append(count)
            return count
        with self._lock:
            position = self._get_position(request)
            index = position.next_count
            position.next_count += 1
            counts = position.recording.counts
            return counts[index] if index < len(counts) else estimate_request_tokens(request)


@dataclass(slots=True)
class _PlaybackPosition:
    """Position of a run in its recording."""

    recording: Recording
    next_request: int = 0
    next_count: int = 0


def record(model: Model, path: str | os.PathLike[str]) -> RecordedModel:
    """Create a model that asks `model` and records it without secrets.

    It replaces an existing recording at `path`.
    """
    return RecordedModel(path, model, overwrite=True)


def playback(path: str | os.PathLike[str]) -> RecordedModel:
    """Create a model that plays back the recording at `path`."""
    return RecordedModel(path)


def _require_reply(reply: object) -> Reply:
    if isinstance(reply, Reply):
        return reply
    raise ModelError(f"the model returned a {type(reply).__name__}; expected a Reply")
