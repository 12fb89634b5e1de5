"""Values of secrets: asked of the sources in turn, kept a minute, known from then on to all that redacts."""

import asyncio
from collections.abc import Callable, Sequence

from runtime.errors import SecretSilentError, SecretUnavailableError
from runtime.known_secrets import KnownSecrets, known_secrets
from runtime.policy.limits import Limits
from runtime.ports import LoopBridge
from runtime.ports.egress import SecretSource


class SecretValues:
    """One per process, on its loop. A failure is never kept."""

    def __init__(
        self,
        sources: Sequence[SecretSource],
        limits: Limits,
        *,
        known: KnownSecrets = known_secrets,
        now_s: Callable[[], float] | None = None,
    ) -> None:
        self._sources = tuple(sources)
        self._limits = limits
        self._known = known
        self._now_s = now_s
        self._kept: dict[tuple[str, str, str], tuple[float, asyncio.Future[str]]] = {}

    async def value(self, org_id: str, name: str, play: str) -> str:
        """The secret's value; SecretUnavailableError says whether asking again may help."""
        key = (org_id, name, play)
        kept = self._kept.get(key)
        if kept is None or kept[0] <= self._now():
            if len(self._kept) >= self._limits.secrets_known:
                self._kept.clear()
            asked = asyncio.ensure_future(self._ask(org_id, name, play))
            kept = self._kept[key] = (self._now() + self._limits.secret_ttl_s, asked)
            asked.add_done_callback(lambda done: self._forget_failed(key, done))
        return await asyncio.shield(kept[1])

    async def _ask(self, org_id: str, name: str, play: str) -> str:
        for source in self._sources:
            value = await source.secret(org_id, name, play)
            if value is not None:
                return self._taken(org_id, name, value)
        raise SecretUnavailableError(
            f'secret "{name}" is not available to play "{play}": neither the environment of the workers '
            f"({environment_name(name)}) nor the execution API has it. Give it a value, then start a new run"
        )

    def _taken(self, org_id: str, name: str, value: str) -> str:
        if not value or len(value) > self._limits.secret_chars:
            raise SecretUnavailableError(
                f'secret "{name}" is empty or longer than {self._limits.secret_chars:,} characters: mend its value'
            )
        self._known.add(org_id, name, value)
        return value

    def _forget_failed(self, key: tuple[str, str, str], done: "asyncio.Future[str]") -> None:
        if done.cancelled() or done.exception() is not None:
            kept = self._kept.get(key)
            if kept is not None and kept[1] is done:
                del self._kept[key]

    def _now(self) -> float:
        return self._now_s() if self._now_s is not None else asyncio.get_running_loop().time()


def environment_name(name: str) -> str:
    """The variable that gives a secret to the workers of a deployment."""
    return "PLAYLANE_SECRET_" + "".join(one if one.isalnum() else "_" for one in name).upper()


def body_secrets(
    secrets: SecretValues | None, bridge: LoopBridge, org_id: str, play: str, limits: Limits
) -> Callable[[str], str] | None:
    """How a body gets a secret: its thread waits for it."""
    if secrets is None:
        return None
    source = secrets

    def secret(name: str) -> str:
        try:
            return bridge.call(source.value(org_id, name, play), limits.body_call_s)
        except TimeoutError:
            raise SecretSilentError(
                f'secret "{name}" was not given within {limits.body_call_s:g} s; a later run may ask again'
            ) from None

    return secret
