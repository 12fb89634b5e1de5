"""How calls of one tool are batched: bucket, payload, request and record as functions of the ordered members."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from runtime.batch_strategies import batch_strategies
from runtime.engine.lane_book import Item
from runtime.model import json_value
from runtime.model.call import Call
from runtime.model.lease import BatchRecord
from runtime.model.physical_request import PhysicalRequest
from runtime.model.query_page import QueryPage
from runtime.model.tool import ToolMetadata
from runtime.policy.batching import BatchStrategy
from runtime.policy.coalescing import BucketKey
from runtime.policy.identity import batch_idempotency_key
from runtime.policy.limits import Limits
from runtime.policy.retrying import deadline_ms

CONTRACT = "raw-v2"
log = structlog.get_logger()

SpecKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    metadata: ToolMetadata
    strategy: BatchStrategy
    timeout_ms: float

    @property
    def is_fenced(self) -> bool:
        """Its calls' effect must not happen twice, so their sending is marked durably."""
        return self.metadata.requires_execution_fence

    def bucket(self, call: Call, lane: str, origin: str) -> BucketKey:
        return BucketKey(
            lane=lane,
            origin=origin,
            org_id=call.org_id,
            integration_mode=call.integration_mode,
            contract=CONTRACT,
            response_revision=self.metadata.response_revision,
            auth_scope=call.auth_scope,
            operation=self.strategy.operation,
            strategy=self.strategy.name,
            strategy_revision=self.strategy.revision,
            bucket=self.bucket_of(call),
            tool=self.metadata.tool,
        )

    def bucket_of(self, call: Call) -> str:
        """Which of the operation's calls it may travel with; alone if the strategy fails to say."""
        if call.page is not None:
            return f"page:{call.key}"
        try:
            return self.strategy.bucket(call.input)
        except Exception:
            log.exception("no bucket for a call", action="lane.bucket", tool=call.tool)
            return f"alone:{call.key}"

    def request(self, calls: Sequence[Call], attempt: int = 0) -> PhysicalRequest:
        """The one request of these calls in this order."""
        item_keys = tuple(call.idempotency_key for call in calls)
        first = calls[0]
        return PhysicalRequest(
            org_id=first.org_id,
            operation=self.strategy.operation,
            payload=json_value.dumps(self.strategy.payload([call.input for call in calls])),
            idempotency_key=batch_idempotency_key(
                operation=self.strategy.operation,
                strategy=self.strategy.name,
                revision=self.strategy.revision,
                item_keys=item_keys,
            ),
            item_idempotency_keys=item_keys,
            run_ids=tuple(dict.fromkeys(call.run_id for call in calls)),
            receipt_key=first.idempotency_key if len(calls) == 1 else None,
            integration_mode=first.integration_mode,
            timeout_ms=max(call.timeout_ms or self.timeout_ms for call in calls),
            attempt=attempt,
            tool=self.metadata.tool,
            auth_scope=first.auth_scope,
            is_fenced=self.is_fenced,
            page=first.page,
            node=first.node,
        )

    def record(self, batch_id: str, session_id: str, lane: str, items: Sequence[Item]) -> BatchRecord:
        """Everything that sending these items again verbatim takes."""
        return BatchRecord(
            batch_id=batch_id,
            session_id=session_id,
            lane=lane,
            operation=self.strategy.operation,
            strategy=self.strategy.name,
            revision=self.strategy.revision,
            members=tuple(_member(item) for item in items),
            fences=(
                *(item.fence for item in items),
                *(item.shared_fence for item in items if item.shared_fence),
            ),
        )

    def explains(self, record: BatchRecord) -> bool:
        """Whether payload and split of `record` are those of this spec."""
        strategy = self.strategy
        return (record.operation, record.strategy, record.revision) == (
            strategy.operation,
            strategy.name,
            strategy.revision,
        )


def spec_key(call: Call) -> SpecKey:
    """Organisation and tool: what a spec depends on."""
    return (call.org_id, call.tool)


def batch_spec(metadata: ToolMetadata, limits: Limits) -> BatchSpec:
    """Raises PlayDefinitionError if the tool declares a strategy that is not known here."""
    return BatchSpec(
        metadata=metadata,
        strategy=batch_strategies.of(metadata),
        timeout_ms=deadline_ms(metadata.tool, asked_ms=None, declared_ms=metadata.timeout_ms, limits=limits),
    )


def _member(item: Item) -> dict[str, Any]:
    call = item.call
    return {
        "key": call.key,
        "fence": item.fence,
        "org_id": call.org_id,
        "run_id": call.run_id,
        "tool": call.tool,
        "input": call.input,
        "idempotency_key": call.idempotency_key,
        "integration_mode": call.integration_mode,
        "inboxes": [
            [waiter.inbox, waiter.run_id, waiter.accepts.not_before_ms, waiter.accepts.failed_not_before_ms]
            for waiter in item.waiters
        ],
        "shared_key": call.shared_key if item.shared_fence else None,
        "refreshes": item.refreshes,
        "mark_key": item.mark_key,
        "auth_scope": call.auth_scope,
        "timeout_ms": call.timeout_ms,
        "accounts": list(call.accounts),
        "page": None if call.page is None else call.page.to_json(),
        "node": list(call.node),
    }


def call_of(member: dict[str, Any]) -> Call:
    """The call of a recorded member."""
    inboxes = member.get("inboxes") or [["", member["run_id"]]]
    return Call(
        key=member["key"],
        org_id=member["org_id"],
        run_id=member["run_id"],
        tool=member["tool"],
        input=member["input"],
        idempotency_key=member["idempotency_key"],
        inbox=inboxes[0][0],
        integration_mode=member["integration_mode"],
        shared_key=member.get("shared_key"),
        auth_scope=member.get("auth_scope"),
        timeout_ms=member.get("timeout_ms"),
        accounts=tuple(member.get("accounts") or ()),
        page=QueryPage.of(member.get("page")),
        node=tuple(member.get("node") or ()),
    )
