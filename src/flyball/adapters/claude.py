"""Adapter for the Claude Agent SDK."""
