"""The provider's own account of a run: what was sent, under which keys, and what was charged."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The entries of one run."""

    entries: Sequence[Mapping[str, Any]]

    @classmethod
    def of_run(cls, api_url: str, run_id: str) -> "Ledger":
        reply = httpx.get(f"{api_url}/_ledger", timeout=TIMEOUT_S, trust_env=False).raise_for_status()
        return cls(entries=[entry for entry in reply.json()["entries"] if run_id in entry["run_ids"]])

    def charged(self) -> Counter[str]:
        """How often each item was charged."""
        return Counter(ledger_name(item) for entry in self.entries for item in entry["charged_items"])

    def charged_twice(self) -> list[str]:
        return sorted(item for item, times in self.charged().items() if times > 1)

    def sent_under_two_keys(self) -> list[str]:
        """Items that the provider worked on in two different batches: only their own keys saved the money."""
        batches: defaultdict[str, set[str]] = defaultdict(set)
        for entry in self.entries:
            if entry["status"] == 200:
                for item in entry["items"]:
                    batches[ledger_name(item)].add(entry["batch_key"])
        return sorted(item for item, keys in batches.items() if len(keys) > 1)

    def requests_with(self, item: str) -> int:
        """How many requests held the item, whatever became of them."""
        return sum(item in map(ledger_name, entry["items"]) for entry in self.entries)


def ledger_name(item: Any) -> str:
    """An item as text: its own, the job that was asked after, or the country code that was asked for."""
    if isinstance(item, str):
        return item
    return (
        item["item"]
        if "item" in item
        else f"job {item['job_id']}"
        if "job_id" in item
        else f"code {item['code']}"
    )
