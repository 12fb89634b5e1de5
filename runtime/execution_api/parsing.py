"""Bytes of the execution API -> values. A value that can't be stored spoils its own item, not the reply."""

import json
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

# Room for the envelope and the items list around an item's own value.
_ENVELOPE_DEPTH = 20
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
        credits_per_item=parsed.credits_per_item,
        batch=_batch_rule(parsed.batch),
        pacing=tuple(_pacing_rule(hint) for hint in parsed.queue_hints),
        normalise=tuple(
            NormaliseRule(field=name, steps=tuple(Normalise(step) for step in steps))
            for name, steps in parsed.normalise.items()
        ),
        transient_http_retry_safe=parsed.retry.retry_safe_transient_http,
        requires_execution_fence=parsed.retry.requires_execution_fence,
        always_fresh=parsed.always_fresh,
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
    if response.view == "data" and isinstance(response.raw_v2, dict):
        return response.raw_v2.get("data")
    return response.raw_v2


def _meta(envelope: wire.ExecuteEnvelope) -> dict[str, Any]:
    response = envelope.tool_response
    return envelope.meta if response is None else {**envelope.meta, **response.meta, **response.response_meta}


def _beside(envelope: wire.ExecuteEnvelope, meta: dict[str, Any]) -> ResponseEnvelope:
    response = envelope.tool_response
    shows_data = response is not None and response.view == "data" and isinstance(response.raw_v2, dict)
    raw = response.raw_v2 if response is not None and shows_data else {}
    return ResponseEnvelope(
        status=COMPLETED if envelope.status.lower() in wire.COMPLETED_STATUSES else envelope.status,
        job_id=envelope.job_id,
        is_raw=not shows_data,
        rest={name: part for name, part in raw.items() if name != "data"},
        meta=meta,
    )


def _lenient(data: bytes, max_depth: int) -> Any:
    """Parse a reply so that NaN, 1e400, half surrogates and deep nests reach the check of their own item."""
    try:
        return json_value.loads(data)
    except JsonValueError:
        pass
    try:
        return json.loads(_pruned(data, max_depth + _ENVELOPE_DEPTH))
    except (ValueError, RecursionError) as error:
        raise UnreadableReplyError(f"not JSON: {error}") from None


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
