"""The stand-in for the outside sees a request to a model, however a program makes it."""

import os
import ssl
import subprocess

import httpx2
import pytest
from exec_install import find_node
from exec_stand_in import PRELOAD, StandIn

FETCH = "fetch('https://api.groq.com/openai/v1/responses', {method: 'POST', body: '{}'}).catch(() => {})"


@pytest.mark.parametrize(
    ("method", "url", "asks_model"),
    [
        ("POST", "https://api.openai.com/v1/chat/completions", True),
        ("POST", "https://a.host.not.known.example/openai/v1/responses", True),
        ("GET", "https://api.openai.com/v1/responses", True),  # a websocket
        ("POST", "https://cloudcode-pa.googleapis.com/v1internal:streamGenerateContent", True),
        ("POST", "https://bedrock-runtime.us-east-1.amazonaws.com/model/x/converse-stream", True),
        ("POST", "http://plain.example/v1/messages", True),
        ("POST", "https://api.anthropic.com/api/event_logging/batch", False),
        ("GET", "https://registry.npmjs.org/x", False),
    ],
)
def test_a_request_to_a_model_is_told_from_others_on_any_host(method: str, url: str, asks_model: bool) -> None:
    with StandIn() as stand_in:
        trust = ssl.create_default_context(cafile=stand_in.environment["SSL_CERT_FILE"])
        with httpx2.Client(proxy=stand_in.environment["HTTPS_PROXY"], verify=trust) as client:
            assert client.request(method, url).status_code == 403
        arrival = stand_in.arrivals[0]
        assert (arrival.method, arrival.host, arrival.asks_model) == (method, httpx2.URL(url).host, asks_model)
        assert stand_in.asked_model.is_set() is asks_model


def test_a_program_that_does_not_trust_the_stand_in_counts_as_one_that_asks_a_model() -> None:
    with StandIn() as stand_in:
        with (
            httpx2.Client(proxy=stand_in.environment["HTTPS_PROXY"]) as client,
            pytest.raises(httpx2.ConnectError),
        ):
            client.post("https://api.example.com/x")
        assert stand_in.asked_model.wait(10)
        assert [str(arrival) for arrival in stand_in.arrivals] == ["TLS api.example.com"]


def test_a_node_program_without_a_proxy_is_seen_and_reaches_nothing() -> None:
    with StandIn() as stand_in:
        names = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "FLYBALL_STAND_IN")
        environment = {name: stand_in.environment[name] for name in names}
        options = f"--require {PRELOAD}"
        command = [str(find_node() / "node"), "--eval", FETCH]
        subprocess.run(
            command, env={"PATH": os.environ["PATH"], "NODE_OPTIONS": options, **environment}, timeout=30, check=True
        )
        assert stand_in.asked_model.wait(10)
        assert {arrival.host for arrival in stand_in.arrivals} == {"api.groq.com"}
