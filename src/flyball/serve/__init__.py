"""Agents as services: `chat_app(agent)` serves one over HTTP, `remote_agent(url)` uses one like a child."""

from .app import ChatApp, chat_app
from .remote import RemoteAgent, remote_agent

__all__ = ["ChatApp", "RemoteAgent", "chat_app", "remote_agent"]
