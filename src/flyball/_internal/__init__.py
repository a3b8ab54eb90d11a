"""Internals. Nothing here is part of the public API."""
