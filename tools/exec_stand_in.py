"""Stand-in for everything outside this machine: a proxy that answers as every host, and records what was asked.

It shows whether a program goes around the gateway. Its certificates are for tests
only. Programs are told to trust them.
"""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from exec_install import LOCKS

from flyball.wire import find_wire

_TRUST = str(LOCKS / "stand_in" / "ca.pem")
_PAIR = LOCKS / "stand_in" / "stand_in.pem"
_TIMEOUT_S = 5.0
_MAX_BYTES = 65_536
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_PROVIDERS = frozenset(
    {
        "api.openai.com", "api.anthropic.com", "generativelanguage.googleapis.com", "api.githubcopilot.com",
        "dashscope.aliyuncs.com", "openrouter.ai",
    }
)  # fmt: skip
"""Hosts of models. A request there that cannot be read counts as one to a model."""
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
_TRUSTS = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "CODEX_CA_CERTIFICATE")


@dataclass(frozen=True, slots=True, order=True)
class Arrival:
    """Request that a program made to the outside."""

    host: str
    method: str = ""
    """Empty if the program did not trust the stand-in, so that only the host is known."""
    path: str = ""
    encoding: str = ""
    """Encoding of its body."""

    @property
    def asks_model(self) -> bool:
        """Whether it is a request to a model, or cannot be told from one."""
        is_provider = self.host in _PROVIDERS
        return (self.method == "POST" and find_wire(self.path) is not None) or (is_provider and not self.method)

    def __str__(self) -> str:
        encoding = f" ({self.encoding})" if self.encoding else ""
        return f"{self.method or 'TLS'} {self.host}{self.path}{encoding}"


class StandIn:
    """Proxy on loopback, within its `with` block. `arrivals` has what was asked, oldest first."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.asked_model = threading.Event()
        """Set once a request to a model arrived."""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(_PAIR)

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send a program's requests here."""
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        return {
            **dict.fromkeys(_PROXIES, url),
            **dict.fromkeys(_TRUSTS, _TRUST),
            "NODE_USE_ENV_PROXY": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "no_proxy": "127.0.0.1,localhost",
        }

    def _listen(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                connection, _ = self._listener.accept()
                connection.settimeout(_TIMEOUT_S)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ValueError):
            method, target, _ = _read_head(connection)
            if method != "CONNECT":  # a request without TLS, with the whole address
                host, _, path = target.removeprefix("http://").partition("/")
                self._note(Arrival(host, method, f"/{path}"))
                connection.sendall(_REFUSAL)
                return
            host = target.partition(":")[0]
            connection.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            try:
                inner = self._tls.wrap_socket(connection, server_side=True)
                with inner:
                    method, path, encoding = _read_head(inner)
                    self._note(Arrival(host, method, path.partition("?")[0], encoding))
                    inner.sendall(_REFUSAL)
            except (OSError, ValueError):
                self._note(Arrival(host))

    def _note(self, arrival: Arrival) -> None:
        self.arrivals.append(arrival)
        if arrival.asks_model:
            self.asked_model.set()


def _read_head(connection: socket.socket) -> tuple[str, str, str]:
    """Return method, target and content encoding of a request."""
    data = b""
    while b"\r\n\r\n" not in data and len(data) < _MAX_BYTES:
        chunk = connection.recv(_MAX_BYTES)
        if not chunk:
            break
        data += chunk
    first, *lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    method, target, *_ = first.split(" ")
    return method, target, headers.get("content-encoding", "")
