"""Requests of a framework's agents: each is a turn, the last request of its conversation, or gets a synthetic reply."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..budget.price import Unpriced
from ..errors import ContextTooLong, ModelError, Retryable, UsageError
from ..event import AskedPerson, ModelReplied, ModelRequested, PersonAnswered, ToolEnded, ToolStarted
from ..governor.client_call import is_temporary, is_unbilled
from ..governor.model_card import GovernedModel, find_known_model
from ..governor.report_request import write_report_request
from ..governor.reservation import TOKENS_PER_BYTE, Need
from ..models.failures import is_too_long
from ..outcome import Status, Success
from ..person import Question, Verdict
from ..request import Call, Purpose, Reply
from ..result import Stop
from .agent_conversation import AgentConversation, AgentConversations, StartedCall
from .model_port import AskedModel, Edits, ModelPort, ReplyCut
from .request_steps import Answered, AskStep, ReserveStep, SendStep, StepGenerator

if TYPE_CHECKING:
    from ..governor.ending import RunEnding
    from ..governor.governed_run import GovernedRun
    from ..governor.reserved_turn import ReservedTurn
    from ..person import Approver
    from .adapter_options import AdapterOptions

R = TypeVar("R")
_TURN, _GRACE = Purpose.TURN.value, Purpose.GRACE.value
_REPORT_TOKENS = 500
"""Output tokens to reserve for each report."""
_MIN_REPLY_TOKENS = 16
_DEFAULT_REPLY_TOKENS = 16_384
"""Longest reply of a request that names none, if tokens or money are limited."""
_ENOUGH_REPLY_TOKENS = 4_096
"""Longest reply with which a request goes out at once, although it could have a longer one later."""
_MAX_SYNTHETIC_REPLIES = 10
"""Replies without a model after which a conversation is one of a loop that does not end by itself."""
_SLOWEST_FACTOR = 1.5
"""Part of the time reserve: this many times the slowest reply."""


@dataclass(slots=True)
class ModelExchange:
    """Decision about a request."""

    conversation: AgentConversation
    asked: AskedModel
    turn: ReservedTurn | None = None
    """Claim of the request. None means that it gets `made_text` as its reply."""
    edits: Edits = field(default_factory=Edits)
    made_text: str = ""
    input_tokens: int = 0
    """Estimate."""
    started_at: float = 0.0

    @property
    def purpose(self) -> str:
        """Purpose of the request, for events."""
        return _GRACE if self.edits.is_last else _TURN


class ModelRequests:
    """Decides about the requests of one run, and counts their replies."""

    def __init__(
        self, run: GovernedRun, ending: RunEnding, options: AdapterOptions, *, refuses_unpriced: Unpriced | str
    ) -> None:
        self._run = run
        self._ending = ending
        self._options = options
        self._refuses_unpriced = refuses_unpriced == Unpriced.REFUSE
        self.conversations = AgentConversations()
        self._cards: dict[str, GovernedModel] = {}
        self._failure: BaseException | None = None
        """Error of the latest request that failed."""
        self._slowest_s = 0.0
        self._refused = ""
        """Why no request may be made at all. Empty means that they may."""
        budgets = run.envelope.budgets
        self._is_limited = budgets["tokens"].ceiling is not None or budgets.find_ceiling("usd") is not None
        self._share_s = run.envelope.reserve_s

    def ask(self, conversation: AgentConversation, asked: AskedModel, port: ModelPort[R]) -> StepGenerator[R]:
        """Make a request of an agent; return the framework's reply to hand on."""
        notes: tuple[str, ...] = ()
        while True:
            exchange = yield from self._admit(conversation, asked, notes)
            answered = yield from self._exchange(exchange, port)
            if (
                answered is None and not exchange.edits.is_last and exchange.turn is not None
            ):  # no time, or no room for it
                exchange = yield from self._end_conversation(conversation, asked)
                answered = yield from self._exchange(exchange, port)
            if answered is None:
                return port.make(exchange.made_text or self._make_report(conversation), None)
            if exchange.edits.is_last:
                return self._finish_report(exchange, answered, port)
            denied = yield from self.judge(exchange, answered.reply)
            if not denied:
                return answered.raw
            if len(denied) < len(answered.reply.calls):
                return port.drop_calls(answered.raw, list(denied))
            names = {call.id: call.name for call in answered.reply.calls}
            notes = tuple(f"The call of {names[call_id]} was denied: {reason}" for call_id, reason in denied.items())

    def refuse_all(self, budget: str) -> None:
        """Give each request of the run a synthetic reply, because of a budget of the run above it."""
        refusal = self._run.envelope.refuse(budget)
        self._refused = refusal.warning
        self._run.record_refusal(refusal)

    def allow_level(self, level: int) -> bool:
        """Check whether an agent may be this many levels below the first one."""
        depth = self._run.envelope.budgets["depth"]
        with self._run.lock:
            if depth.ceiling is not None and level > depth.ceiling:
                self._run.envelope.refuse("depth")
                self._run.tell_refusals()
                return False
            if level > depth.used:
                depth.consume(level - depth.used)
        return True

    def end_calls(self, conversation: AgentConversation, results: Mapping[str, str]) -> None:
        """Record the calls whose results are there."""
        has_rules = self._run.active_rules is not None
        for call_id in [call_id for call_id in conversation.open_calls if call_id in results]:
            call = conversation.open_calls.pop(call_id)
            seconds = self._run.now() - call.started_at
            if has_rules and conversation.turn is not None:
                conversation.turn.tool_ended(Success.create(call_id, call.tool, seconds, results[call_id], None))
            self._run.tell(ToolEnded, call_id, call.tool, Status.DONE.value, None, seconds)

    def judge(self, exchange: ModelExchange, reply: Reply) -> StepGenerator[dict[str, str]]:
        """Claim the calls of a reply. Returns the reasons for the denied ones, by id."""
        denied: dict[str, str] = {}
        asked = exchange.asked
        for call in reply.calls:
            if call.name != asked.final_tool and call.name not in asked.handoffs:
                reason = yield from self._claim_call(exchange.conversation, call)
                if reason is not None:
                    denied[call.id] = reason
        return denied

    def _claim_call(self, conversation: AgentConversation, call: Call) -> StepGenerator[str | None]:
        """Claim a tool call; return why it is denied, or None."""
        turn, arguments = cast("ReservedTurn", conversation.turn), parse_arguments(call.arguments)
        is_claimed = turn.claim_tool(call.name, arguments)
        reason = turn.denied
        if not is_claimed and turn.question is not None and self._options.approver is not None:
            verdict = yield from self._ask_person(turn, call, arguments, turn.question)
            is_claimed = verdict.approved is True and turn.claim_tool(call.name, arguments, is_approved=True)
            reason = (
                turn.denied if verdict.approved is True else f"a person denied it: {verdict.text}".removesuffix(": ")
            )
        if is_claimed:
            conversation.open_calls[call.id] = StartedCall(call.name, self._run.now())
            self._run.tell_about(turn, ToolStarted, call.id, call.name, arguments)
            return None
        if reason is None and self._has_no_calls_left():
            reason = "the limit of tool calls is reached"
        reason = reason or f"the limit of calls of {call.name} is reached"
        self._run.tell_about(turn, ToolEnded, call.id, call.name, Status.DENIED.value, reason, 0.0)
        return reason

    def _ask_person(
        self, turn: ReservedTurn, call: Call, arguments: Mapping[str, Any], text: str
    ) -> StepGenerator[Verdict]:
        question = Question(call.id, text, tool=call.name, arguments=arguments)
        options, started_at = self._options, self._run.now()
        self._run.tell_about(turn, AskedPerson, question.id, text)
        seconds = math.inf if options.approver_seconds is None else options.approver_seconds
        verdict = cast("Verdict", (yield AskStep(question, cast("Approver", options.approver), seconds)))
        self._run.postpone(self._run.now() - started_at, "approval")
        self._run.tell_about(turn, PersonAnswered, question.id, verdict.approved, verdict.text)
        return verdict

    def close(self) -> None:
        """End all conversations."""
        for conversation in self.conversations.all:
            for call_id, call in conversation.open_calls.items():
                seconds = self._run.now() - call.started_at
                self._run.tell(ToolEnded, call_id, call.tool, Status.CANCELLED.value, "the run ended", seconds)
            conversation.open_calls.clear()
            self._end_turn(conversation)

    def describe(self) -> list[dict[str, object]]:
        """Return the facts about each conversation, for the result. The gateway gives them the same names."""
        return [
            {
                "name": one.agent or f"conversation {one.number}",
                "model": one.model,
                "level": one.level,
                "turns": one.turns,
                "requests": one.requests,
                "input_tokens": one.input_tokens,
                "output_tokens": one.output_tokens,
                "reported": one.reported,
            }
            for one in self.conversations.all
        ]

    def describe_failure(self, error: BaseException | None) -> BaseException | None:
        """Return the error of the run: that of a model as a ModelError, another one as it is."""
        if error is None or not isinstance(error, Exception) or not _is_caused_by(error, self._failure):
            return error
        if isinstance(error, ModelError):
            return error
        text = f"{type(error).__name__}: {error}"
        if is_unbilled(error) and is_too_long("", text):
            return ContextTooLong(text)
        return Retryable(text) if is_temporary(error) else ModelError(text)

    def _admit(
        self, conversation: AgentConversation, asked: AskedModel, notes: tuple[str, ...]
    ) -> StepGenerator[ModelExchange]:
        """Decide about a request."""
        self.end_calls(conversation, asked.results)
        self._end_turn(conversation)
        need = self._build_need(conversation, asked)
        if not conversation.requests and conversation.level and not self.allow_level(conversation.level):
            self._refused_branch(conversation)
        if conversation.reported or self._refused or self._has_no_calls_left() or not self._may_retry(conversation):
            return (yield from self._end_conversation(conversation, asked))
        turn = yield ReserveStep(conversation.number, need, is_last=False)
        if turn is None:
            return (yield from self._end_conversation(conversation, asked))
        conversation.turns += 1
        texts = (*notes, *turn.messages_to_add)
        return self._open(ModelExchange(conversation, asked, turn, input_tokens=need.input_tokens), texts)

    def _refused_branch(self, conversation: AgentConversation) -> None:
        """Give the conversation of an agent that is too deep a synthetic reply. The others go on."""
        conversation.reported = True
        conversation.text = self._run.envelope.refuse("depth").warning

    def _may_retry(self, conversation: AgentConversation) -> bool:
        if not conversation.has_failed or self._run.envelope.claim(retries=1):
            return True
        self._run.record_refusal(self._run.envelope.refuse("retries"))
        return False

    def _end_conversation(self, conversation: AgentConversation, asked: AskedModel) -> StepGenerator[ModelExchange]:
        """Return the last request of a conversation, or a synthetic reply if there was one or it has none."""
        if conversation.reported or not conversation.turns:
            return self._make_reply(conversation, asked)
        conversation.reported = True
        need = self._build_need(conversation, asked)
        turn = yield ReserveStep(conversation.number, need, is_last=True)
        if turn is None:
            return ModelExchange(conversation, asked, made_text=self._make_report(conversation))
        exchange = ModelExchange(conversation, asked, turn, input_tokens=need.input_tokens)
        return self._open(exchange, turn.messages_to_add, is_last=True)

    def _make_reply(self, conversation: AgentConversation, asked: AskedModel) -> ModelExchange:
        conversation.synthetic_replies += 1
        if conversation.synthetic_replies > _MAX_SYNTHETIC_REPLIES:
            raise UsageError(
                f"{self._stop_sentence} The conversation continued after {_MAX_SYNTHETIC_REPLIES} replies that say so: "
                "end the loop when a reply has no calls"
            )
        if conversation.turns:
            text = f"Stopped by flyball: {self._stop_sentence} The report was given before."
        else:
            reason = conversation.text or self._refused or self._stop_sentence
            text = f"Stopped by flyball before this conversation began: {reason}"
        conversation.reported = True
        return ModelExchange(conversation, asked, made_text=text)

    def _open(self, exchange: ModelExchange, texts: tuple[str, ...], *, is_last: bool = False) -> ModelExchange:
        asked, turn = exchange.asked, cast("ReservedTurn", exchange.turn)
        exchange.started_at = self._run.now()
        exchange.conversation.turn = turn
        cap = turn.max_output_tokens
        is_lowered = cap is not None and asked.max_output_tokens is not None and cap < asked.max_output_tokens
        if not is_lowered and not (cap is not None and asked.max_output_tokens is None and self._is_limited):
            cap = asked.max_output_tokens
        if is_last:
            reason = self._stop_sentence
            report = write_report_request(
                reason, final_tool=asked.final_tool, has_schema=asked.has_schema, has_tools=bool(asked.tools)
            )
            texts = (*texts, report)
        exchange.edits = Edits(texts, cap, is_last, turn.model)
        self._run.tell_about(
            turn,
            ModelRequested,
            exchange.purpose,
            asked.model,
            exchange.conversation.agent or None,
            asked.messages,
            exchange.input_tokens,
            asked.tools,
            1,
            asked.input_bytes,
            None,
            None,
        )
        return exchange

    def _exchange(self, exchange: ModelExchange, port: ModelPort[Any]) -> StepGenerator[Answered | None]:
        """Send a request and count its reply. None if it got none, or is not to be sent."""
        turn, conversation = exchange.turn, exchange.conversation
        if turn is None:
            return None
        try:
            answered = cast("Answered | None", (yield SendStep(turn, port, exchange.edits)))
        except ReplyCut as error:
            self._record_cut(exchange, turn, error)
            return None
        except BaseException as error:
            self._record_failure(exchange, turn, error)
            raise
        conversation.has_failed = False
        conversation.requests += 1
        if answered is None:
            self._note_reply(exchange, turn, None)
            self._end_turn(conversation)
            if turn.remaining_s() <= 0 and not exchange.edits.is_last:
                self._run.record_refusal(self._run.envelope.refuse("seconds"))
            return None
        reply = answered.reply
        self._count_server_calls(port.count_server_calls(answered.raw))
        conversation.model = exchange.asked.model
        if reply.usage is not None:
            conversation.input_tokens += reply.usage.input
            conversation.output_tokens += reply.usage.output
            conversation.known_input, conversation.known_bytes = reply.usage.input, exchange.asked.input_bytes
        else:
            seen = len(reply.text) + sum(len(str(call.arguments)) for call in reply.calls)
            turn.settle_observed(exchange.input_tokens, math.ceil(seen * TOKENS_PER_BYTE))
        conversation.text = reply.text or conversation.text
        self._note_reply(exchange, turn, reply)
        self._note_duration(exchange)
        if not reply.calls:
            turn.may_be_over = True
            self._end_turn(conversation)
        return answered

    def _count_server_calls(self, count: int) -> None:
        """Count calls that the provider made itself, which happened already."""
        for envelope in self._run.envelopes if count else ():
            envelope.budgets["tool_calls"].increment(count)

    def _record_cut(self, exchange: ModelExchange, turn: ReservedTurn, error: ReplyCut) -> None:
        """Record a reply that was too long for what is left. Its turn ends, and the report is due."""
        exchange.conversation.requests += 1
        self._note_reply(exchange, turn, None, str(error))
        self._end_turn(exchange.conversation)
        if not exchange.edits.is_last:
            budgets = self._run.envelope.budgets
            shortest = max(("tokens", "usd"), key=lambda name: budgets[name].ratio)
            self._run.record_refusal(self._run.envelope.refuse(shortest))

    def _record_failure(self, exchange: ModelExchange, turn: ReservedTurn, error: BaseException) -> None:
        conversation = exchange.conversation
        if isinstance(error, Exception):
            self._failure, conversation.has_failed = error, True
            if is_unbilled(error):
                turn.withdraw("round_never_started")
                conversation.turns -= not exchange.edits.is_last
                conversation.reported = conversation.reported and not exchange.edits.is_last
            self._note_reply(exchange, turn, None, f"{type(error).__name__}: {error}")
        self._end_turn(conversation)

    def _finish_report(self, exchange: ModelExchange, answered: Answered, port: ModelPort[R]) -> R:
        """Return the last reply. One with calls, or without text, would continue or break the framework's loop."""
        reply, asked = answered.reply, exchange.asked
        self._end_turn(exchange.conversation)
        names = [call.name for call in reply.calls]
        if names == [asked.final_tool] or (not names and reply.text.strip()):
            return answered.raw
        return port.make(reply.text if reply.text.strip() else self._make_report(exchange.conversation), answered.raw)

    def _end_turn(self, conversation: AgentConversation) -> None:
        turn, conversation.turn = conversation.turn, None
        if turn is not None:
            turn.end()

    @property
    def _stop_sentence(self) -> str:
        stops = self._ending.stops
        if Stop.CANCELLED in stops:
            return "The run was cancelled."
        return (self._ending.warning or "The run has reached its limit.").strip()

    def _make_report(self, conversation: AgentConversation) -> str:
        done = f"{conversation.requests} requests to the model were made in this conversation."
        last = f" Its last text was: {conversation.text}" if conversation.text else ""
        return f"Stopped by flyball: {self._stop_sentence} {done}{last}"

    def _has_no_calls_left(self) -> bool:
        """Check whether the tool calls are used up, so that the next reply could only have calls that are refused.

        An agent that may make none can still answer, until its model asks for one.
        """
        calls = self._run.envelope.budgets["tool_calls"]
        if calls.ceiling is None or calls.used < calls.ceiling:
            return False
        if not calls.ceiling and calls.to_response_flag() not in self._run.envelope.flags:
            return False
        self._run.record_refusal(self._run.envelope.refuse("tool_calls"))
        return True

    def _build_need(self, conversation: AgentConversation, asked: AskedModel) -> Need:
        card = self._find_card(asked.model)
        caps = [cap for cap in (asked.max_output_tokens, card.max_output_tokens) if cap is not None]
        if asked.max_output_tokens is None and self._is_limited:
            caps.append(_DEFAULT_REPLY_TOKENS)
        cap = min(caps, default=None)
        new_bytes = max(0, asked.input_bytes - conversation.known_bytes)
        return Need(
            conversation.known_input + math.ceil(new_bytes * TOKENS_PER_BYTE),
            cap,
            turns=1,
            model=card,
            min_output_tokens=_MIN_REPLY_TOKENS if cap is None else min(_MIN_REPLY_TOKENS, cap),
            enough_output_tokens=_ENOUGH_REPLY_TOKENS,
            report_tokens=_REPORT_TOKENS,
        )

    def _find_card(self, name: str) -> GovernedModel:
        if self._options.model != "unknown":
            name = self._options.model
        if name not in self._cards:
            self._cards[name] = find_known_model(name, self._options)
        card = self._cards[name]
        money = self._run.envelope.budgets["usd"]
        if card.price is None and money.ceiling is not None and self._refuses_unpriced:
            raise UsageError(
                f"the price of {name} is not known, so the limit of {money.unit.show(money.ceiling)} cannot be kept: "
                'pass price=TokenPrice(input=..., output=...) or model="openai:gpt-5.5" in AdapterOptions, or '
                'unpriced="tokens_only" to ignore the limit'
            )
        return card

    def _note_duration(self, exchange: ModelExchange) -> None:
        """Reserve more time for reports if replies are slow."""
        envelope = self._run.envelope
        self._slowest_s = max(self._slowest_s, self._run.now() - exchange.started_at)
        if math.isfinite(envelope.hard_at):
            needed = max(self._share_s, _SLOWEST_FACTOR * self._slowest_s)
            envelope.reserve_seconds(min(needed, 0.75 * envelope.seconds))

    def _note_reply(
        self, exchange: ModelExchange, turn: ReservedTurn, reply: Reply | None, error: str | None = None
    ) -> None:
        usage = None if reply is None else reply.usage
        self._run.tell_about(
            turn,
            ModelReplied,
            exchange.purpose,
            None if reply is None else reply.finish.value,
            0 if usage is None else usage.input,
            0 if usage is None else usage.output,
            0 if reply is None else len(reply.calls),
            error,
            None if error is None else ModelError.code,
            0 if usage is None else usage.cached,
            0 if usage is None else usage.reasoning,
            usage is None and error is None,
            None if reply is None else reply.model,
            None if reply is None else reply.id,
        )


def parse_arguments(arguments: object) -> Mapping[str, Any]:
    """Return the arguments of a call for rules; {} if the model wrote no valid JSON object."""
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):
            arguments = json.loads(arguments)
    return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}


def _is_caused_by(error: BaseException, cause: BaseException | None) -> bool:
    one: BaseException | None = error
    for _ in range(20):
        if one is None or cause is None:
            return False
        if one is cause:
            return True
        one = one.__cause__ or one.__context__
    return False
