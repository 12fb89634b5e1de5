"""The public network, and secrets."""

from typing import Protocol

from runtime.model.fetch import EgressReply, EgressRequest


class Egress(Protocol):
    async def send(self, request: EgressRequest, *, total_ms: float) -> EgressReply:
        """Send once, following redirects; each address is checked and is the one connected to.

        Raises EgressRefusedError (final), FetchTimeoutError (its deadline) or FetchFailedError (no whole answer).
        """
        ...

    def is_allowed(self, url: str) -> bool:
        """Whether an operator let fetches reach this host although it may not be public."""
        ...


class SecretSource(Protocol):
    async def secret(self, org_id: str, name: str, play: str) -> str | None:
        """Its value, None if this source has none. Raises SecretUnavailableError if that can't be told now."""
        ...
