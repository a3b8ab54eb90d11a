"""llama.cpp in this process, as far as we need it: the one place that knows xllamacpp, which has no types."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Callable
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any, NamedTuple, Protocol

from .._internal.workers import run_and_wait
from ..errors import ModelError

Json = dict[str, Any]

_BATCH_TOKENS = 64
"""Tokens that are read between two looks at whether anybody still waits; more would hardly be read faster."""
_SILENT_LOG_LEVEL = -1


class Llama(Protocol):
    """Weights in memory, which can be asked."""

    def handle_chat_completions(self, body: Json, on_chunk: Callable[[Json], bool], /) -> object:
        """Answer in chunks as OpenAI's API does, and stop at the next token once `heard` gives True.

        It blocks, without holding back other threads. What `heard` raises is lost.
        """
        ...


class LoadOptions(NamedTuple):
    """How weights are loaded."""

    path: Path
    threads: int
    context_tokens: int


def load_weights(options: LoadOptions) -> Llama:
    """Read the weights of a file; it takes a moment, and memory."""
    module: Any = import_module("xllamacpp")
    try:
        # It insists on listening somewhere: on a socket that has no name any more when this is done.
        with TemporaryDirectory(prefix="flyball-") as folder:
            return module.Server(_build_parameters(module, options, f"{folder}/llama.sock"))
    except RuntimeError as error:
        raise ModelError(f"{options.path} cannot be loaded: {error}") from None


def build_grammar(schema: Json) -> str:
    """What holds a model to a JSON schema. What of it cannot be enforced is left out."""
    module: Any = import_module("xllamacpp")
    compact = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
    return module.json_schema_to_grammar(json.dumps({**schema, "x-guidance": compact}))


def _build_parameters(module: Any, options: LoadOptions, socket: str) -> Any:
    parameters = module.CommonParams()
    parameters.model.path = str(options.path)
    parameters.n_ctx = options.context_tokens
    parameters.n_parallel = 1
    parameters.n_batch = parameters.n_ubatch = _BATCH_TOKENS
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = options.threads
    parameters.n_threads_http = 1
    parameters.hostnames = [socket]
    parameters.ui = parameters.endpoint_slots = False
    parameters.cache_ram_mib = 0  # else it keeps whole conversations, up to gigabytes
    parameters.fit_params = parameters.warmup = False
    parameters.offline = True
    parameters.verbosity = _SILENT_LOG_LEVEL
    return parameters


OnChunk = Callable[[Json], None]
_EXIT_S = 10.0
"""How long the end of a program waits for a token, or for a batch that is being read."""
_CLOSED_MESSAGE = "the weights are closed, because the program ends"


class _CompletionJob:
    """One question to the weights."""

    __slots__ = ("body", "error", "is_abandoned", "on_chunk")

    def __init__(self, body: Json, on_chunk: OnChunk) -> None:
        self.body = body
        self.on_chunk = on_chunk
        self.is_abandoned = False
        """Whether nobody waits for it any more."""
        self.error: BaseException | None = None


class LlamaEngine:
    """Answers one question after the other, in the order in which they come; the first one loads the weights."""

    def __init__(self, load: Callable[[], Llama]) -> None:
        self._load = load
        self._queue: SimpleQueue[Callable[[], Callable[[], object] | None] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._pid = 0
        self._llama: Llama | None = None
        self._closed = False

    async def answer(self, body: Json, on_chunk: OnChunk) -> None:
        """Have the question answered, and hear each chunk, in the engine's thread.

        Who is cancelled leaves at once, also while others are answered; then nothing more is heard, and the weights are
        left alone at the next token. What `hear` raises ends the answer, and is raised here.
        """
        if self._is_inherited:
            raise ModelError("a local model that was asked before a fork cannot be asked in the child: use spawn")
        job = _CompletionJob(body, on_chunk)
        try:
            await run_and_wait(self, partial(self._run_job, job), inf)
        finally:
            job.is_abandoned = True
        if job.error is not None:
            raise job.error

    def close(self) -> None:
        """Stop at the next token and free the weights; what is still to be answered fails. The program's end does it.

        Weights that are at work while the interpreter ends would crash it.
        """
        if self._is_inherited:
            return
        with self._lock:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join(_EXIT_S)
        atexit.unregister(self.close)

    def start(self, work: Callable[[], Callable[[], object] | None]) -> None:
        """Do this when everything before it is done."""
        with self._lock:
            if self._closed:
                raise ModelError(_CLOSED_MESSAGE)
            if self._thread is None:
                thread = Thread(target=self._run, name="flyball-llama", daemon=True)
                thread.start()
                self._thread, self._pid = thread, os.getpid()
                atexit.register(self.close)
            self._queue.put(work)

    @property
    def _is_inherited(self) -> bool:
        """Whether this is a forked child of who loaded the weights: neither their threads nor ours live on in it."""
        return self._thread is not None and self._pid != os.getpid()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            then = work()
            if then is not None:
                then()
        self._llama = None  # freed here and now, and not while the interpreter is taken apart

    def _run_job(self, job: _CompletionJob) -> None:
        try:
            if not job.is_abandoned and not self._closed:
                self._llama = self._llama or self._load()
                self._llama.handle_chat_completions(job.body, partial(self._deliver_chunk, job))
            if self._closed:
                raise ModelError(_CLOSED_MESSAGE)
        except BaseException as error:
            job.error = job.error or error

    def _deliver_chunk(self, job: _CompletionJob, chunk: Json) -> bool:
        """Whether that was enough."""
        if job.is_abandoned or self._closed:
            return True
        try:
            job.on_chunk(chunk)
        except BaseException as error:  # it would be lost outside
            job.error = error
        return job.error is not None


_ENGINES: dict[LoadOptions, LlamaEngine] = {}


def get_shared_engine(options: LoadOptions) -> LlamaEngine:
    """The engine for these weights; every model of this process that wants the same has the same."""
    return _ENGINES.setdefault(
        options, LlamaEngine(partial(load_weights, options))
    )  # one step, if many threads come first
