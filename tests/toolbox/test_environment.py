import pytest

from flyball.toolbox.commands import remove_secrets


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN",
        "PGPASSWORD", "DB_PASS", "SSH_AUTH_SOCK", "GOOGLE_APPLICATION_CREDENTIALS", "SENTRY_DSN", "openai_apikey",
        "KEY", "GH_PAT",
        "SIGNING_KEYS", "MY_PWD",
    ],
)  # fmt: skip
def test_a_name_like_that_of_a_key_is_left_out(name: str) -> None:
    assert remove_secrets({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "value",
    [
        "postgres://me:pw@db/x", "https://:token@host/", "sk-0123456789abcdef0123", "ghp_0123456789abcdef0123",
        "AKIA0123456789ABCDEF", "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.sig", "-----BEGIN PRIVATE KEY-----\nx",
    ],
)  # fmt: skip
def test_a_value_like_a_key_is_left_out(value: str) -> None:
    assert remove_secrets({"HARMLESS": value}) == {}


def test_variables_without_secrets_stay() -> None:
    plain = {
        "PATH": "/bin", "HOME": "/home/me", "PWD": "/", "OLDPWD": "/", "KEYBOARD": "de", "MONKEY": "x", "AUTHOR": "me",
        "LANG": "C", "URL": "https://example.com/a:b", "PASSAGE": "x", "PATTERN": "x",
    }  # fmt: skip
    assert remove_secrets(plain) == plain
