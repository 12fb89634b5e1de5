"""The execution API's own account of what a contender made it do."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from bench.workload import Workload, items_of

LEDGER_PATH = "/_ledger"
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Requests that did work, the items in them, what was charged, and requests that were refused."""

    requests: int
    items: int
    charged: int
    charged_items: tuple[Any, ...]
    refused: int


def account_of(entries: Iterable[Mapping[str, Any]]) -> Account:
    """Sum up ledger entries."""
    entries = list(entries)
    done = [entry for entry in entries if entry["status"] == 200]
    return Account(
        requests=len(done),
        items=sum(len(entry["items"]) for entry in done),
        charged=sum(entry["charged"] for entry in done),
        charged_items=tuple(item for entry in done for item in entry["charged_items"]),
        refused=len(entries) - len(done),
    )


def complaint(account: Account, workload: Workload) -> str | None:
    """What was not paid exactly once, in plain words; None when all is well."""
    wanted = set(items_of(workload.tag, workload.rows))
    paid = set(account.charged_items)
    twice, missing, strange = account.charged - len(paid), len(wanted - paid), len(paid - wanted)
    if not (twice or missing or strange):
        return None
    return (
        f"{workload.rows} items should be charged once each, but the ledger charged {account.charged}: "
        f"{twice} more than once, {missing} never, {strange} unknown"
    )


def read_account(api_url: str) -> Account:
    """Everything since the ledger was cleared."""
    reply = httpx.get(f"{api_url}{LEDGER_PATH}", timeout=TIMEOUT_S, trust_env=False).raise_for_status()
    return account_of(reply.json()["entries"])


def clear_ledger(api_url: str) -> None:
    httpx.delete(f"{api_url}{LEDGER_PATH}", timeout=TIMEOUT_S, trust_env=False).raise_for_status()
