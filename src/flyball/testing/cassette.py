"""The file of a recorded model: fingerprints of requests, and their replies."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from .._internal.text import REDACTED, redact
from ..budget.price import Price, TokenPrice
from ..budget.usage import Usage
from ..errors import ContextTooLong, ModelError, Retryable, UsageError, quote_value
from ..message import Message, MessageType
from ..request import Call, FailureKind, Finish, ModelFailure, Reply, Request

_VERSION = 1
_KEY = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | (?i:\bbearer\s+)[\w.~+/-]{16,}=*
    | (?<![\w-])(?>(?P<before_token>[\w-]*?)\beyJ)[\w-]{10,}+\.[\w-]{10,}+\.[\w-]+     # a JSON web token
    | (?<![\w-])(?>(?P<before_key>[\w-]*?)\b(?:sk|pk|rk)[-_])(?=[\w-]*\d)[\w-]{16,}
    | \b(?:gh[oprsu]_|github_pat_|glpat-|hf_|npm_|pypi-|xox[a-z]-)[\w-]{16,}
    | \bAKIA[0-9A-Z]{16}\b
    | \bAIza[\w-]{30,}
    """,
    re.VERBOSE | re.DOTALL,
)
"""Keys of known providers: a known prefix, followed by enough characters that it is no word of a sentence.

In a long run of letters only the first prefix is tried. If too little follows it, too little follows a later one.
"""
_SECRET = re.compile(r"(?i)\b(?:bearer\s+|(?:sk|pk|rk|key|api|ghp|gho|xox\w?)[-_])[\w.+/=-]{5,}[\w=]")
"""Possible keys in an error message. It matches more than `_KEY`, because the words of the message do not matter."""
_BASES: Mapping[FailureKind, type[ModelError]] = {
    FailureKind.RETRYABLE: Retryable,
    FailureKind.CONTEXT: ContextTooLong,
    FailureKind.INTERRUPTED: ModelError,
    FailureKind.FINAL: ModelError,
}
_MIN_RUN_ID_CHARS = 8
"""Minimum length of a run id to be normalised. A shorter one could be a word of any text."""


