"""Reports of conversations, and the synthetic replies that follow them until the program ends."""

from __future__ import annotations

from ..governor.ending import RunEnding
from ..message import ANTHROPIC
from .body import Refused
from .conversations import Chat
from .door import Access
from .inbound import Inbound
from .ticket import Ticket

_MADE_REPLIES = 2
"""Synthetic replies for each conversation after its report, and one more for each other that ended: a sub-agent in the
background wakes its parent when it ends."""
_MADE_OPENINGS = 100
"""Synthetic replies to conversations that begin after the limit."""
_ERRORS = 10
"""Errors after which the program is asked to end."""
_STATUSES = {ANTHROPIC: 402}
"""Statuses by API, if it is not 400. Measured with the known programs: no other one is repeated by fewer of them.

Claude Code repeats a 400 and takes a 403 for a wrong key. Codex repeats a 403, and Copilot CLI prints its address then.
"""


class Reports:
    """Answers conversations that have ended: first with synthetic replies, then with errors."""

    def __init__(self, ending: RunEnding) -> None:
        self._ending = ending
        self._written: set[int] = set()
        """Conversations whose report a model wrote, by number."""
        self._ended: set[int] = set()
        """Conversations that were told of the end, by number."""
        self._made_openings = 0
        self._errors = 0
        self.wants_end = False
        """True if the program continues in spite of the end, so that it must be ended."""

    @property
    def stop_sentence(self) -> str:
        """Sentence that says why the run ends."""
        return (self._ending.warning or "The run has reached its limit.").strip()

    def has(self, chat: Chat) -> bool:
        """Check whether a conversation has a report."""
        return chat.number in self._written

    def note(self, chat: Chat, text: str) -> None:
        """Record the report of a conversation. The first conversation's is that of the run."""
        self._written.add(chat.number)
        chat.text = text or chat.text
        if text and (chat.number == 1 or len(self._written) == 1):
            self._ending.text = text

    def note_reply(self, text: str) -> None:
        """Record the text of a reply that is no report. The run has it as its own until there is one."""
        if not self._written:
            self._ending.text = text

    def forget(self, chat: Chat) -> None:
        """Let a conversation report again, because its user gave it another task."""
        chat.reported, chat.lost_report, chat.made_replies = False, False, 0
        self._written.discard(chat.number)

    def make(self, chat: Chat) -> str:
        """Return the text of a report that no model wrote."""
        done = f"{chat.requests} requests to the model were made in this conversation."
        last = f" Its last text was: {chat.text}" if chat.text else ""
        return f"Stopped by flyball: {self.stop_sentence} {done}{last}"

    def make_reply(self, inbound: Inbound, chat: Chat) -> Ticket:
        """Return a synthetic reply. Raises `Refused` after too many of them."""
        self._ended.add(chat.number)
        if not chat.turns and not chat.reported:
            self._made_openings += 1
            is_exhausted = self._made_openings > _MADE_OPENINGS
            text = f"Stopped by flyball before this conversation began: {self.stop_sentence}"
        else:
            chat.made_replies += 1
            is_exhausted = chat.made_replies > _MADE_REPLIES + len((self._ended | self._written) - {chat.number})
            is_repeated = self.has(chat) or chat.made_replies > 1
            text = self._repeat(inbound, chat) if is_repeated else self.make(chat)
        chat.reported, chat.lost_report = True, False
        if is_exhausted:
            raise self.refuse(inbound)
        chat.in_progress += 1
        return Ticket(inbound, chat, made_text=text)

    def _repeat(self, inbound: Inbound, chat: Chat) -> str:
        """Return the report once more, because many programs print only the last text that they get."""
        if not self.has(chat) or not chat.text:
            return f"Stopped by flyball: {self.stop_sentence} The report was given before."
        if _has_no_report(inbound, chat):
            return chat.text
        return f"Stopped by flyball: {self.stop_sentence} The report was given before: {chat.text}"

    def make_side_reply(self, inbound: Inbound, chat: Chat) -> Ticket:
        """Return a short synthetic reply to a request beside the loop. Raises `Refused` after too many of them."""
        self._made_openings += 1
        if self._made_openings > _MADE_OPENINGS:
            raise self.refuse(inbound)
        chat.in_progress += 1
        return Ticket(inbound, chat, made_text="Stopped")

    def refuse(self, inbound: Inbound, *, counts: bool = True) -> Refused:
        """Return the error for a request after the end. A program that gets too many that count is ended."""
        self._errors += counts
        self.wants_end = self.wants_end or self._errors >= _ERRORS
        return Refused(_STATUSES.get(inbound.wire.name, 400), "run_ended", f"the run has ended: {self.stop_sentence}")

    def make_last_reply(self, ticket: Ticket) -> Ticket:
        """Return the synthetic reply for a last request that got none in time. Raises `Refused` for embeddings."""
        if ticket.inbound.route.access is Access.COUNTED:
            raise self.refuse(ticket.inbound)
        ticket.chat.in_progress += 1
        self._written.add(ticket.chat.number)
        text = self.make(ticket.chat)
        self._ending.text = self._ending.text or text
        return Ticket(ticket.inbound, ticket.chat, made_text=text)


def _has_no_report(inbound: Inbound, chat: Chat) -> bool:
    """Check whether the history lacks the report, because that was spent on replacing an older history."""
    return chat.lost_report or not (inbound.reply_count or inbound.request.previous_id)
