import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from flyball import Agent
from flyball.errors import ConfigError
from flyball.outcome import Failure, Outcome, Status
from flyball.person import deny
from flyball.request import Call
from flyball.testing import ScriptedModel, call, say, until
from flyball.toolbox import fetch
from flyball.tools import BoundedToolExecutor, Tool

Made = Callable[[list[Tool]], Callable[..., Outcome]]
HERE = ["127.0.0.1"]


class Names:
    """A look-up of names that knows what it was asked, and may answer otherwise each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append((host, port))
        if not self.answers:
            raise OSError("no such name")
        return self.answers.pop(0)


def get(url: str, **options: Any) -> Outcome:
    [outcome] = BoundedToolExecutor(fetch(**options)).execute(Call("1", "fetch", {"url": url}))
    return outcome


def test_fetch_is_marked_as_a_read() -> None:
    [tool] = fetch()
    assert (tool.name, tool.writes, tool.idempotent, tool.may_need_approval) == ("fetch", False, True, False)


def test_options_of_fetch_are_checked() -> None:
    wrong: list[tuple[dict[str, Any], str, object]] = [
        ({"allow": ["intranet"]}, "fetch, allow", "intranet"),
        ({"max_bytes": 0}, "fetch, max_bytes", 0),
        ({"timeout": -1}, "tool 'fetch', timeout", -1),
    ]
    for options, where, found in wrong:
        with pytest.raises(ConfigError) as caught:
            fetch(**options)
        assert (caught.value.where, caught.value.found) == (where, found)


class TestPages:
    def test_a_page_is_text_with_its_address(self, site: Any, snapshot: Callable[..., None]) -> None:
        url = site.url("/page")
        text, _, place = get(url, allow=HERE).text.rpartition("\n")
        assert text == "Socks\nWarm & cheap."
        assert url in place
        snapshot(place.replace(url, "URL"))

    def test_nothing_is_sent_that_would_tell_who_asks(self, site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(variable, "http://127.0.0.1:9")
        executor = BoundedToolExecutor(fetch(allow=HERE))
        for _ in range(2):
            assert executor.execute(Call("1", "fetch", {"url": site.url("/page")}))[0].ok
        for headers in site.headers:
            assert sorted(headers.keys()) == ["accept", "accept-encoding", "host", "user-agent"]

    def test_a_long_text_comes_in_parts(self, site: Any, made: Made) -> None:
        fetches = made(fetch(allow=HERE))
        first = fetches("fetch", url=site.url("/long/25000")).text
        assert "0 to 10000 of 25000" in first
        assert "20000 to 25000 of 25000" in fetches("fetch", url=site.url("/long/25000"), start=20_000).text

    def test_what_is_too_large_is_cut_packed_or_not(self, site: Any) -> None:
        for path in ("/long/5000", "/bomb"):
            found = get(site.url(path), allow=HERE, max_bytes=1_000).text
            assert "1,000" in found.rpartition("\n")[2]

    @pytest.mark.parametrize(
        ("path", "words"),
        [("/missing", "404 Not Found\nNot here"), ("/image", "image/png")],
    )
    def test_what_is_no_page_is_a_failure(self, site: Any, path: str, words: str) -> None:
        outcome = get(site.url(path), allow=HERE)
        assert isinstance(outcome, Failure)
        assert (outcome.kind, words in outcome.error) == ("FetchRefused", True)

    def test_a_server_that_is_not_there_is_a_failure(self, site: Any) -> None:
        site.close()
        assert not get(site.url("/page"), allow=HERE).ok

    def test_all_addresses_of_a_name_are_tried(self, site: Any) -> None:
        names = Names(["127.0.0.9", "127.0.0.1"])
        assert get(site.url("/page", "two.invalid"), allow=["127.0.0.0/8"], resolver=names).ok


class TestGuard:
    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost.", "127.0.0.1.", "127。0。0。1"])
    def test_this_machine_is_closed_unless_it_is_allowed(self, site: Any, host: str) -> None:
        outcome = get(site.url("/page", host))
        assert "127.0.0.1" in outcome.text.partition("/page")[2]
        assert site.hosts == []
        assert get(site.url("/page", host), allow=HERE).ok

    @pytest.mark.parametrize(
        "host",
        [
            "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[fe80::1]",
            "0.0.0.0", "[::]", "10.0.0.1", "169.254.169.254", "100.64.0.1", "[fd00:ec2::254]",
        ],
    )  # fmt: skip
    def test_other_forms_of_this_machine_and_its_network_are_closed_too(self, site: Any, host: str) -> None:
        outcome = get(site.url("/page", host), allow=HERE)
        assert isinstance(outcome, Failure)
        assert outcome.kind == "FetchRefused"
        assert site.hosts == []

    @pytest.mark.parametrize(
        "host",
        [
            "2130706433",
            "0x7f000001",
            "0177.0.0.1",
            "127.1",
            "0",
            "0x7f.0.0.1",
            "[fe80::1%25lo]",
            "%31",
            "a b",
            "127.0.0.01",
        ],
    )
    def test_disguises_are_refused_even_where_the_address_is_allowed(self, site: Any, host: str) -> None:
        assert not get(site.url("/page", host), allow=["127.0.0.0/8", "0.0.0.0/8"], resolver=Names(HERE)).ok
        assert site.hosts == []

    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "javascript:1", "data:text/plain,x",
            "/etc/passwd", "//127.0.0.1/", "127.0.0.1", "", "http://", "http:///x", "http://[::1", "http://a\nb/", "http://a:99999/",
            "http://a:0/", "http://a:x/", "http://" + "a" * 300, "http://\udc00/",
        ],
    )  # fmt: skip
    def test_what_is_no_address_of_a_page_is_refused_before_anything_is_looked_up(self, url: str) -> None:
        names = Names(HERE)
        outcome = get(url, allow=HERE, resolver=names)
        assert outcome.status in (Status.FAILED, Status.DENIED)
        assert names.asked == []

    def test_a_password_in_the_url_is_refused_and_not_shown(self, site: Any, key: str) -> None:
        for user in (f"me:{key}@", f"{key}@"):
            outcome = get(site.url("/page", f"{user}127.0.0.1"), allow=HERE)
            assert "password" in outcome.text
            assert key not in outcome.text
        assert site.hosts == []

    def test_a_name_is_looked_up_once_and_that_address_is_used(self, site: Any) -> None:
        names = Names(HERE, ["10.0.0.1"])
        assert get(site.url("/page", "rebind.invalid"), allow=HERE, resolver=names).ok  # the system knows no such name
        assert names.asked == [("rebind.invalid", site.port)]
        assert site.hosts == [f"rebind.invalid:{site.port}"]

    def test_a_name_that_leads_inside_the_second_time_is_refused_then(self, site: Any) -> None:
        names = Names(HERE, ["169.254.169.254"])
        outcome = get(site.url("/to//page", "rebind.invalid"), allow=HERE, resolver=names)
        assert "169.254.169.254" in outcome.text
        assert site.hosts == [f"rebind.invalid:{site.port}"]

    def test_only_the_public_addresses_of_a_name_are_used(self, site: Any) -> None:
        assert get(site.url("/page", "x.invalid"), allow=HERE, resolver=Names(["10.0.0.1", "no", "127.0.0.1"])).ok
        assert not get(site.url("/page", "x.invalid"), allow=HERE, resolver=Names(["10.0.0.1", "localhost"])).ok
        assert not get(site.url("/page", "x.invalid"), allow=HERE, resolver=Names([])).ok
        assert "no such name" in get(site.url("/page", "x.invalid"), resolver=Names()).text


class TestRedirects:
    def test_a_redirect_is_followed(self, site: Any) -> None:
        for target in ("/page", site.url("/page"), f"//127.0.0.1:{site.port}/page"):
            assert get(site.url(f"/to/{target}"), allow=HERE).text.startswith("Socks\n")

    @pytest.mark.parametrize(
        "target",
        [
            "http://127.0.0.2/", "http://[::1]/", "http://10.0.0.1/", "http://2130706433/", "file:///etc/passwd", "ftp://x/",
            "http://me:pw@127.0.0.1:{port}/page", "http://2130706433:{port}/page",
            "//169.254.169.254/latest", "javascript:1", "http://[",
        ],
    )  # fmt: skip
    def test_a_redirect_that_leads_inside_or_nowhere_is_refused(self, site: Any, target: str) -> None:
        outcome = get(site.url(f"/to/{target.format(port=site.port)}"), allow=HERE, resolver=Names(HERE))
        assert isinstance(outcome, Failure)
        assert outcome.kind == "FetchRefused"
        assert len(site.hosts) == 1

    def test_redirects_have_an_end(self, site: Any) -> None:
        assert not get(site.url("/round/0"), allow=HERE).ok
        assert len(site.hosts) == 6


class TestTls:
    @pytest.fixture
    def trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(Path(__file__).with_name("page.example.pem")))

    def ask(self, site: Any, host: str, tls: ssl.SSLContext | None) -> Outcome:
        return get(f"https://{host}:{site.port}/page", allow=HERE, resolver=Names(HERE), tls=tls)

    def test_the_name_of_the_url_is_what_the_certificate_must_have(
        self, secure_site: Any, trust: ssl.SSLContext
    ) -> None:
        assert self.ask(secure_site, "page.example", trust).ok
        assert self.ask(secure_site, "page.example.", trust).ok
        for host in ("other.example", "127.0.0.1"):
            assert "CERTIFICATE_VERIFY_FAILED" in self.ask(secure_site, host, trust).text

    def test_what_the_system_does_not_trust_is_refused(self, secure_site: Any) -> None:
        assert "CERTIFICATE_VERIFY_FAILED" in self.ask(secure_site, "page.example", None).text
        assert secure_site.hosts == []


class TestTime:
    @pytest.mark.parametrize("path", ["/slow", "/silent"])
    def test_a_slow_page_is_given_up(self, site: Any, path: str) -> None:
        assert get(site.url(path), allow=HERE, timeout=0.3).status is Status.TIMED_OUT

    def test_a_slow_look_up_is_given_up(self) -> None:
        async def forever(host: str, port: int) -> list[str]:
            await anyio.sleep(60)
            return []

        assert get("http://x.invalid/", resolver=forever, timeout=0.1).status is Status.TIMED_OUT

    def test_a_cancel_closes_the_connection(self, site: Any) -> None:
        agent = Agent(model=ScriptedModel(call("fetch", url=site.url("/slow")), say("x")), tools=fetch(allow=HERE))
        run = agent.start("Go.")
        until(lambda: bool(site.hosts))
        assert run.cancel()
        assert run.result().stop == "cancelled"
        assert site.broken_off.wait(60)

    def test_fetch_works_on_trio(self, site: Any) -> None:
        executor = BoundedToolExecutor(fetch(allow=HERE))
        url = site.url("/page", "localhost")
        [outcome] = anyio.run(executor.aexecute, Call("1", "fetch", {"url": url}), backend="trio")
        assert outcome.text.startswith("Socks")


def test_a_person_may_be_asked_first(site: Any) -> None:
    model = ScriptedModel(call("fetch", url=site.url("/page")), say("Then not."))
    agent = Agent(model=model, tools=fetch(allow=HERE, approve=True), approver=lambda _: deny("No."))
    [outcome] = agent.run("Go.").tool_results
    assert (outcome.status, "No." in outcome.text) == ("denied", True)
    assert site.hosts == []
