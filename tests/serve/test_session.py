"""Sessions in memory."""

from flyball.message import Message, MessageType, Role
from flyball.serve.session import Session, Sessions


def said(n: int, role: Role) -> Message:
    return Message("run", n, 0.0, MessageType.TEXT, role, str(n))


def test_of_a_very_long_conversation_the_end_is_kept_from_where_a_user_spoke() -> None:
    session = Session()
    session.keep([said(n, Role.USER if n % 3 == 0 else Role.ASSISTANT) for n in range(1_500)])
    assert [message.n for message in session.messages[:2]] == [501, 502]
    assert session.messages[-1].n == 1_499


def test_what_is_short_is_kept_whole() -> None:
    session = Session()
    session.keep([said(0, Role.ASSISTANT), said(1, Role.USER)])
    assert len(session.messages) == 2


def test_a_session_at_which_a_run_is_does_not_give_way() -> None:
    sessions = Sessions(1)
    busy = sessions.open(("ann", "a"))
    busy.busy = True
    other = sessions.open(("ann", "b"))
    assert sessions.open(("ann", "a")) is busy
    assert sessions.open(("ann", "b")) is not other
    assert len(sessions) == 2
