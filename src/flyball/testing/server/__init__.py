"""A model's server on this machine: it speaks both wires, says what a script says, and misbehaves on demand."""

from .faults import Sent, StatusReply, sent, status
from .server import ModelServer, ReceivedRequest

__all__ = ["ModelServer", "ReceivedRequest", "Sent", "StatusReply", "sent", "status"]
