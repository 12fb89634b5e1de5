"""Bytes of the execution API -> values. A value that can't be stored spoils its own item, not the reply."""

import re
from typing import Any

from pydantic import ValidationError

from runtime.errors import JsonValueError
from runtime.execution_api import wire
from runtime.execution_api.exchange import ExecuteReply
from runtime.model import json_value
from runtime.model.result_rules import ResultRules, joined_targets
from runtime.model.tool import BatchRule, Counts, Normalise, NormaliseRule, PacingRule, ToolMetadata
from runtime.model.tool_output import COMPLETED, ResponseEnvelope
from runtime.model.waiting_tool import EventRule, PollRule

# Room for the envelope and the items list around an item's own value.
_ENVELOPE_DEPTH = 20
UNDECLARED_CREDITS = 1.0
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]|[^"\[\]{}]+', re.DOTALL)


class UnreadableReplyError(ValueError):
    """The body is not the reply that was agreed."""


def execute_reply(data: bytes, *, request_id: str, max_depth: int) -> tuple[ExecuteReply, Any]:
    """The reply, and the error object that came with it (None where it holds none)."""
    try:
        envelope = wire.ExecuteEnvelope.model_validate(_lenient(data, max_depth))
    except ValidationError as error:
        raise UnreadableReplyError(_first_problem(error)) from None
    failed = envelope.status.lower() in wire.FAILED_STATUSES
    meta = _meta(envelope)
    revision = meta.get("responseRevision")
    reply = ExecuteReply(
        status=envelope.status,
        result=None if failed else _result(envelope),
        request_id=request_id,
        credits=envelope.billing.credits,
        response_revision=revision if isinstance(revision, str) else None,
        meta=meta,
        envelope=_beside(envelope, meta),
    )
    return reply, (envelope.error or {"code": "tool_failed"}) if failed else None


def tool_metadata(tool: str, data: bytes) -> ToolMetadata:
    """The metadata of `tool`; UnreadableReplyError names the first thing wrong with it."""
    try:
        parsed = wire.RuntimeTool.model_validate(json_value.loads(data))
    except ValidationError as error:
        raise UnreadableReplyError(_first_problem(error)) from None
    except JsonValueError as error:
        raise UnreadableReplyError(str(error)) from None
    return ToolMetadata(
        tool=tool,
        provider=parsed.provider,
        action_version=parsed.action_cache_version,
        read_versions=parsed.action_cache_read_versions,
        response_revision=parsed.response_revision,
        timeout_ms=parsed.timeout_ms,
        credits_per_item=parsed.credits_per_item or 0.0,
        credits_at_most=_at_most(parsed),
        batch=_batch_rule(parsed.batch),
        pacing=tuple(_pacing_rule(hint) for hint in parsed.queue_hints),
        concurrency=min(
            (hint.max_concurrency for hint in parsed.queue_hints if hint.max_concurrency), default=None
        ),
        normalise=tuple(
            NormaliseRule(field=name, steps=tuple(Normalise(step) for step in steps))
            for name, steps in parsed.normalise.items()
        ),
        transient_http_retry_safe=parsed.retry.retry_safe_transient_http,
        requires_execution_fence=parsed.retry.requires_execution_fence,
        always_fresh=parsed.always_fresh or tool in wire.CUSTOMER_DB_TOOLS,
        event=EventRule(arm_repeats=parsed.retry.retry_safe_event_wait_arm) if parsed.event_wait else None,
        poll=_poll_rule(parsed.async_operation),
        results=ResultRules(
            targets=joined_targets(parsed.extractors, parsed.target_getters),
            lists=tuple(dict.fromkeys(parsed.list_extractor_paths)),
            identities=joined_targets(parsed.list_identity_getters),
        ),
    )


def auth_scope(data: bytes) -> str | None:
    """The digest of the credentials behind a tool, None where there are none."""
    try:
        return wire.AuthScope.model_validate(json_value.loads(data)).digest
    except ValidationError as error:
        raise UnreadableReplyError(_first_problem(error)) from None
    except JsonValueError as error:
        raise UnreadableReplyError(str(error)) from None


def _at_most(tool: wire.RuntimeTool) -> float | None:
    """Where a tool declares no price, one credit is reserved for a call."""
    if tool.max_credits_per_item is not None:
        return tool.max_credits_per_item
    return UNDECLARED_CREDITS if tool.credits_per_item is None else None


def _poll_rule(hint: wire.AsyncHint | None) -> PollRule | None:
    if hint is None:
        return None
    return PollRule(
        tool=hint.poll_tool,
        job_path=hint.job_path,
        input_key=hint.input_key,
        status_path=hint.status_path,
        result_path=hint.result_path,
        interval_ms=hint.interval_ms,
        pending=tuple(status.lower() for status in hint.pending_statuses),
        failed=tuple(status.lower() for status in hint.failed_statuses),
    )


def _batch_rule(hint: wire.BatchHint | None) -> BatchRule | None:
    return None if hint is None else BatchRule(**hint.model_dump())


def _pacing_rule(hint: wire.QueueHint) -> PacingRule:
    return PacingRule(limit=hint.limit, per_ms=hint.per_ms, counts=Counts(hint.counts), burst=hint.burst)


def _result(envelope: wire.ExecuteEnvelope) -> Any:
    response = envelope.tool_response
    if response is None:
        legacy = envelope.result
        return legacy["data"] if isinstance(legacy, dict) and "data" in legacy else legacy
    if "raw_v2" not in response.model_fields_set:
        return response.raw
    if response.view == "data" and type(response.raw_v2) is dict:  # a Repeated is no answer
        return response.raw_v2.get("data")
    return response.raw_v2


def _meta(envelope: wire.ExecuteEnvelope) -> dict[str, Any]:
    response = envelope.tool_response
    return envelope.meta if response is None else {**envelope.meta, **response.meta, **response.response_meta}


def _beside(envelope: wire.ExecuteEnvelope, meta: dict[str, Any]) -> ResponseEnvelope:
    response = envelope.tool_response
    shows_data = response is not None and response.view == "data" and type(response.raw_v2) is dict
    raw = response.raw_v2 if response is not None and shows_data else {}
    return ResponseEnvelope(
        status=COMPLETED if envelope.status.lower() in wire.COMPLETED_STATUSES else envelope.status,
        job_id=envelope.job_id,
        is_raw=not shows_data,
        rest={name: part for name, part in raw.items() if name != "data"},
        meta=meta,
    )


def _lenient(data: bytes, max_depth: int) -> Any:
    """Parse a reply so that what can't be kept (NaN, repeated names, deep nests) reaches the check of its item."""
    try:
        reply = json_value.loads_foreign(data)
    except JsonValueError:
        try:
            reply = json_value.loads_foreign(_pruned(data, max_depth + _ENVELOPE_DEPTH))
        except JsonValueError as error:
            raise UnreadableReplyError(error.reason) from None
    if isinstance(reply, json_value.Repeated):
        raise UnreadableReplyError(f"the reply names {reply.name!r:.80} twice")
    return reply


def _pruned(data: bytes, max_depth: int) -> bytes:
    """The same text with what lies deeper than `max_depth` made null, as the parser has a limit too."""
    depth = 0
    kept: list[bytes] = []
    for match in _TOKENS.finditer(data):
        token = match.group()
        if token in (b"[", b"{"):
            depth += 1
            if depth == max_depth + 1:
                kept.append(b"null")
        if depth <= max_depth:
            kept.append(token)
        if token in (b"]", b"}"):
            depth -= 1
    return b"".join(kept)


def _first_problem(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in first['loc']) or 'body'}: {first['msg']}"
