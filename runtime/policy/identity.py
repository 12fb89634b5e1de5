"""Keys: what makes two calls the same call, here and at the provider."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runtime.model.canonical_json import canonical, digest

EVENT_LOCKS = 64

FIXTURE = "fixture"  # the integration mode without effects at a provider


@dataclass(frozen=True, slots=True, kw_only=True)
class CallKeys:
    """`receipt`: sha256 hex, shared by all plays and runs of an org. `item`: the provider's key of one item."""

    receipt: str
    item: str


def call_keys(
    *,
    org_id: str,
    tool: str,
    input: Any,
    auth_scope: str | None,
    action_version: str,
    response_revision: str | None,
    integration_mode: str | None = None,
) -> CallKeys:
    """The provider's key leaves out the revision (a re-read is the same purchase), leases and attempts.

    What a fixture answered is never taken for what a provider answered.
    """
    mode = FIXTURE if integration_mode == FIXTURE else None
    before, after, revision = _frame(org_id, tool, auth_scope, action_version, response_revision, mode)
    call = before + canonical(input) + after
    return CallKeys(
        receipt=hashlib.sha256(b'["receipt",' + call + b"," + revision + b"]").hexdigest(),
        item="pl-" + hashlib.sha256(b'["item",' + call + b"]").hexdigest()[:48],
    )


@lru_cache(maxsize=1_024)
def _frame(
    org_id: str,
    tool: str,
    auth_scope: str | None,
    action_version: str,
    response_revision: str | None,
    mode: str | None,
) -> tuple[bytes, bytes, bytes]:
    """Canonical text around the input, `[org,tool,` and `,scope,version]`, and the revision's: alike for many calls."""
    before = b"[" + canonical(org_id) + b"," + canonical(tool) + b","
    modes = b"," + canonical(mode) if mode else b""
    after = b"," + canonical(auth_scope) + b"," + canonical(action_version) + modes + b"]"
    return before, after, canonical(response_revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateCall:
    """What sets a call apart from its equals: the `n`-th at `place` of its run. `shares`: refreshes their receipt."""

    run_id: str
    place: tuple[str | int, ...]
    n: int
    shares: bool


def private_keys(plain: CallKeys, call: PrivateCall) -> CallKeys:
    """Keys that no other call has, and that a replay of this one has again."""
    own = [call.run_id, list(call.place), call.n]
    return CallKeys(
        receipt=digest(["private", plain.receipt, *own]),
        item="plp-" + digest(["private item", plain.item, *own])[:48],
    )


def local_key(*, kind: str, org_id: str, run_id: str, place: Sequence[str | int], id: str, n: int) -> str:
    """Receipt key of a step or fetch that is its run's own: the `n`-th `id` at `place`."""
    return digest(["local", kind, org_id, run_id, list(place), id, n])


def shared_local_key(
    *, kind: str, org_id: str, namespace: str, id: str, place: Sequence[str | int], semantic_key: str | None
) -> str:
    """Receipt key of a step or fetch that runs share: its play or child `namespace`, and the row it belongs to."""
    return digest(["shared local", kind, org_id, namespace, id, list(place), semantic_key])


def refreshed_item_key(item_key: str, fence: int) -> str:
    """The provider's key of a purchase that replaces the receipt of generation `fence`: the same for all who try."""
    return "plr-" + digest(["refresh", item_key, fence])[:48]


def refresh_mark_key(receipt_key: str, fence: int) -> str:
    """Where it is marked that the completed receipt of generation `fence` is being bought anew."""
    return digest(["refresh mark", receipt_key, fence])


def batch_idempotency_key(*, operation: str, strategy: str, revision: str, item_keys: Sequence[str]) -> str:
    """The provider's key of one batch: a pure function of its ordered members."""
    return "plb-" + digest(["batch", operation, strategy, revision, list(item_keys)])[:48]


def operation_digest(kind: str, arguments: Any) -> str:
    """Digest that a replayed body operation must show again."""
    return digest([kind, arguments])[:32]


def event_lock(event_key: str | None) -> int:
    """The advisory lock of an event key; a bounded number of them, as a transaction may need many at once."""
    return hashlib.sha256((event_key or "").encode("utf-8", "surrogatepass")).digest()[0] % EVENT_LOCKS


def advisory_key(name: str) -> int:
    """A signed 64-bit Postgres advisory lock number for `name`."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
