"""The engine that governs requests to model providers: for programs as they are, and for clients of this process.

A gateway for programs, which is a server, needs the extra `gateway`. A transport for clients does not.
"""

from .execution import Execution, execute
from .gateway import Gateway
from .gateway_options import GatewayOptions
from .in_process import transport
from .process_environment import exec_env

__all__ = ["Execution", "Gateway", "GatewayOptions", "exec_env", "execute", "transport"]
