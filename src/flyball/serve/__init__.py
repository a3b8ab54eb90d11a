"""Agents over HTTP: `chat_app(agent)` serves one, `remote_agent(url)` calls one as a child."""

from .app import ChatApp, chat_app
from .remote import RemoteAgent, remote_agent

__all__ = ["ChatApp", "RemoteAgent", "chat_app", "remote_agent"]
