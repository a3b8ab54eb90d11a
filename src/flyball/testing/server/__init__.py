"""A local model server for tests: OpenAI's and Anthropic's API, a script, and faults on demand."""

from .faults import Sent, StatusReply, sent, status
from .server import ModelServer, ReceivedRequest

__all__ = ["ModelServer", "ReceivedRequest", "Sent", "StatusReply", "sent", "status"]
