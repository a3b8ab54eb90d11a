"""A model's server on this machine: it speaks both wires, says what a script says, and misbehaves on demand."""

from .faults import Sent, StatusReply, sent, status
from .server import Heard, ModelServer

__all__ = ["Heard", "ModelServer", "Sent", "StatusReply", "sent", "status"]
