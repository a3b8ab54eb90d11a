"""Models: whatever answers a request."""

from .model import Model

__all__ = ["Model"]
