"""Stand-in for everything outside this machine: a proxy that answers as every host, and records what was asked.

It shows whether a program goes around the gateway. Its certificates are made for each use, and programs are told to
trust them.
"""

from __future__ import annotations

import datetime
import re
import shutil
import socket
import ssl
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flyball.wire import find_wire

PRELOAD = Path(__file__).with_name("exec_outside.cjs")
"""Script for node that reports connections to the outside here, for a program whose proxy is taken out."""
_TIMEOUT_S = 5.0
_MAX_BYTES = 65_536
_REFUSAL = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_BESIDE = frozenset(
    {
        "ab.chatgpt.com", "api.continue.dev", "api.github.com", "data.cline.bot", "github.com",
        "gb4w8c3ygj-default-sea.rum.aliyuncs.com", "models.opencode.ai", "otel.cline.bot", "play.googleapis.com",
        "raw.githubusercontent.com", "registry.npmjs.org",
    }
)  # fmt: skip
"""Hosts for telemetry and updates. A request to another host that cannot be read counts as one to a model."""
_OTHER_APIS = re.compile(r"/(converse|invoke)|:(stream)?(generateContent|rawPredict)", re.IGNORECASE)
"""Paths of models at Bedrock, Vertex and Code Assist."""
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
        if not self.method:
            return self.host not in _BESIDE
        return find_wire(self.path) is not None or _OTHER_APIS.search(self.path) is not None

    def __str__(self) -> str:
        encoding = f" ({self.encoding})" if self.encoding else ""
        return f"{self.method or 'TLS'} {self.host}{self.path}{encoding}"


class StandIn:
    """Proxy on loopback, within its `with` block. `arrivals` has what was asked, oldest first."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.asked_model = threading.Event()
        """Set once a request to a model arrived."""

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="flyball-stand-in-"))
        self._certificates = Certificates(self._folder)
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._listen, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send a program's requests here."""
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        return {
            **dict.fromkeys(_PROXIES, url),
            **dict.fromkeys(_TRUSTS, str(self._certificates.trust)),
            "FLYBALL_STAND_IN": url.rpartition(":")[2],
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
                inner = self._certificates.build_context(host).wrap_socket(connection, server_side=True)
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


class Certificates:
    """Certificates for any host, signed by an authority of their own, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flyball tests")])
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._lock = threading.Lock()
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        authority = (
            self._build("flyball tests")
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )
        self.trust = folder / "ca.pem"
        """File with the authority, for programs to trust."""
        self.trust.write_bytes(authority.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def build_context(self, host: str) -> ssl.SSLContext:
        """Return the TLS of a server that has this name."""
        with self._lock:
            if host not in self._contexts:
                self._contexts[host] = self._sign(host)
            return self._contexts[host]

    def _sign(self, host: str) -> ssl.SSLContext:
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = (
            self._build(host)
            .add_extension(names, critical=False)
            .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(issuer_key, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        key = self._key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pair = self._folder / "server.pem"
        pair.write_bytes(certificate.public_bytes(serialization.Encoding.PEM) + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        return context

    def _build(self, name: str) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
