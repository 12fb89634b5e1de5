"""What is asked of the execution API and what comes back, as values."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

import orjson

from runtime.execution_api import wire
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
        parts += [b',"integration_mode":', orjson.dumps(request.integration_mode)]
    return b"".join([*parts, b"}"])


def _metadata(request: ExecuteRequest) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "parent_run_id": request.run_id,
        "invocation_attempt": request.invocation_attempt,
        "provider_idempotency_key": request.idempotency_key,
        "item_idempotency_keys": request.item_idempotency_keys,
        "member_run_ids": request.member_run_ids or (request.run_id,),
    }
    if request.is_fenced:
        fields["invocation_fence_version"] = wire.INVOCATION_FENCE_VERSION
    if request.durable_call_receipt_key is not None:
        fields["durable_call_receipt_key"] = request.durable_call_receipt_key
    if request.execution_auth_scope_digest is not None:
        fields["execution_auth_scope_digest"] = request.execution_auth_scope_digest
    return fields
