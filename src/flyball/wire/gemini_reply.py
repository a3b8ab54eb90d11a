"""Parser for replies of Gemini's generateContent API."""

from __future__ import annotations

from collections.abc import Callable

from ..request import Finish
from .gemini_contents import wrap_part
from .images import get_either
from .reply_parser import Json, PartialCall, ReplyParser, expect_dict, expect_list, expect_text, malformed_reply

_FINISHES = {
    "STOP": Finish.STOP,
    "MAX_TOKENS": Finish.LENGTH,
    "CONTINUATION": Finish.LENGTH,
    **dict.fromkeys(
        (
            "SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "MODEL_ARMOR", "ESCALATION", "PUP_LIMITED_DISABLED",
        ),
        Finish.CONTENT_FILTER,
    ),
}  # fmt: skip
_BROKEN = frozenset(
    {
        "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS",
        "MISSING_THOUGHT_SIGNATURE", "OTHER", "IMAGE_OTHER", "NO_IMAGE",
    }
)  # fmt: skip
"""Finish reasons of output that is not usable or not complete. The next reply may be."""
_NOT_FINISHED = ("", "FINISH_REASON_UNSPECIFIED")


class GeminiReplyParser(ReplyParser):
    """Parser for chunks. Each has the form of a whole reply."""

    def __init__(self, provider: str | None, on_text: Callable[[str], None] | None = None) -> None:
        super().__init__(provider, on_text)
        self._usage_so_far: object = None
        """Usage of the newest chunk. It counts only at the end, because it grows with each chunk."""
        self._signatures: dict[str | int, int] = {}
        """Places among the parts of the signatures, by what they sign."""

    def parse_event(self, event: Json) -> None:
        """Parse a chunk. The last one has a finish reason."""
        self.id = self.id or expect_text(get_either(event, "responseId")) or None
        self.model = self.model or expect_text(get_either(event, "modelVersion")) or None
        self._usage_so_far = get_either(event, "usageMetadata") or self._usage_so_far
        blocked = expect_dict(get_either(event, "promptFeedback"), "feedback")
        reason = get_either(blocked, "blockReason")
        if reason is not None:
            self.finish, self.detail = Finish.CONTENT_FILTER, str(reason)
        candidates = expect_list(event.get("candidates"), "candidates")
        candidate = expect_dict(candidates[0] if candidates else None, "a candidate")
        content = expect_dict(candidate.get("content"), "a content")
        for part in expect_list(content.get("parts"), "parts"):
            self._parse_part(expect_dict(part, "a part"))
        reason = expect_text(get_either(candidate, "finishReason"))
        is_finished = reason not in _NOT_FINISHED
        if self._usage_so_far is not None and (is_finished or self.finish is not None):
            self.set_usage(self._usage_so_far)
        if is_finished:
            self._set_finish(reason, get_either(candidate, "finishMessage"))

    def parse_reply(self, reply: Json) -> None:
        """Parse a reply that was not streamed."""
        self.parse_event(reply)

    def _parse_part(self, part: Json) -> None:
        signature = get_either(part, "thoughtSignature")
        call = get_either(part, "functionCall")
        if call is not None:
            self._add_call(expect_dict(call, "a call"), signature)
        elif part.get("thought"):
            self.piece_count += 1
        elif "text" in part:
            self.add_text(part["text"])
            if signature is not None:
                self._keep_signature(signature, "text")
        elif part:
            self.piece_count += 1
            place: Json = {"before": len(self.calls)} if self.calls or self.has_text else {}
            self.parts.append(wrap_part(part, next(iter(part)), **place))

    def _add_call(self, fields: Json, signature: object) -> None:
        self.piece_count += 1
        if signature is not None:
            self._keep_signature(signature, len(self.calls))
        call = PartialCall(expect_text(fields.get("id")), expect_text(fields.get("name")))
        call.add_arguments(fields.get("args"))
        self.calls.append(call)

    def _keep_signature(self, signature: object, of: str | int) -> None:
        """Keep the signature of a part, because the API wants it back."""
        part = wrap_part({"thoughtSignature": expect_text(signature)}, "signature", of=of)
        place = self._signatures.setdefault(of, len(self.parts))
        self.parts[place : place + 1] = [part]

    def _set_finish(self, reason: str, message: object) -> None:
        why = f"{reason}: {message}" if isinstance(message, str) and message else reason
        if reason in _BROKEN:
            raise malformed_reply(f"the provider ended it with {why}")
        self.finish, self.is_ended = _FINISHES.get(reason, Finish.STOP), True
        if self.finish is Finish.CONTENT_FILTER:
            self.detail = why
