import pytest

from flyball import ConfigError
from flyball.toolbox import shell
from flyball.toolbox.commands import select_environment


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY", "AWS_SESSION_TOKEN", "PGPASSWORD", "SSH_AUTH_SOCK", "SENTRY_DSN", "DB_PW", "CREDS",
        "AUTHORIZATION", "SLACK_WEBHOOK_URL", "DATABASE_URL", "HTTPS_PROXY", "ConnectionStrings__Main", "HARMLESS",
        "path", "XPATH", "LC", "DISPLAY_LC_ALL",
    ],
)  # fmt: skip
def test_a_variable_that_is_not_allowed_is_left_out(name: str) -> None:
    assert select_environment({name: "x", "PATH": "/bin"}) == {"PATH": "/bin"}


def test_the_usual_variables_stay() -> None:
    usual = {"PATH": "/bin", "HOME": "/home/me", "PWD": "/", "LANG": "C", "LC_ALL": "C", "TZ": "UTC", "TMPDIR": "/tmp"}
    assert select_environment(usual) == usual


def test_a_variable_is_passed_by_its_exact_name() -> None:
    assert select_environment({"CI": "1", "CI_TOKEN": "x", "ci": "y"}, ["CI"]) == {"CI": "1"}


def test_a_text_instead_of_a_list_of_names_is_refused() -> None:
    with pytest.raises(ConfigError, match="pass_env"):
        shell(pass_env="CI")
