"""Completion: when a run may call itself complete."""
