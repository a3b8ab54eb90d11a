"""A gateway that governs programs which cannot be changed. It needs the extra `gateway`."""

from .execution import Execution, execute
from .gateway import Gateway
from .gateway_options import GatewayOptions

__all__ = ["Execution", "Gateway", "GatewayOptions", "execute"]