class Redactor:
    """Replaces known secrets, and texts that look like keys, by ***.

    It is idempotent.
    """

    __slots__ = ("_secrets", "secrets")

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self.secrets = tuple(secrets)
        escaped = [json.dumps(secret)[1:-1] for secret in secrets]  # arguments are JSON texts
        self._secrets = tuple({*secrets, *escaped})

    @classmethod
    def for_model(cls, model: object) -> Redactor:
        """Create a redactor for a model's `secrets()`, if it has them."""
        get_secrets = getattr(model, "secrets", None)
        if not callable(get_secrets):
            return cls()
        secrets = get_secrets()
        if isinstance(secrets, str) or not isinstance(secrets, Sequence):
            raise UsageError(f"secrets() of a model must return a list of texts, not a {type(secrets).__name__}")
        return cls([str(secret) for secret in cast("Sequence[object]", secrets)])

    def redact_text(self, text: str) -> str:
        """Return the text without secrets."""
        while (cleaned := _KEY.sub(_hidden, redact(text, self._secrets))) != text:
            text = cleaned
        return text

    def redact(self, value: Any) -> Any:
        """Return the value with secrets removed from all texts in it."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            rows = cast("Mapping[Any, Any]", value)
            return {self.redact(key): self.redact(row) for key, row in rows.items()}
        if isinstance(value, list | tuple):
            return [self.redact(row) for row in cast("Sequence[Any]", value)]
        return value

    def redact_pieces(self, pieces: Sequence[str]) -> list[str]:
        """Return the pieces of a text without secrets.

        If a secret spans several pieces, the text becomes one piece.
        """
        whole = "".join(pieces)
        cleaned = self.redact_text(whole)
        if cleaned == whole:
            return [*pieces]
        cleaned_pieces = [self.redact_text(piece) for piece in pieces]
        return cleaned_pieces if "".join(cleaned_pieces) == cleaned else [cleaned]


def _hidden(match: re.Match[str]) -> str:
    return (match["before_token"] or match["before_key"] or "") + REDACTED


DEFAULT_REDACTOR = Redactor()
"""Redactor without known secrets. It recognises only texts that look like keys."""


@dataclass(frozen=True, slots=True)
class RequestFingerprint:
    """Fingerprint of a request: its texts as digests.

    An empty text means none.
    """

    purpose: str
    instructions: str = ""
    output_schema: str = ""
    tools: dict[str, str] = field(default_factory=dict[str, str])
    notices: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()

    @classmethod
    def from_request(cls, request: Request, redactor: Redactor = DEFAULT_REDACTOR) -> RequestFingerprint:
        """Return the fingerprint of a request.

        It is the same with secrets and with *** in their place.
        """

        def digest(value: object) -> str:
            return _digest(redactor.redact(value))

        return cls(
            purpose=request.purpose.value,
            instructions=digest(request.instructions),
            output_schema=digest(request.output_schema),
            tools={redactor.redact_text(str(tool.get("name"))): digest(tool) for tool in request.tools},
            notices=tuple(digest(notice) for notice in request.notices),
            messages=tuple(
                f"{redactor.redact_text(_describe_message(row))} {digest(_normalize_message(row, request.run_id))}"
                for row in request.messages
            ),
        )

    def to_dict(self, previous: RequestFingerprint | None) -> dict[str, Any]:
        """Return JSON types, with only the messages that differ from `previous`."""
        same = 0 if previous is None else _count_common_prefix(self.messages, previous.messages)
        data: dict[str, Any] = {"purpose": self.purpose}
        for name in ("instructions", "output_schema", "tools", "notices"):
            if value := getattr(self, name):
                data[name] = value
        return {**data, "messages_as_before": same, "messages": self.messages[same:]}

    @classmethod
    def from_dict(cls, data: dict[str, Any], previous: RequestFingerprint | None) -> RequestFingerprint:
        """Read what `to_dict` wrote."""
        same = data["messages_as_before"]
        return cls(
            purpose=data["purpose"],
            instructions=data.get("instructions", ""),
            output_schema=data.get("output_schema", ""),
            tools=data.get("tools", {}),
            notices=tuple(data.get("notices", ())),
            messages=(*(previous.messages[:same] if previous else ()), *data["messages"]),
        )

    def find_differences(self, request: Request, redactor: Redactor = DEFAULT_REDACTOR) -> list[str]:
        """Describe how a request differs.

        An empty list means it is the recorded one.
        """
        current = RequestFingerprint.from_request(request, redactor)
        if current == self:
            return []
        differences: list[str] = []
        if current.purpose != self.purpose:
            differences.append(f"its purpose is {current.purpose}; the recording has {self.purpose}")
        if current.instructions != self.instructions:
            differences.append(f"the instructions are now {quote_value(request.instructions)}")
        if current.output_schema != self.output_schema:
            differences.append("the output schema differs")
        if current.notices != self.notices:
            differences.append(f"the notices are now {quote_value(request.notices)}")
        return differences + self._compare_tools(current) + self._compare_messages(current, request.messages)

    def _compare_tools(self, current: RequestFingerprint) -> list[str]:
        differences = [f"the tool {name} is new" for name in current.tools if name not in self.tools]
        differences += [f"the tool {name} is missing" for name in self.tools if name not in current.tools]
        known = [name for name in current.tools if name in self.tools]
        return differences + [
            f"the description of the tool {name} differs" for name in known if current.tools[name] != self.tools[name]
        ]

    def _compare_messages(self, current: RequestFingerprint, messages: Sequence[Message]) -> list[str]:
        n = _count_common_prefix(current.messages, self.messages)
        if n == len(current.messages) == len(self.messages):
            return []
        if n == len(current.messages):
            return [f"there are {n} messages; the recording has {len(self.messages)}"]
        now = f"message {n + 1} is now {_describe_message(messages[n])} {quote_value(_get_text(messages[n]))}"
        if n == len(self.messages):
            return [f"{now}; the recording has {n} messages"]
        return [f"{now}; the recording has {self.messages[n].rpartition(' ')[0]} with other content"]


def _count_common_prefix(first: Sequence[str], second: Sequence[str]) -> int:
    """Return how many items are equal at the start."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))


def _describe_message(message: Message) -> str:
    name = (message.payload or {}).get("name")
    if message.type in (MessageType.TOOL_CALL, MessageType.TOOL_RESULT):
        return f"a {'call' if message.type is MessageType.TOOL_CALL else 'result'} of {name}"
    return f"a {message.type.value} by the {message.role.value}"


def _get_text(message: Message) -> object:
    return message.content or (message.payload or {}).get("arguments", message.payload)


def _normalize_message(message: Message, run_id: str) -> list[object]:
    content = message.content  # the excerpt of a large result contains its run's id
    if len(run_id) >= _MIN_RUN_ID_CHARS:
        content = content.replace(run_id, "run")
    return [content, message.payload]


def _digest(value: object) -> str:
    if value is None or value == "":
        return ""
    text = json.dumps(value, sort_keys=True, default=str)
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(slots=True)
class RecordedExchange:
    """Recorded request with its reply or failure.

    Neither means it was cancelled.
    """

    request: RequestFingerprint
    pieces: list[str] = field(default_factory=list[str])
    """Streamed pieces of the text, if it was streamed."""
    reply: Reply | None = None
    failure: ModelFailure | None = None

    def reply_or_raise(self) -> Reply:
        """Return the recorded reply, or raise the recorded failure."""
        if self.failure is not None:
            raise _build_error(self.failure)
        if self.reply is None:
            raise ModelError("the recording has no reply here: a deadline or a cancel stopped the request")
        return self.reply

    def to_dict(self, previous: RequestFingerprint | None, redactor: Redactor = DEFAULT_REDACTOR) -> dict[str, Any]:
        """Return JSON types, without secrets."""
        data: dict[str, Any] = {"request": self.request.to_dict(previous)}
        if self.pieces:
            data["pieces"] = redactor.redact_pieces(self.pieces)
        if self.failure is not None:
            failure = redactor.redact(asdict(self.failure))
            return {**data, "failure": {**failure, "message": _SECRET.sub(REDACTED, failure["message"])}}
        return {**data, "reply": None if self.reply is None else redactor.redact(_reply_to_dict(self.reply))}

    @classmethod
    def from_dict(cls, data: dict[str, Any], previous: RequestFingerprint | None) -> RecordedExchange:
        """Read what `to_dict` wrote."""
        failure, reply = data.get("failure"), data.get("reply")
        return cls(
            RequestFingerprint.from_dict(data["request"], previous),
            data.get("pieces", []),
            None if reply is None else _reply_from_dict(reply),
            None if failure is None else _failure_from_dict(failure),
        )


