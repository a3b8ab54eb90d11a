"""The file of a recorded model: runs, their requests as imprints, and what was replied."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..budget.price import Price, TokenPrice
from ..budget.usage import Usage
from ..errors import ConfigError, ContextTooLong, ModelError, Retryable
from ..request import Call, FailureKind, Finish, ModelFailure, Reply
from .censor import PLAIN, Censor
from .imprint import Imprint

_VERSION = 1
_SECRET = re.compile(r"(?i)\b(?:bearer\s+|(?:sk|pk|rk|key|api|ghp|gho|xox\w?)[-_])[\w.+/=-]{5,}[\w=]")
"""What may be a key where a provider refuses one, in a message that nobody reads for its words."""
_BASES: Mapping[FailureKind, type[ModelError]] = {
    FailureKind.RETRYABLE: Retryable,
    FailureKind.CONTEXT: ContextTooLong,
    FailureKind.INTERRUPTED: ModelError,
    FailureKind.FINAL: ModelError,
}


@dataclass(slots=True)
class Exchange:
    """A request and what came of it; neither a reply nor a failure is a request that was cut."""

    request: Imprint
    pieces: list[str] = field(default_factory=list[str])
    """The text as it was told, where it was."""
    reply: Reply | None = None
    failure: ModelFailure | None = None

    def outcome(self) -> Reply:
        """The reply again; what failed raises again."""
        if self.failure is not None:
            raise _raised(self.failure)
        if self.reply is None:
            raise ModelError("the recording has no reply here: the request was cut by a deadline or a cancel")
        return self.reply

    def to_dict(self, before: Imprint | None, censor: Censor = PLAIN) -> dict[str, Any]:
        """The same in JSON types, without secrets."""
        written: dict[str, Any] = {"request": self.request.to_dict(before)}
        if self.pieces:
            written["pieces"] = censor.pieces(self.pieces)
        if self.failure is not None:
            failure = censor.clean(asdict(self.failure))
            return {**written, "failure": {**failure, "message": _SECRET.sub("***", failure["message"])}}
        return {**written, "reply": None if self.reply is None else censor.clean(_written(self.reply))}

    @classmethod
    def from_dict(cls, data: dict[str, Any], before: Imprint | None) -> Exchange:
        """Read what `to_dict` wrote."""
        failure, reply = data.get("failure"), data.get("reply")
        return cls(
            Imprint.from_dict(data["request"], before),
            data.get("pieces", []),
            None if reply is None else _reply(reply),
            None if failure is None else _failure(failure),
        )


@dataclass(slots=True, eq=False)
class Take:
    """One run."""

    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    counts: list[int] = field(default_factory=list[int])
    """What the model's own counter said of each request, where it has one."""

    def to_dict(self, censor: Censor) -> dict[str, Any]:
        """The same in JSON types, without secrets."""
        befores = [None, *[exchange.request for exchange in self.exchanges]]
        written = [one.to_dict(before, censor) for one, before in zip(self.exchanges, befores, strict=False)]
        return {**({"counts": self.counts} if self.counts else {}), "requests": written}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Take:
        """Read what `to_dict` wrote."""
        take, before = cls(counts=data.get("counts", [])), None
        for one in data["requests"]:
            take.exchanges.append(Exchange.from_dict(one, before))
            before = take.exchanges[-1].request
        return take


@dataclass(slots=True)
class Tape:
    """All that one file has."""

    name: str
    provider: str | None
    price: Price | None
    counts: bool = False
    """Whether the model has a counter of its own."""
    max_output_tokens: int | None = None
    context_tokens: int | None = None
    takes: list[Take] = field(default_factory=list[Take])

    def write(self, path: Path, censor: Censor = PLAIN) -> None:
        """Write the file, whole or not at all, and without secrets."""
        price = self.price.to_dict() if isinstance(self.price, TokenPrice) else None
        model = {"name": self.name, "provider": self.provider, "price": price, "counts": self.counts}
        bounds = {"max_output_tokens": self.max_output_tokens, "context_tokens": self.context_tokens}
        data = {
            "recording": _VERSION,
            "model": censor.clean(model | bounds),
            "runs": [take.to_dict(censor) for take in self.takes],
        }
        text = json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            beside.write_bytes(text.encode("utf-8", "surrogatepass"))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    @classmethod
    def read(cls, path: Path) -> Tape:
        """Read the file; a ConfigError where it is none of ours."""
        try:
            data = json.loads(path.read_bytes().decode("utf-8", "surrogatepass"))
            if data["recording"] != _VERSION:
                raise ValueError(f"it is of version {data['recording']}")
            model = data["model"]
            price = None if model["price"] is None else TokenPrice.from_dict(model["price"])
            takes = [Take.from_dict(take) for take in data["runs"]]
            bounds = model.get("max_output_tokens"), model.get("context_tokens")  # older recordings have none
            return cls(model["name"], model["provider"], price, model["counts"], *bounds, takes)
        except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
            expected = "what RecordedModel wrote; delete the file to record anew"
            raise ConfigError(f"recording {path}", f"{type(error).__name__}: {error}", expected) from error


def _written(reply: Reply) -> dict[str, Any]:
    calls = [
        {
            "id": call.id,
            "name": call.name,
            "arguments": call.arguments if isinstance(call.arguments, str) else dict(call.arguments),
        }
        for call in reply.calls
    ]
    written: dict[str, Any] = {
        "text": reply.text,
        "calls": calls,
        "usage": None if reply.usage is None else asdict(reply.usage),
        "finish": reply.finish.value,
        "model": reply.model,
        "provider": reply.provider,
    }
    return {**written, "parts": [dict(part) for part in reply.parts]} if reply.parts else written


def _reply(data: dict[str, Any]) -> Reply:
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
    )


def _failure(data: dict[str, Any]) -> ModelFailure:
    kind = FailureKind(data["kind"])
    began = data.get("began", False)  # older recordings have none
    return ModelFailure(kind, data["error"], data["code"], data["message"], data["after_s"], began)


def _raised(failure: ModelFailure) -> Exception:
    """An error that a run cannot tell from the one that was recorded."""
    base = _BASES[failure.kind]
    same = (base.__name__, base.code) == (failure.error, failure.code)
    kind = base if same else type(failure.error, (base,), {"code": failure.code})
    if issubclass(kind, Retryable):
        return kind(failure.message, failure.after_s, began=failure.began)
    return kind(failure.message, began=failure.began)
