"""Address of the gateway that stands for a provider, for programs that are not pointed by variables alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

TOKEN_HEADER = "x-flyball-token"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayAddress:
    """Gateway in the place of one provider."""

    root: str
    """Address of the gateway itself. It refuses all providers below it that it does not know."""
    url: str
    """Address without a version and without a secret. Requests need a stand-in key or the token in a header."""
    full_url: str
    """Address as in the variables. It has the token if the gateway holds no key of this provider."""
    version: str
    token: str = field(repr=False)
    stand_ins: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Stand-ins by the real key."""

    @property
    def versioned_url(self) -> str:
        """Address with a version and without a secret."""
        return f"{self.url}{self.version}"

    @property
    def headers(self) -> dict[str, str]:
        """Header that lets requests in without a stand-in key."""
        return {TOKEN_HEADER: self.token}
