"""A local model server for tests, with a script and faults on demand.

It speaks OpenAI's, Anthropic's and Gemini's API.
"""

from .faults import Sent, StatusReply, sent, status
from .looping import LoopingProvider
from .server import ModelServer, ReceivedRequest

__all__ = ["LoopingProvider", "ModelServer", "ReceivedRequest", "Sent", "StatusReply", "sent", "status"]
