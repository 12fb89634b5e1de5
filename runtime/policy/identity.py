"""Keys: what makes two calls the same call, here and at the provider (DESIGN 8)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from runtime.model.canonical_json import canonical, digest


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
) -> CallKeys:
    """The provider's key leaves out the revision (a re-read is the same purchase), leases and attempts."""
    before, after, revision = _frame(org_id, tool, auth_scope, action_version, response_revision)
    call = before + canonical(input) + after
    return CallKeys(
        receipt=hashlib.sha256(b'["receipt",' + call + b"," + revision + b"]").hexdigest(),
        item="pl-" + hashlib.sha256(b'["item",' + call + b"]").hexdigest()[:48],
    )


@lru_cache(maxsize=1_024)
def _frame(
    org_id: str, tool: str, auth_scope: str | None, action_version: str, response_revision: str | None
) -> tuple[bytes, bytes, bytes]:
    """Canonical text around the input, `[org,tool,` and `,scope,version]`, and the revision's: alike for many calls."""
    before = b"[" + canonical(org_id) + b"," + canonical(tool) + b","
    after = b"," + canonical(auth_scope) + b"," + canonical(action_version) + b"]"
    return before, after, canonical(response_revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateCall:
    """What sets a call apart from its equals: the `n`-th at `place` of its run. `shares`: refreshes their receipt."""

    run_id: str
    place: tuple[str | int, ...]
    n: int
    shares: bool


def private_keys(shared: CallKeys, call: PrivateCall) -> CallKeys:
    """Keys that no other call has, and that a replay of this one has again."""
    own = [call.run_id, list(call.place), call.n]
    return CallKeys(
        receipt=digest(["private", shared.receipt, *own]),
        item="plp-" + digest(["private item", shared.item, *own])[:48],
    )


def refreshed_item_key(item_key: str, fence: int) -> str:
    """The provider's key of a purchase that replaces the receipt of generation `fence`: the same for all who try."""
    return "plr-" + digest(["refresh", item_key, fence])[:48]


def batch_idempotency_key(*, operation: str, strategy: str, revision: str, item_keys: Sequence[str]) -> str:
    """The provider's key of one batch: a pure function of its ordered members."""
    return "plb-" + digest(["batch", operation, strategy, revision, list(item_keys)])[:48]


def operation_digest(kind: str, arguments: Any) -> str:
    """Digest that a replayed body operation must show again."""
    return digest([kind, arguments])[:32]


def advisory_key(name: str) -> int:
    """A signed 64-bit Postgres advisory lock number for `name`."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
