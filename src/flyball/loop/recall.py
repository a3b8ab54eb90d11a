"""Recall: the tool `read_artifact`, with which the model reads more of a result that it saw in part.

The loop has every result of the run, so it answers these calls itself, without an effect.
"""

from __future__ import annotations

import json
from dataclasses import replace

from .._internal.jsonable import to_jsonable
from ..event import ToolStarted
from ..outcome import Artifact, Failure, Outcome, Success
from .plan import Prepared
from .request_view import read_result_texts
from .state import RunState

_MAX_CHARACTERS = 8_000
"""Maximum characters of one part."""


def offer_recall(run: RunState, artifact: Artifact, outcome: Outcome) -> None:
    """Offer the tool from the next request on, if the agent has it: a result was shown as an excerpt.

    The usual excerpt names the artifact. An excerpt of the user's own may not, so the outcome gets a note.
    """
    tools = run.spec.tools
    if tools.recall is None:
        return
    if artifact.id not in outcome.text_without_note:
        outcome.add_note(
            f"shortened from {artifact.size:,} characters; {tools.recall['name']} reads more of {artifact.id}"
        )
    if tools.recall in tools.definitions:
        return
    before = run.model.card.base_tokens
    run.spec = run.spec.with_tools(replace(tools, definitions=[*tools.definitions, tools.recall]))
    run.model.use_spec(run.spec)
    run.messages.add_base_tokens(run.model.card.base_tokens - before)


def read_artifact(run: RunState, prepared: Prepared) -> Outcome:
    """Return the outcome of a claimed call of `read_artifact`."""
    call, values = prepared.call, prepared.values
    run.recorder.emit(ToolStarted, call.id, call.name, prepared.redacted_arguments)
    shown = read_result_texts(run.messages.history)
    readable = {
        outcome.artifact.id: outcome
        for outcome in run.progress.results
        if outcome.artifact is not None and outcome.same_as is None and shown.get(outcome.call_id) == outcome.text
    }  # not those that a hook replaced: the model must not read them
    outcome = readable.get(values["id"])
    if outcome is None:
        error = f"this run has no artifact {values['id']!r}; it has {', '.join(readable) or 'none'}"
        return Failure(call_id=call.id, tool=call.name, kind="UnknownArtifact", error=error)
    text = _cut(read_whole(outcome), values["offset"], values["length"])
    return Success(call_id=call.id, tool=call.name, content=text, value=text)


def read_whole(outcome: Outcome) -> str:
    """Return the whole text of an outcome. The model may have seen only an excerpt."""
    if isinstance(outcome, Failure):
        return outcome.error if outcome.whole_error is None else outcome.whole_error
    if not isinstance(outcome, Success) or outcome.artifact is None:
        return outcome.text_without_note
    if isinstance(outcome.value, str):
        return outcome.value
    return json.dumps(to_jsonable(outcome.value), ensure_ascii=False, separators=(",", ":"))


def _cut(text: str, offset: int, length: int) -> str:
    end = min(len(text), offset + min(length, _MAX_CHARACTERS))
    if offset >= len(text):
        return f"The artifact has {len(text)} characters, so there is nothing at offset {offset}."
    more = f"; continue with offset {end}" if end < len(text) else "; this is the end"
    return f"Characters {offset} to {end} of {len(text)}{more}.\n{text[offset:end]}"
