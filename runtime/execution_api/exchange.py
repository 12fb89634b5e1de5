"""What is asked of the execution API and what comes back, as values."""

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import orjson

from runtime.execution_api import wire
from runtime.model.query_page import QueryPage
from runtime.model.tool_output import ResponseEnvelope


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteRequest:
    """One physical request. `payload` is JSON text, snapshotted once and the same for every send."""

    org_id: str
    operation: str
    payload: bytes = field(repr=False)
    idempotency_key: str
    item_idempotency_keys: tuple[str, ...]
    run_id: str  # the first member's
    timeout_ms: float
    member_run_ids: tuple[str, ...] = ()
    durable_call_receipt_key: str | None = None
    execution_auth_scope_digest: str | None = None
    integration_mode: str | None = None
    response_contract: str = wire.RAW_V2
    invocation_attempt: int = 0
    page: QueryPage | None = None
    node: tuple[str, ...] = ()
    is_fenced: bool = False  # by the path whose API promises that a repeated key has no second effect
    request_id: str = ""  # empty: derived from the idempotency key, so it is the same for every send


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteReply:
    status: str
    result: Any = field(repr=False)
    request_id: str
    credits: float | None = None  # charged for the whole request, if the reply says
    response_revision: str | None = None
    meta: dict[str, Any] = field(default_factory=dict, repr=False)
    fence_attested: bool = False
    replied_at: datetime | None = None
    envelope: ResponseEnvelope = field(default_factory=ResponseEnvelope, repr=False)


def request_path(request: ExecuteRequest) -> str:
    path = wire.fenced_execute_path if request.is_fenced else wire.execute_path
    return path(request.operation)


def request_id_of(request: ExecuteRequest) -> str:
    """The correlation id of a request, stable over its sends."""
    return request.request_id or "pl-" + hashlib.sha256(request.idempotency_key.encode()).hexdigest()[:32]


def request_headers(request: ExecuteRequest, token: str, *, test_fault: str = "") -> dict[str, str]:
    headers = {
        wire.AUTHORIZATION: f"Bearer {token}",
        "content-type": "application/json",
        wire.REQUEST_ID: request_id_of(request),
        wire.IDEMPOTENCY_KEY: request.idempotency_key,
        wire.RESPONSE_CONTRACT: request.response_contract,
        wire.RESPONSE_INTENT: wire.INTENT_DATASET,
        wire.INCLUDE_TOOL_METADATA: "true",
        wire.TOOL_ERROR_SCHEMA: wire.ERROR_SCHEMA_VERSION,
        wire.OPERATION_ID: request.idempotency_key,
        wire.OPERATION_ATTEMPT: str(request.invocation_attempt),
    }
    return headers | {wire.TEST_FAULT: test_fault} if test_fault else headers


def request_body(request: ExecuteRequest) -> bytes:
    """The body's bytes; the payload's own bytes go in untouched."""
    parts = [b'{"payload":', request.payload, b',"metadata":', orjson.dumps(_metadata(request))]
    if request.integration_mode is not None:
        parts += [f',"{wire.INTEGRATION_MODE}":'.encode(), orjson.dumps(request.integration_mode)]
    return b"".join([*parts, b"}"])


def _metadata(request: ExecuteRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {
        wire.PARENT_RUN_ID: request.run_id,
        wire.INVOCATION_ATTEMPT: request.invocation_attempt,
        wire.PROVIDER_IDEMPOTENCY_KEY: request.idempotency_key,
        wire.ITEM_IDEMPOTENCY_KEYS: request.item_idempotency_keys,
        wire.MEMBER_RUN_IDS: request.member_run_ids or (request.run_id,),
        wire.PLAY_NODE_SCOPE: _node_scope(request),
    }
    if request.is_fenced:
        fields[wire.INVOCATION_FENCE_FIELD] = wire.INVOCATION_FENCE_VERSION
    if request.durable_call_receipt_key is not None:
        fields[wire.DURABLE_CALL_RECEIPT_KEY] = request.durable_call_receipt_key
    if request.execution_auth_scope_digest is not None:
        fields[wire.EXECUTION_AUTH_SCOPE_DIGEST] = request.execution_auth_scope_digest
    if request.page is not None:
        fields[wire.QUERY_RESULT_DATASET] = request.page.to_json()
        if request.operation in wire.CUSTOMER_DB_TOOLS:
            fields[wire.CUSTOMER_DB_DATASET] = request.page.to_json()
    return fields


def _node_scope(request: ExecuteRequest) -> dict[str, str]:
    """The operation, and where in its play the first member asks for it."""
    place = dict(zip(wire.NODE_FIELDS, request.node, strict=False))
    return {wire.NODE_TOOL: request.operation} | {name: value for name, value in place.items() if value}
