"""Secrets of an organisation, from the execution API's control action `resolve_secret`; nothing is kept here."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

from runtime.errors import ExecuteFailedError, JsonValueError, SecretSilentError
from runtime.execution_api import failures, wire
from runtime.execution_api.tokens import usable_token
from runtime.execution_api.transport import Transport, WireReply
from runtime.model import json_value
from runtime.policy.limits import Limits
from runtime.policy.retrying import CONTROL_RETRIED_STATUSES, control_delay_ms
from runtime.ports import TokenSource


class ApiSecrets:
    """A SecretSource. Tried again where that may help; error texts hold names, statuses and request ids only."""

    def __init__(
        self,
        transport: Transport,
        tokens: TokenSource,
        limits: Limits,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._tokens = tokens
        self._limits = limits
        self._sleep = sleep

    async def secret(self, org_id: str, name: str, play: str) -> str | None:
        """Its value, None if the API has none of that name for this play."""
        operation_id = f"secret-{uuid4().hex}"
        attempt = 1
        while True:
            value, why, delay_ms = await self._try(org_id, name, play, operation_id, attempt)
            if why is None:
                return value
            if delay_ms is None:
                raise SecretSilentError(
                    f'secret "{name}" is not available to play "{play}" now: {why} '
                    f"(attempt {attempt}, operation {operation_id}); a later run may ask again"
                )
            attempt += 1
            await self._sleep(delay_ms / 1000)

    async def _try(
        self, org_id: str, name: str, play: str, operation_id: str, attempt: int
    ) -> tuple[str | None, str | None, float | None]:
        """(value, why there is none now, wait before another try)."""
        try:
            reply = await self._ask(org_id, name, play, operation_id, attempt)
        except ExecuteFailedError as error:
            return None, f"the execution API did not answer ({error.code})", self._delay_ms(attempt)
        if reply.status == 404:
            return None, None, None
        if not reply.is_success:
            return None, f"HTTP {reply.status}", self._delay_after(reply, attempt)
        if reply.broken is not None:
            return None, "its answer was not whole", self._delay_ms(attempt)
        return self._value(reply)

    async def _ask(self, org_id: str, name: str, play: str, operation_id: str, attempt: int) -> WireReply:
        what = "secret"
        token = await usable_token(self._tokens, org_id, what)
        return await self._transport.exchange(
            what,
            "POST",
            wire.CONTROL_PATH,
            headers={
                wire.AUTHORIZATION: f"Bearer {token}",
                "content-type": "application/json",
                wire.REQUEST_ID: f"{operation_id}-{attempt}",
                wire.OPERATION_ID: operation_id,
                wire.OPERATION_ATTEMPT: str(attempt),
            },
            body=json_value.dumps({"action": wire.RESOLVE_SECRET, "name": name, "playName": play}),
            timeout_ms=self._limits.secret_timeout_ms,
            most_bytes=self._limits.control_body_bytes,
        )

    def _value(self, reply: WireReply) -> tuple[str | None, str | None, float | None]:
        try:
            said = json_value.loads(reply.body)
        except JsonValueError:
            return None, "its answer is not JSON", None
        value = said.get("value") if isinstance(said, dict) else None
        if not isinstance(value, str) or not value:
            return None, "its answer holds no value", None
        return value, None, None

    def _delay_ms(self, attempt: int) -> float | None:
        return control_delay_ms(attempt, self._limits)

    def _delay_after(self, reply: WireReply, attempt: int) -> float | None:
        """A longer wait than ours is honoured up to the bound of a single try, else nobody waits for it here."""
        delay_ms = self._delay_ms(attempt) if reply.status in CONTROL_RETRIED_STATUSES else None
        if delay_ms is None:
            return None
        refused = failures.refused_reply("secret", reply, now=datetime.now(UTC), limits=self._limits)
        asked_ms = refused.retry_after_ms or 0
        return None if asked_ms > self._limits.secret_timeout_ms else max(delay_ms, asked_ms)
