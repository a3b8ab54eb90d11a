"""llama.cpp in this process. Only this module uses xllamacpp, which has no types.

The hard part is stopping. Native code can be interrupted only between two tokens or batches, and weights that still
work while the interpreter exits would crash it. So one thread per set of weights answers all requests in order, and
`close` stops it and frees the weights at exit.
"""

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
OnChunk = Callable[[Json], None]
_BATCH_TOKENS = 64
"""Tokens read between two checks for cancellation. A larger batch would hardly be faster."""
_SILENT_LOG_LEVEL = -1
_EXIT_TIMEOUT_S = 10.0
"""Seconds that the exit of the program waits for the current token or batch."""
_CLOSED_MESSAGE = "the model is closed, because the program is ending"
_ENGINES: dict[LoadOptions, LlamaEngine] = {}


class LoadOptions(NamedTuple):
    """Parameters for loading weights."""

    path: Path
    threads: int
    context_tokens: int


class Llama(Protocol):
    """Loaded weights."""

    def handle_chat_completions(self, body: Json, on_chunk: Callable[[Json], bool], /) -> object:
        """Answer in chunks of OpenAI's format, and stop once `on_chunk` returns True.

        It blocks, but lets other threads run. An exception of `on_chunk` is lost.
        """
        ...


def get_shared_engine(options: LoadOptions) -> LlamaEngine:
    """Return the engine for these weights, shared by all models of the process."""
    # setdefault is atomic, so threads that come at the same time get the same engine.
    return _ENGINES.setdefault(options, LlamaEngine(partial(load_weights, options)))


class LlamaEngine:
    """Thread that answers requests in order.

    The first request loads the weights.
    """

    def __init__(self, load: Callable[[], Llama]) -> None:
        self._load = load
        self._queue: SimpleQueue[Callable[[], Callable[[], object] | None] | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._pid = 0
        self._llama: Llama | None = None
        self._closed = False

    async def answer(self, body: Json, on_chunk: OnChunk) -> None:
        """Answer a request, calling `on_chunk` in the engine's thread.

        A cancelled caller returns at once, even while another request is answered. Then `on_chunk` is not called any
        more, and the weights stop at the next token. An exception of `on_chunk` ends the answer and is raised here.
        """
        if self._is_inherited:
            raise ModelError("a local model that was used before a fork cannot be used in the child: use spawn")
        job = _CompletionJob(body, on_chunk)
        try:
            await run_and_wait(self, partial(self._run_job, job), inf)
        finally:
            job.is_abandoned = True
        if job.error is not None:
            raise job.error

    def close(self) -> None:
        """Stop at the next token and free the weights.

        Pending requests fail. The program calls this at exit, because weights that still work while the interpreter
        exits would crash it.
        """
        if self._is_inherited:
            return
        with self._lock:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join(_EXIT_TIMEOUT_S)
        atexit.unregister(self.close)

    def start(self, work: Callable[[], Callable[[], object] | None]) -> None:
        """Queue work behind all earlier work, and start the thread if needed."""
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
        """Check whether this is a fork, in which the engine's threads do not exist."""
        return self._thread is not None and self._pid != os.getpid()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            follow_up = work()
            if follow_up is not None:
                follow_up()
        self._llama = None  # free it now, not while the interpreter shuts down

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
        """Pass a chunk on, and return True if the weights should stop."""
        if job.is_abandoned or self._closed:
            return True
        try:
            job.on_chunk(chunk)
        except BaseException as error:  # native code would lose it
            job.error = error
        return job.error is not None


class _CompletionJob:
    """Request to the weights."""

    __slots__ = ("body", "error", "is_abandoned", "on_chunk")

    def __init__(self, body: Json, on_chunk: OnChunk) -> None:
        self.body = body
        self.on_chunk = on_chunk
        self.is_abandoned = False
        """True once the caller has stopped waiting."""
        self.error: BaseException | None = None


def load_weights(options: LoadOptions) -> Llama:
    """Load the weights of a file, which takes time and memory."""
    module: Any = import_module("xllamacpp")
    try:
        # The server must listen on something: a socket whose name is gone once this block ends.
        with TemporaryDirectory(prefix="flyball-") as folder:
            return module.Server(_build_parameters(module, options, f"{folder}/llama.sock"))
    except RuntimeError as error:
        raise ModelError(f"{options.path} cannot be loaded: {error}") from None


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
    parameters.cache_ram_mib = 0  # otherwise it caches whole conversations, up to gigabytes
    parameters.fit_params = parameters.warmup = False
    parameters.offline = True
    parameters.verbosity = _SILENT_LOG_LEVEL
    return parameters


def build_grammar(schema: Json) -> str:
    """Return the grammar that enforces a JSON schema.

    Parts of the schema that cannot be enforced are left out.
    """
    module: Any = import_module("xllamacpp")
    compact = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
    return module.json_schema_to_grammar(json.dumps({**schema, "x-guidance": compact}))
