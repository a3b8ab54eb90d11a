"""Agents: options, tools, delegation, the run handle and stored runs."""

from .agent import Agent

__all__ = ["Agent"]
