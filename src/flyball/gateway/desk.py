"""Desk of the gateway: decides for each request whether it is a turn, the last request, or gets a synthetic reply."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import urlsplit

from ..budget.price import Unpriced
from ..budget.registry import UNSET
from ..event import ModelReplied, ModelRequested, ToolEnded, ToolStarted
from ..governor.ending import RunEnding
from ..governor.govern_options import GovernOptions
from ..governor.governed_run import GovernedRun
from ..governor.model_card import GovernedModel, find_named_model
from ..governor.reservation import Need
from ..governor.reserved_turn import ReservedTurn
from ..outcome import Status
from ..request import Purpose, Reply, Usage
from ..result import Stop
from ..wire.bodies import Json
from ..wire.formats import RESPONSES
from .body import Refused, encode_json
from .conversations import Chat, Conversations, OpenCall
from .door import Access
from .gateway_options import GatewayOptions
from .inbound import BLOB_TOKENS, MIN_THINKING_TOKENS, Inbound, limit_thinking, thinks
from .last_request import build_last_request, find_final_tool
from .observer import Observer, open_limits
from .server_tools import has_server_tools, limit_server_tools
from .side_requests import find_side_request

_REPORT_TOKENS = 500
"""Output tokens to reserve for each report."""
_MIN_REPLY_TOKENS = 16
_DEFAULT_REPLY_TOKENS = 16_384
"""Longest reply of a request that names none, if tokens or money are limited."""
_ENOUGH_REPLY_TOKENS = 4_096
"""Longest reply with which a request goes out at once, although it could have a longer one later."""
_TOKENS_PER_BYTE = 0.4
"""Estimate for text whose tokens are not known. Providers report 0.2 to 0.3 for prose and code."""
_SLOWEST_FACTOR = 1.5
"""Part of the time reserve: this many times the slowest reply."""
_PROGRAM_S = 2.0
"""Seconds for the program to end after its report."""
_MADE_REPLIES = 2
"""Synthetic replies for each conversation after its report."""
_MADE_OPENINGS = 100
"""Synthetic replies to conversations that begin after the limit."""
_ERRORS = 10
"""Errors after which the program is asked to end."""


@dataclass(slots=True, eq=False)
class Ticket:
    """Decision about a request."""

    inbound: Inbound
    chat: Chat
    turn: ReservedTurn | None = None
    """Claim of the request. None for a synthetic reply."""
    content: bytes = b""
    """Body to send."""
    is_last: bool = False
    strips_usage: bool = False
    """Whether the program did not ask for the usage that is now in the stream."""
    made_text: str = ""
    """Text of a synthetic reply."""
    input_tokens: int = 0
    """Estimate."""
    started_at: float = 0.0


class Desk:
    """Admits the requests of one run. All methods run on the event loop of the gateway."""

    def __init__(self, options: GatewayOptions) -> None:
        self._options = options
        self._is_per_task = options.per == "task"
        self.observer = Observer(options.limits, options.registry) if options.observe else None
        """Observer of a run whose limits do not hold. None for one whose limits hold."""
        govern_options = GovernOptions(
            open_limits() if options.observe else options.limits,
            unpriced=Unpriced.TOKENS_ONLY,  # the desk refuses models without a price
            registry=options.registry,
            clock=options.clock,
            sinks=options.sinks,
            run_id=options.run_id,
            metadata=options.metadata,
        )
        self._govern_options = govern_options
        self.ending = RunEnding()
        self.run = GovernedRun(govern_options, self.ending, reserves_each_report=True, renews_turns=self._is_per_task)
        self._started_at = self.run.now()
        self.conversations = Conversations()
        self.requests = 0
        """Governed requests that came through."""
        self.wants_end = False
        """True if the program continues in spite of the end, so that it must be ended."""
        self.hints: list[str] = []
        """Sentences for the user about the run."""
        self._models: dict[str, GovernedModel] = {}
        self._undelivered: set[bytes] = set()
        self._reported: set[int] = set()
        """Conversations whose report a model wrote."""
        self._queue = asyncio.Lock()
        """Requests wait in line for units that others hold, so that each conversation gets its turn."""
        self._side_requests = 0
        self._made_openings = 0
        self._errors = 0
        self._slowest_s = 0.0
        envelope = self.run.envelope
        self._is_limited = (
            envelope.budgets["tokens"].ceiling is not None or envelope.budgets.find_ceiling("usd") is not None
        )
        self._program_s = min(_PROGRAM_S, 0.1 * envelope.seconds) if math.isfinite(envelope.hard_at) else 0.0
        self._share_s = envelope.reserve_s
        self._reserve_time()

    async def admit(self, inbound: Inbound) -> Ticket:
        """Decide about a request. Raises `Refused` for one that gets an error."""
        self.requests += 1
        chat = self.conversations.find(inbound)
        self._end_calls(inbound, chat)
        self._note_task(inbound, chat)
        need = self._build_need(inbound, chat)
        if self.observer is not None:
            return await self._observe(inbound, chat, need, self.observer)
        if find_side_request(inbound) and self._side_requests <= self.run_turns and not chat.reported:
            self._side_requests += 1
            need = replace(need, turns=0, report_tokens=None)
        elif inbound.digest in self._undelivered and self.run.envelope.claim(retries=1):
            self._undelivered.discard(inbound.digest)
            need = replace(need, turns=0)
        if inbound.route.access is Access.COUNTED:
            need = replace(need, turns=0, max_output_tokens=1, min_output_tokens=1, report_tokens=None)
        if chat.reported or (need.turns and self._has_no_calls_left()):
            return await self.end_conversation(inbound, chat)
        async with self._queue:
            turn = await self.run.areserve_turn(chat.number, need)
        if turn is None:
            return await self.end_conversation(inbound, chat)
        chat.turns += turn.counts
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens))

    def _note_task(self, inbound: Inbound, chat: Chat) -> None:
        """Begin a task if the user has written a further message, and not an agent to one that it called."""
        key = inbound.task_key if self._is_per_task else None
        if key is None or inbound.route.access is Access.COUNTED or find_side_request(inbound):
            return
        is_opening = chat.task_key is None
        if not is_opening:
            is_same = key == chat.task_key
            is_rewritten = not inbound.reply_count and inbound.request.previous_id is None  # the program shortened it
            is_called = any(other.open_calls for other in self.conversations.all[: chat.number - 1])
            if is_same or is_rewritten or is_called:
                return
        chat.task_key = key
        if is_opening and chat.number > 1:
            return
        for other in self.conversations.all[chat.number - 1 :]:
            self._cancel_calls(other, "the user gave another task")
        self.run.renew(chat.number)
        chat.reported, chat.made_replies = False, 0
        self._reported.discard(chat.number)

    async def _observe(self, inbound: Inbound, chat: Chat, need: Need, observer: Observer) -> Ticket:
        """Let a request pass as it is, and note what would have been refused."""
        used = {name: self.run.envelope.budgets[name].used for name in ("turns", "tool_calls", "tokens", "usd")}
        observer.check({**used, "seconds": self.run.now() - self._started_at}, self.requests)
        need = replace(need, max_output_tokens=None, report_tokens=None)
        turn = await self.run.areserve_turn(chat.number, need)
        if turn is None:  # more turns than any limit allows
            turn = await self.run.areserve_turn(chat.number, replace(need, turns=0))
        if turn is None:
            raise Refused(503, "run_ended", "the observed run has ended")
        chat.turns += turn.counts
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens))

    @property
    def run_turns(self) -> int:
        """Turns of all conversations."""
        return sum(chat.turns for chat in self.conversations.all)

    async def end_conversation(self, inbound: Inbound, chat: Chat) -> Ticket:
        """Return the last request of a conversation, or a synthetic reply if there was one or it has none."""
        if chat.reported or not chat.turns:
            return self._make_reply(inbound, chat)
        chat.reported = True
        need = self._build_need(inbound, chat)
        if thinks(inbound.body):
            need = replace(need, min_output_tokens=_MIN_REPLY_TOKENS)
        turn = await self.run.areserve_grace(chat.number, need)
        if turn is None:
            return self._make_reply(inbound, chat)
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens, is_last=True))

    def end_by_time(self) -> None:
        """Record that the time for work is over."""
        self.run.record_refusal(self.run.envelope.refuse("seconds"))

    @property
    def work_s(self) -> float:
        """Seconds left for work."""
        return self.run.envelope.remaining_s()

    @property
    def report_s(self) -> float:
        """Seconds left for reports: the rest is for the program to end."""
        return self.program_s - self._program_s

    @property
    def program_s(self) -> float:
        """Seconds left for the program. With limits per task, none pass while it waits for its user."""
        if self._is_per_task and not any(chat.in_progress or chat.open_calls for chat in self.conversations.all):
            return math.inf
        return self.run.envelope.hard_at - self.run.now()

    @property
    def stop_sentence(self) -> str:
        """Sentence that says why the run ends."""
        return (self.ending.warning or "The run has reached its limit.").strip()

    def make_report(self, chat: Chat) -> str:
        """Return the text of a report that no model wrote."""
        done = f"{chat.requests} requests to the model were made in this conversation."
        last = f" Its last text was: {chat.text}" if chat.text else ""
        return f"Stopped by flyball: {self.stop_sentence} {done}{last}"

    def settle(self, ticket: Ticket, reply: Reply | None, heard_bytes: int, *, service_tier: str | None) -> None:
        """Count a request that was answered, wholly or in part."""
        turn, chat = ticket.turn, ticket.chat
        assert turn is not None
        usage = None if reply is None else reply.usage
        estimated = usage is None or not usage.total
        if usage is not None and not estimated:
            turn.settle(usage, service_tier=service_tier)
            chat.known_input, chat.known_output = usage.input, usage.output
            chat.known_bytes, chat.known_blobs = ticket.inbound.count_bytes()
        else:
            usage = Usage(ticket.input_tokens, math.ceil(heard_bytes * _TOKENS_PER_BYTE))
            turn.settle_observed(usage.input, usage.output)
        self._count(ticket, usage, reply, estimated=estimated)

    def count_server_calls(self, count: int) -> None:
        """Count calls that the provider made itself."""
        if count:
            self.run.envelope.budgets["tool_calls"].increment(count)

    def note_state(self, chat: Chat, inbound: Inbound, reply_id: str | None) -> None:
        """Record what the provider keeps of a conversation, which later requests name."""
        for state_id in (reply_id, inbound.request.previous_id):
            if state_id is not None and inbound.wire is RESPONSES:
                self.conversations.remember_state(chat, state_id)

    def may_deny(self, inbound: Inbound) -> bool:
        """Check whether a call of the reply may be denied, so that it must be read before it is handed on."""
        calls = self.run.envelope.budgets["tool_calls"].ceiling is not None or self._options.limits.calls
        return not self._options.observe and bool(inbound.request.tools and (calls or self.run.active_rules))

    def judge(self, ticket: Ticket, reply: Reply | None, *, can_deny: bool) -> dict[str, str]:
        """Claim the calls of a reply. Returns the reasons for the denied ones, by id.

        Without `can_deny`, the program has seen the calls already.
        """
        denied: dict[str, str] = {}
        if ticket.turn is None or not ticket.turn.counts or ticket.is_last or reply is None:
            return denied
        final = find_final_tool(ticket.inbound.request.tools, self._options.final_tools)
        for call in reply.calls:
            if final is not None and call.name == final["name"]:
                continue  # the program's answer
            arguments = call.arguments if isinstance(call.arguments, Mapping) else _parse(call.arguments)
            if ticket.turn.claim_tool(call.name, arguments) or not can_deny or self.observer is not None:
                ticket.chat.open_calls[call.id] = OpenCall(call.name, self.run.now())
                self.run.tell_about(ticket.turn, ToolStarted, call.id, call.name, arguments)
                continue
            denied[call.id] = reason = ticket.turn.denied or "the limit of tool calls is reached"
            self.run.tell_about(ticket.turn, ToolEnded, call.id, call.name, Status.DENIED.value, reason, 0.0)
            if ticket.turn.denied is None:
                self.run.record_refusal(self.run.envelope.refuse("tool_calls"))
        return denied

    def _end_calls(self, inbound: Inbound, chat: Chat) -> None:
        """Record the calls whose results came with a request."""
        for call_id in inbound.iter_call_ids() if chat.open_calls else ():
            call = chat.open_calls.pop(call_id, None)
            if call is not None:
                self._end_call(call_id, call, Status.DONE.value, None)
            if not chat.open_calls:
                return

    def _end_call(self, call_id: str, call: OpenCall, status: str, reason: str | None) -> None:
        seconds = self.run.now() - call.started_at
        self.run.tell(ToolEnded, call_id, call.tool, status, reason, seconds)

    def _cancel_calls(self, chat: Chat, reason: str) -> None:
        for call_id, call in chat.open_calls.items():
            self._end_call(call_id, call, Status.CANCELLED.value, reason)
        chat.open_calls.clear()

    async def ask_again(self, inbound: Inbound, chat: Chat) -> Ticket:
        """Return the next turn of a conversation whose calls were all denied, or its last request."""
        if self._has_no_calls_left():
            return await self.end_conversation(inbound, chat)
        async with self._queue:
            turn = await self.run.areserve_turn(chat.number, need := self._build_need(inbound, chat))
        if turn is None:
            return await self.end_conversation(inbound, chat)
        chat.turns += 1
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens))

    def charge(self, ticket: Ticket) -> None:
        """Count the reservation of a request that was cancelled before anything was heard."""
        assert ticket.turn is not None
        ticket.turn.charge_request()
        self._count(ticket, Usage(ticket.input_tokens, 0), None, estimated=True)

    def _count(self, ticket: Ticket, usage: Usage, reply: Reply | None, *, estimated: bool) -> None:
        turn, chat = ticket.turn, ticket.chat
        assert turn is not None
        chat.requests += 1
        chat.input_tokens += usage.input
        chat.output_tokens += usage.output
        if turn.card is not None and turn.card.price is not None:
            chat.cost += turn.card.price.cost(usage)
        calls = () if reply is None else reply.calls
        for call in calls:
            self.conversations.remember_call(chat, call.id)
        if reply is not None and reply.text and not ticket.is_last:
            chat.text = reply.text
            if not self._reported:
                self.ending.text = reply.text
        turn.may_be_over = reply is not None and not calls
        self._note_duration(ticket)
        self.run.tell_about(
            turn,
            ModelReplied,
            self._purpose_of(ticket),
            None if reply is None else reply.finish.value,
            0 if estimated else usage.input,
            0 if estimated else usage.output,
            len(calls),
            None,
            None,
            usage.cached,
            usage.reasoning,
            estimated,
            None if reply is None else reply.model,
            None if reply is None else reply.id,
        )

    def withdraw(self, ticket: Ticket, error: str) -> None:
        """Refund the claim of a request that was not answered."""
        turn = ticket.turn
        assert turn is not None
        turn.withdraw("round_never_started")
        ticket.chat.turns -= turn.counts and not ticket.is_last
        if ticket.is_last:
            ticket.chat.reported = False
        self.run.tell_about(
            turn, ModelReplied, self._purpose_of(ticket), None, 0, 0, 0, error, "model_failed", 0, 0, False, None, None
        )

    def close(self, ticket: Ticket, *, delivered: bool) -> None:
        """End the turn of a request."""
        ticket.chat.in_progress -= 1
        if ticket.turn is not None:
            ticket.turn.may_be_over = ticket.turn.may_be_over or not delivered
            ticket.turn.end()
            if not delivered and ticket.turn.took_place and ticket.turn.counts:
                self._undelivered.add(ticket.inbound.digest)

    def _open(self, ticket: Ticket) -> Ticket:
        inbound, chat, turn = ticket.inbound, ticket.chat, ticket.turn
        assert turn is not None
        chat.in_progress += 1
        chat.model = inbound.request.model or chat.model
        ticket.started_at = self.run.now()
        ticket.content, ticket.strips_usage = self._build_content(ticket, turn)
        request = inbound.request
        self.run.tell_about(
            turn,
            ModelRequested,
            self._purpose_of(ticket),
            request.model,
            chat.label,
            len(inbound.items),
            ticket.input_tokens,
            tuple(str(tool["name"]) for tool in request.tools),
            1,
            len(ticket.content),
            None,
            urlsplit(inbound.route.upstream.url).netloc,
        )
        return ticket

    def _purpose_of(self, ticket: Ticket) -> str:
        if ticket.is_last:
            return Purpose.GRACE.value
        return Purpose.TURN.value if ticket.turn is not None and ticket.turn.counts else "side"

    def _build_content(self, ticket: Ticket, turn: ReservedTurn) -> tuple[bytes, bool]:
        """Return the body to send: the same bytes if nothing changes. And whether the usage was added."""
        inbound = ticket.inbound
        if self.observer is not None:
            return inbound.raw, False
        request, cap = inbound.request, turn.max_output_tokens
        changed = request
        adds_usage = request.stream and not request.includes_usage
        if adds_usage:
            changed = replace(changed, includes_usage=True)
        is_lowered = cap is not None and request.max_output_tokens is not None and cap < request.max_output_tokens
        if cap is not None and (is_lowered or (self._is_limited and request.max_output_tokens is None)):
            changed = replace(changed, max_output_tokens=max(cap, inbound.wire.min_output_tokens))
        if ticket.is_last:
            changed, hint = build_last_request(inbound, changed, self._options.final_tools, self.stop_sentence)
            if hint and hint not in self.hints:
                self.hints.append(hint)
        elif turn.messages_to_add:
            changed = replace(changed, notices=(*changed.notices, *turn.messages_to_add))
        calls = self.run.envelope.budgets["tool_calls"]
        limits_tools = calls.ceiling is not None and has_server_tools(inbound.body)
        if (changed is request and not limits_tools) or inbound.route.access is Access.COUNTED:
            return inbound.raw, False
        body: Json = dict(inbound.wire.write_request(changed))
        if changed.max_output_tokens is not None:
            limit_thinking(body, changed.max_output_tokens)
        if calls.ceiling is not None and limits_tools:
            limit_server_tools(body, inbound.wire, calls.ceiling, calls.ceiling - calls.used)
        return encode_json(body), adds_usage

    def _build_need(self, inbound: Inbound, chat: Chat) -> Need:
        model = self._find_model(inbound)
        caps = [cap for cap in (inbound.request.max_output_tokens, model.max_output_tokens) if cap is not None]
        if inbound.request.max_output_tokens is None and self._is_limited:
            caps.append(_DEFAULT_REPLY_TOKENS)
        cap = min(caps, default=None)
        shortest = (
            MIN_THINKING_TOKENS + 1 if "budget_tokens" in str(inbound.body.get("thinking")) else _MIN_REPLY_TOKENS
        )
        return Need(
            self._estimate_input(inbound, chat),
            cap,
            turns=1,
            model=model,
            min_output_tokens=shortest if cap is None else min(shortest, cap),
            enough_output_tokens=_ENOUGH_REPLY_TOKENS,
            report_tokens=_REPORT_TOKENS,
            is_pending=True,
        )

    def _find_model(self, inbound: Inbound) -> GovernedModel:
        name = inbound.model
        if name not in self._models:
            self._models[name] = find_named_model(name, self._govern_options)
        model = self._models[name]
        money = self.run.envelope.budgets["usd"]
        if model.price is None and self.observer is not None and self._options.limits.usd not in (UNSET, None):
            self.observer.note(f"the price of {name} is not known, so its requests would have been refused")
        if model.price is None and money.ceiling is not None and self._options.unpriced == Unpriced.REFUSE:
            raise Refused(
                400,
                "price_unknown",
                f"the price of {name} is not known, so the limit of {money.unit.show(money.ceiling)} cannot be kept: "
                f'add it to [prices."{name}"] in flyball.toml, or use --unpriced tokens_only',
            )
        return model

    def _estimate_input(self, inbound: Inbound, chat: Chat) -> int:
        """Return the likely input tokens: what the provider reported for the last request, and what is new."""
        size, blobs = inbound.count_bytes()
        if inbound.request.previous_id is not None:  # the provider has the history
            return chat.known_input + chat.known_output + math.ceil(size * _TOKENS_PER_BYTE) + blobs * BLOB_TOKENS
        new_bytes, new_blobs = max(0, size - chat.known_bytes), max(0, blobs - chat.known_blobs)
        estimate = chat.known_input + math.ceil(new_bytes * _TOKENS_PER_BYTE) + new_blobs * BLOB_TOKENS
        return min(estimate, size + blobs * BLOB_TOKENS)

    def _has_no_calls_left(self) -> bool:
        """Check whether the tool calls are used up, so that the next reply could only have calls that are refused."""
        calls = self.run.envelope.budgets["tool_calls"]
        if calls.ceiling is None or calls.used < calls.ceiling or not calls.ceiling:
            return False
        self.run.record_refusal(self.run.envelope.refuse("tool_calls"))
        return True

    def _make_reply(self, inbound: Inbound, chat: Chat) -> Ticket:
        if not chat.turns and not chat.reported:
            self._made_openings += 1
            exhausted = self._made_openings > _MADE_OPENINGS
            text = f"Stopped by flyball before this conversation began: {self.stop_sentence}"
        else:
            chat.made_replies += 1
            exhausted = chat.made_replies > _MADE_REPLIES
            is_repeated = chat.number in self._reported or chat.made_replies > 1
            text = f"Stopped by flyball: {self.stop_sentence} The report was given before."
            text = text if is_repeated else self.make_report(chat)
        chat.reported = True
        if exhausted:
            self._errors += 1
            self.wants_end = self.wants_end or self._errors >= _ERRORS
            raise Refused(
                400 if inbound.wire is RESPONSES else 403,
                "run_ended",
                f"Stopped by flyball: {self.stop_sentence}",
            )
        chat.in_progress += 1
        return Ticket(inbound, chat, made_text=text)

    def note_report(self, chat: Chat, text: str) -> None:
        """Record the report of a conversation. The first conversation's is that of the run."""
        self._reported.add(chat.number)
        chat.text = text or chat.text
        if text and (chat.number == 1 or len(self._reported) == 1):
            self.ending.text = text

    def make_last_reply(self, ticket: Ticket) -> Ticket:
        """Return the synthetic reply for a last request that got none in time."""
        ticket.chat.in_progress += 1
        self._reported.add(ticket.chat.number)
        return Ticket(ticket.inbound, ticket.chat, made_text=self.make_report(ticket.chat))

    def _note_duration(self, ticket: Ticket) -> None:
        self._slowest_s = max(self._slowest_s, self.run.now() - ticket.started_at)
        self._reserve_time()

    def _reserve_time(self) -> None:
        """Reserve the time of the report: a share of the limit, or more if replies are slow; and the program's."""
        envelope = self.run.envelope
        if math.isfinite(envelope.hard_at):
            needed = max(self._share_s, _SLOWEST_FACTOR * self._slowest_s) + self._program_s
            envelope.reserve_seconds(min(needed, 0.75 * envelope.seconds))

    def finish(self, code: int | None, *, ended_by: str | None) -> None:
        """End the run after the program ended with this exit code, or was ended."""
        ending = self.ending
        for chat in self.conversations.all:
            self._cancel_calls(chat, "the program ended")
        if ending.stops:
            pass
        elif code == 0:
            ending.stops.add(Stop.COMPLETED)
        elif ended_by == "signal" or code == 130:
            ending.cancel()
        else:
            ending.fail(f"the program ended with exit code {code}")
        self.run.close(None)
        if self.run.result is not None:
            self.run.result.state = {"conversations": [self._describe(chat) for chat in self.conversations.all]}

    def _describe(self, chat: Chat) -> dict[str, object]:
        return {
            "name": chat.label,
            "model": chat.model,
            "turns": chat.turns,
            "requests": chat.requests,
            "input_tokens": chat.input_tokens,
            "output_tokens": chat.output_tokens,
            "cost_usd": chat.cost / 10**9,
            "reported": chat.number in self._reported,
        }


def _parse(arguments: object) -> dict[str, Any]:
    """Return the arguments of a call for rules; {} if the model wrote no valid JSON object."""
    try:
        value: object = json.loads(arguments) if isinstance(arguments, str) else {}
    except (ValueError, RecursionError):
        value = {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