@dataclass(slots=True, eq=False)
class Recording:
    """Recorded run."""

    exchanges: list[RecordedExchange] = field(default_factory=list[RecordedExchange])
    counts: list[int] = field(default_factory=list[int])
    """Token counts by the model's own counter, if it has one, in the order of requests."""

    def to_dict(self, redactor: Redactor) -> dict[str, Any]:
        """Return JSON types, without secrets."""
        previous = [None, *[exchange.request for exchange in self.exchanges]]
        requests = [row.to_dict(before, redactor) for row, before in zip(self.exchanges, previous, strict=False)]
        return {**({"counts": self.counts} if self.counts else {}), "requests": requests}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Recording:
        """Read what `to_dict` wrote."""
        recording, previous = cls(counts=data.get("counts", [])), None
        for row in data["requests"]:
            recording.exchanges.append(RecordedExchange.from_dict(row, previous))
            previous = recording.exchanges[-1].request
        return recording


@dataclass(slots=True)
class Cassette:
    """Content of a recording's file."""

    name: str
    provider: str | None
    price: Price | None
    counts: bool = False
    """Whether the model has its own token counter."""
    max_output_tokens: int | None = None
    context_tokens: int | None = None
    recordings: list[Recording] = field(default_factory=list[Recording])

    def write(self, path: Path, redactor: Redactor = DEFAULT_REDACTOR) -> None:
        """Write the file atomically and without secrets."""
        price = self.price.to_dict() if isinstance(self.price, TokenPrice) else None
        model = {"name": self.name, "provider": self.provider, "price": price, "counts": self.counts}
        bounds = {"max_output_tokens": self.max_output_tokens, "context_tokens": self.context_tokens}
        data = {
            "recording": _VERSION,
            "model": redactor.redact(model | bounds),
            "runs": [recording.to_dict(redactor) for recording in self.recordings],
        }
        text = json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_bytes(text.encode("utf-8", "surrogatepass"))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path) -> Cassette:
        """Read the file, or raise UsageError if it is not a valid recording."""
        try:
            data = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
            if data["recording"] != _VERSION:
                raise ValueError(f"it has version {data['recording']}")
            model = data["model"]
            price = None if model["price"] is None else TokenPrice.from_dict(model["price"])
            recordings = [Recording.from_dict(row) for row in data["runs"]]
            bounds = model.get("max_output_tokens"), model.get("context_tokens")  # older recordings have none
            return cls(model["name"], model["provider"], price, model["counts"], *bounds, recordings)
        except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"{path} is not a valid recording ({reason}): delete the file to record again") from error


def _reply_to_dict(reply: Reply) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments if isinstance(call.arguments, str) else dict(call.arguments),
        }
        for call in reply.calls
    ]
    data: dict[str, Any] = {
        "text": reply.text,
        "calls": calls,
        "usage": None if reply.usage is None else asdict(reply.usage),
        "finish": reply.finish.value,
        "model": reply.model,
        "provider": reply.provider,
    }
    parts = {"parts": [dict(part) for part in reply.parts]} if reply.parts else {}
    extra = {name: value for name in ("id", "detail") if (value := getattr(reply, name))}
    return data | parts | extra


def _reply_from_dict(data: dict[str, Any]) -> Reply:
    usage = data["usage"]
    calls = tuple(Call(call["id"], call["name"], call["arguments"]) for call in data["calls"])
    return Reply(
        data["text"],
        calls,
        None if usage is None else Usage(**usage),
        Finish(data["finish"]),
        data["model"],
        data["provider"],
        tuple(data.get("parts", ())),
        data.get("id"),
        data.get("detail", ""),
    )


def _failure_from_dict(data: dict[str, Any]) -> ModelFailure:
    kind = FailureKind(data["kind"])
    began = data.get("began", False)  # older recordings have none
    return ModelFailure(kind, data["error"], data["code"], data["message"], data["after_s"], began)


def _build_error(failure: ModelFailure) -> Exception:
    """Return an error that looks to a run like the recorded one."""
    base = _BASES[failure.kind]
    is_base = (base.__name__, base.code) == (failure.error, failure.code)
    kind = base if is_base else type(failure.error, (base,), {"code": failure.code})
    if issubclass(kind, Retryable):
        return kind(failure.message, failure.after_s, began=failure.began)
    return kind(failure.message, began=failure.began)
