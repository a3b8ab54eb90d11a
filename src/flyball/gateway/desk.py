"""Desk of the gateway: decides for each request whether it is a turn, the last request, or gets a synthetic reply."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from urllib.parse import urlsplit

from ..budget.limits import Limits
from ..budget.price import Unpriced
from ..event import ModelReplied, ModelRequested, Settled
from ..governor.ending import RunEnding
from ..governor.govern_options import GovernOptions
from ..governor.governed_run import GovernedRun
from ..governor.reservation import TOKENS_PER_BYTE, Need
from ..governor.run_in_progress import choose_shared
from ..request import Reply, Usage
from ..result import Stop
from ..unit import Unit
from ..wire.formats import RESPONSES
from .body import Refused
from .content import ContentWriter
from .conversations import Chat, Conversations
from .door import Access
from .gateway_options import EngineOptions
from .inbound import Inbound, thinks
from .needs import MIN_REPLY_TOKENS, Needs
from .observer import Observer, open_registry
from .program_calls import ProgramCalls
from .program_time import ProgramTime
from .reply_reader import ReplyReader
from .reports import Reports
from .server_tools import add_fee
from .side_requests import SideRequest, find_side_request
from .subscription import Subscription
from .tasks import begins_task
from .ticket import Ticket


class Desk:
    """Admits the requests of one run. All methods run on the event loop of the gateway."""

    def __init__(self, options: EngineOptions) -> None:
        self._is_per_task = options.per == "task"
        self.observer = Observer(options.limits, options.registry) if options.observe else None
        """Observer of a run whose limits do not hold. None for one whose limits hold."""
        registry = open_registry(options.registry) if options.observe else options.registry
        govern_options = GovernOptions(
            (Limits() if options.observe else options.limits).without_default_context(registry),
            unpriced=Unpriced.TOKENS_ONLY,  # the desk refuses models without a price
            registry=registry,
            clock=options.clock,
            sinks=options.sinks,
            events_kept=options.events_kept,
            run_id=options.run_id,
            session_id=options.session_id,
            metadata=options.metadata,
        )
        self.ending = RunEnding()
        self.run = GovernedRun(
            govern_options,
            self.ending,
            reserves_each_report=True,
            renews_turns=self._is_per_task,
            shared=choose_shared(options.within),
        )
        self._started_at = self.run.now()
        self.conversations = Conversations()
        self.requests = 0
        """Governed requests that came through."""
        envelope = self.run.envelope
        self.calls = ProgramCalls(self.run, options)
        self.reports = Reports(self.ending)
        self.time = ProgramTime(envelope, self.run.now, self._is_waiting if self._is_per_task else None)
        self._needs = Needs(options, govern_options, envelope, self.observer)
        self.content = ContentWriter(envelope, options.final_tools, self._needs)
        self._undelivered: set[bytes] = set()
        self._queue = asyncio.Lock()
        """Requests wait in line for units that others hold, so that each conversation gets its turn."""
        self._side_requests = 0
        self.plan = Subscription(options.plan_share, is_used=False)
        """Subscription of the program, if it uses one."""

    async def admit(self, inbound: Inbound) -> Ticket:
        """Decide about a request. Raises `Refused` for one that gets an error."""
        self.requests += 1
        if inbound.route.access is Access.COUNTED:
            return await self._admit_counted(inbound)
        side = find_side_request(inbound)
        chat = self.conversations.find(inbound) if side is None else self.conversations.find_side(inbound)
        self.calls.show_request(inbound)
        self._check_plan(inbound)
        self.calls.end(inbound, chat)
        self._note_task(inbound, chat)
        need = self._needs.build(inbound, chat)
        if self.observer is not None:
            need = need if side is None else replace(need, turns=0)
            return await self._observe(inbound, chat, need, self.observer, side)
        if side is not None and not side.is_compaction and self._has_ended():
            return self.reports.make_side_reply(inbound, chat)
        if side is not None and self._side_requests <= self.run_turns and not chat.reported:
            self._side_requests += 1
            need = replace(need, turns=0, report_tokens=None)
        elif self._undelivered and inbound.digest in self._undelivered and self.run.envelope.claim(retries=1):
            self._undelivered.discard(inbound.digest)
            need = replace(need, turns=0)
        if chat.reported or (need.turns and self.calls.has_none_left()):
            return await self._end(inbound, chat, side)
        async with self._queue:
            turn = await self.run.areserve_turn(chat.number, need)
        if turn is None:
            return await self._end(inbound, chat, side)
        chat.turns += turn.counts
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens, side=side))

    async def _admit_counted(self, inbound: Inbound) -> Ticket:
        """Reserve a request that costs tokens and belongs to no conversation. It is never answered by a text."""
        chat = self.conversations.side
        need = replace(self._needs.build(inbound, chat), turns=0, report_tokens=None)
        if self.observer is not None:
            return await self._observe(inbound, chat, need, self.observer, None)
        need, turn = replace(need, max_output_tokens=1, min_output_tokens=1), None
        if not self._has_ended():
            async with self._queue:
                turn = await self.run.areserve_turn(chat.number, need)
        if turn is None:  # its errors end no program that could still report
            raise self.reports.refuse(inbound, counts=all(other.reported for other in self.conversations.all))
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens))

    def _check_plan(self, inbound: Inbound) -> None:
        """End the run with reports if its share of a subscription is used up."""
        self.plan.note_request(inbound)
        reason = self.plan.used_up
        if reason is not None and self.observer is not None:
            self.observer.note(f"request {self.requests} would have met the share of the plan: {reason}")
        elif reason is not None:
            self.run.halt("the plan", reason, grace=True)

    def _has_ended(self) -> bool:
        return any(chat.reported for chat in self.conversations.all)

    async def _end(self, inbound: Inbound, chat: Chat, side: SideRequest | None) -> Ticket:
        """Return the last request, or a synthetic reply, for a request of the loop or one beside it."""
        if side is not None and not side.is_compaction:
            return self.reports.make_side_reply(inbound, chat)
        ticket = await self.end_conversation(inbound, chat)
        chat.lost_report = chat.lost_report or (side is not None and ticket.is_last)
        return ticket

    def _note_task(self, inbound: Inbound, chat: Chat) -> None:
        """Grant fresh turns and seconds if the user has given the program a further task."""
        if not self._is_per_task or not begins_task(inbound, chat, self.conversations):
            return
        for other in self.conversations.all[chat.number - 1 :]:
            self.calls.cancel(other, "the user gave another task")
        self.run.renew(chat.number)
        self.reports.forget(chat)

    async def _observe(
        self, inbound: Inbound, chat: Chat, need: Need, observer: Observer, side: SideRequest | None
    ) -> Ticket:
        """Let a request pass as it is, and note what would have been refused."""
        used = {name: self.run.envelope.budgets[name].used for name in ("turns", "tool_calls", "tokens", "usd")}
        observer.check({**used, "seconds": self.run.now() - self._started_at}, self.requests)
        need = replace(need, max_output_tokens=None, report_tokens=None)
        self._lift_halt(observer)
        turn = await self.run.areserve_turn(chat.number, need)
        if turn is None:  # a rule stops it
            self._lift_halt(observer)
            turn = await self.run.areserve_turn(chat.number, replace(need, turns=0))
        if turn is None:
            raise Refused(503, "run_ended", "the observed run has ended")
        chat.turns += turn.counts
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens, side=side))

    def _lift_halt(self, observer: Observer) -> None:
        """Let an observed program go on although a rule stops it."""
        halt = self.ending.lift_halt()
        if halt is not None:
            observer.note(f"the rule {halt[0]} would have stopped the program: {halt[1]}")

    @property
    def run_turns(self) -> int:
        """Turns of all conversations."""
        return sum(chat.turns for chat in self.conversations.all)

    async def end_conversation(self, inbound: Inbound, chat: Chat) -> Ticket:
        """Return the last request of a conversation, or a synthetic reply if there was one or it has none."""
        if chat.reported or not chat.turns:
            return self.reports.make_reply(inbound, chat)
        chat.reported = True
        need = self._needs.build(inbound, chat, is_last=True)
        if thinks(inbound.body):
            need = replace(need, min_output_tokens=MIN_REPLY_TOKENS)
        turn = await self.run.areserve_grace(chat.number, need)
        if turn is None:
            return self.reports.make_reply(inbound, chat)
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens, is_last=True))

    def end_by_time(self) -> None:
        """Record that the time for work is over."""
        self.run.record_refusal(self.run.envelope.refuse("seconds"))

    def settle(self, ticket: Ticket, reply: Reply | None, reader: ReplyReader) -> None:
        """Count a request that was answered, wholly or in part."""
        turn, chat = ticket.turn, ticket.chat
        assert turn is not None
        before, usage = self._read_spent(), None if reply is None else reply.usage
        turn.card = add_fee(
            self._needs.find_model(ticket.inbound), self._needs.compute_fee(ticket.inbound, reader, usage)
        )
        estimated = usage is None or not usage.total
        if usage is not None and not estimated:
            turn.settle(usage, service_tier=reader.service_tier)
            if ticket.is_of_loop:
                chat.known_input, chat.known_output = usage.input, usage.output
                chat.known_bytes, chat.known_file_tokens = ticket.inbound.count_bytes()
        else:
            usage = Usage(ticket.input_tokens, math.ceil(reader.heard_bytes * TOKENS_PER_BYTE))
            turn.settle_observed(usage.input, usage.output)
        self._count(ticket, usage, reply, before, estimated=estimated)

    def note_state(self, chat: Chat, inbound: Inbound, reply_id: str | None, own_id: str | None) -> None:
        """Record what the provider keeps of a conversation, which later requests name.

        `reply_id` is None for a reply that it does not keep, `own_id` for one to which the gateway gave no id.
        """
        if inbound.wire is not RESPONSES:
            return
        chat.state_id = reply_id or chat.state_id
        for state_id in (reply_id, inbound.request.previous_id, own_id):
            if state_id is not None:
                self.conversations.remember_state(chat, state_id)
        if own_id is not None:
            chat.own_ids[own_id] = chat.state_id

    async def ask_again(self, inbound: Inbound, chat: Chat) -> Ticket:
        """Return the next turn of a conversation whose calls were all denied, or its last request."""
        if self.calls.has_none_left():
            return await self.end_conversation(inbound, chat)
        async with self._queue:
            turn = await self.run.areserve_turn(chat.number, need := self._needs.build(inbound, chat))
        if turn is None:
            return await self.end_conversation(inbound, chat)
        chat.turns += 1
        return self._open(Ticket(inbound, chat, turn, input_tokens=need.input_tokens))

    def charge(self, ticket: Ticket) -> None:
        """Count the reservation of a request that was cancelled before anything was heard."""
        assert ticket.turn is not None
        before = self._read_spent()
        ticket.turn.charge_request()
        self._count(ticket, Usage(ticket.input_tokens, 0), None, before, estimated=True)

    def _read_spent(self) -> tuple[int, int]:
        """Return the tokens and the money that the run has used."""
        budgets = self.run.envelope.budgets
        return budgets["tokens"].used, budgets["usd"].used

    def _count(
        self, ticket: Ticket, usage: Usage, reply: Reply | None, before: tuple[int, int], *, estimated: bool
    ) -> None:
        """Count a request for its conversation, after the run has settled it. `before` is what the run had used."""
        turn, chat = ticket.turn, ticket.chat
        assert turn is not None
        tokens, money = (after - earlier for after, earlier in zip(self._read_spent(), before, strict=True))
        chat.requests += 1
        chat.input_tokens += usage.input
        chat.output_tokens += usage.output
        chat.cost += money
        calls = () if reply is None else reply.calls
        for call in calls:
            self.conversations.remember_call(chat, call.id)
        if reply is not None and reply.text and not ticket.is_last:
            self._note_text(ticket, reply.text)
        turn.may_be_over = reply is not None and not calls
        self.time.note_reply(ticket.started_at)
        self.run.tell_about(
            turn,
            ModelReplied,
            ticket.purpose,
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
        has_price = turn.card is not None and turn.card.price is not None
        usd = Unit.USD.outer(money) if has_price else None
        model = ticket.inbound.request.model
        self.run.tell_about(turn, Settled, ticket.purpose, chat.label, model, tokens, usd, estimated)

    def _note_text(self, ticket: Ticket, text: str) -> None:
        """Record the text of a reply, which is that of the run unless it was asked for beside the loop."""
        if ticket.is_of_loop:
            ticket.chat.text = text
            self.reports.note_reply(text)
        elif ticket.side is not None and ticket.side.is_compaction:
            self.conversations.remember_summary(ticket.chat, text)

    def withdraw(self, ticket: Ticket, error: str) -> None:
        """Refund the claim of a request that was not answered."""
        turn = ticket.turn
        assert turn is not None
        turn.withdraw("round_never_started")
        ticket.chat.turns -= turn.counts and not ticket.is_last
        if ticket.is_last:
            ticket.chat.reported = ticket.chat.lost_report = False
        self.run.tell_about(
            turn, ModelReplied, ticket.purpose, None, 0, 0, 0, error, "model_failed", 0, 0, False, None, None
        )

    def abandon(self, ticket: Ticket) -> None:
        """Give up a request that was not sent, because its client left while it waited."""
        if ticket.turn is not None:
            self.withdraw(ticket, "the client left")
        self.close(ticket, delivered=False)

    def close(self, ticket: Ticket, *, delivered: bool) -> None:
        """End the turn of a request."""
        ticket.chat.in_progress -= 1
        if ticket.turn is not None:
            ticket.turn.may_be_over = ticket.turn.may_be_over or not delivered
            ticket.turn.end()
            if not delivered and ticket.turn.took_place and ticket.turn.counts:
                self._undelivered.add(ticket.inbound.digest)
            if not delivered and self.run.active_rules is not None:
                self.run.active_rules.return_notices(ticket.turn.messages_to_add)

    def _open(self, ticket: Ticket) -> Ticket:
        inbound, chat, turn = ticket.inbound, ticket.chat, ticket.turn
        assert turn is not None
        chat.in_progress += 1
        if ticket.is_of_loop or not chat.model:
            chat.model = inbound.request.model or chat.model
        ticket.started_at = self.run.now()
        if self.observer is None:
            self.content.write(ticket, self.reports.stop_sentence)
        else:
            ticket.content = inbound.raw
        request = inbound.request
        self.run.tell_about(
            turn,
            ModelRequested,
            ticket.purpose,
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

    def _is_waiting(self) -> bool:
        """Check whether the program waits for its user."""
        return not any(chat.in_progress or chat.open_calls for chat in self.conversations.all)

    def finish(self, error: BaseException | str | None = None) -> None:
        """End the run after its program has ended: with its error, or a KeyboardInterrupt, unless a limit ended it."""
        ending = self.ending
        for chat in self.conversations.all:
            self.calls.cancel(chat, "the program ended")
        if self.observer is not None:
            self._lift_halt(self.observer)
        if ending.stops:
            pass
        elif error is None:
            ending.stops.add(Stop.COMPLETED)
        elif isinstance(error, str | Exception):
            ending.fail(error)
        else:
            ending.cancel()
        self.run.close(None)
        if self.run.result is not None:
            chats = [chat for chat in (*self.conversations.all, self.conversations.side) if chat.requests]
            described = [self._describe(chat) for chat in chats]
            self.run.result.state = {"conversations": described, **self.plan.describe()}

    def _describe(self, chat: Chat) -> dict[str, object]:
        return {
            "name": chat.label,
            "model": chat.model,
            "turns": chat.turns,
            "requests": chat.requests,
            "input_tokens": chat.input_tokens,
            "output_tokens": chat.output_tokens,
            "cost_usd": chat.cost / 10**9,
            "reported": self.reports.has(chat),
        }
