"""llama.cpp in this process, as far as we need it: the one place that knows xllamacpp, which has no types."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol

from ..errors import ModelError

Json = dict[str, Any]

_BATCH = 64
"""Tokens that are read between two looks at whether anybody still waits; more would hardly be read faster."""
_SILENT = -1


class Llama(Protocol):
    """Weights in memory, which can be asked."""

    def handle_chat_completions(self, body: Json, heard: Callable[[Json], bool], /) -> object:
        """Answer in chunks as OpenAI's API does, and stop at the next token once `heard` gives True.

        It blocks, without holding back other threads. What `heard` raises is lost.
        """
        ...


class Load(NamedTuple):
    """How weights are loaded."""

    path: Path
    threads: int
    context_tokens: int


def load(wanted: Load) -> Llama:
    """Read the weights of a file; it takes a moment, and memory."""
    module: Any = import_module("xllamacpp")
    try:
        # It insists on listening somewhere: on a socket that has no name any more when this is done.
        with TemporaryDirectory(prefix="flyball-") as folder:
            return module.Server(_parameters(module, wanted, f"{folder}/llama.sock"))
    except RuntimeError as error:
        raise ModelError(f"{wanted.path} cannot be loaded: {error}") from None


def grammar(schema: Json) -> str:
    """What holds a model to a JSON schema. What of it cannot be enforced is left out."""
    module: Any = import_module("xllamacpp")
    compact = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
    return module.json_schema_to_grammar(json.dumps({**schema, "x-guidance": compact}))


def _parameters(module: Any, wanted: Load, socket: str) -> Any:
    parameters = module.CommonParams()
    parameters.model.path = str(wanted.path)
    parameters.n_ctx = wanted.context_tokens
    parameters.n_parallel = 1
    parameters.n_batch = parameters.n_ubatch = _BATCH
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = wanted.threads
    parameters.n_threads_http = 1
    parameters.hostnames = [socket]
    parameters.ui = parameters.endpoint_slots = False
    parameters.cache_ram_mib = 0  # else it keeps whole conversations, up to gigabytes
    parameters.fit_params = parameters.warmup = False
    parameters.offline = True
    parameters.verbosity = _SILENT
    return parameters
