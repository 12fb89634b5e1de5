"""Failures as JSON and back: what the journal keeps is what the body meets, live and replayed."""

from types import TracebackType
from typing import Any

from runtime import errors
from runtime.errors import OperationFailedError, PlaylaneError, RunFatalError, ToolCallError
from runtime.known_secrets import known_secrets
from runtime.model.error_text import named, said
from runtime.model.json_value import check
from runtime.policy.hints import with_hint

MESSAGE_CHARS = 4_000

_BY_CODE = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, PlaylaneError) and not issubclass(kind, ToolCallError)
}


def error_payload(error: BaseException) -> dict[str, Any]:
    """The typed failure of an operation as a JSON object."""
    known = error.to_payload() if isinstance(error, PlaylaneError) else {"code": "operation_failed"}
    payload = known_secrets.redacted_value({**known, "type": type(error).__name__, "message": _text(error)})
    try:
        return check(payload)
    except errors.JsonValueError:
        return {"type": payload["type"], "code": str(known["code"]), "message": payload["message"]}


def error_of(payload: dict[str, Any]) -> PlaylaneError:
    """The exception a body meets: the same type for tool call and input errors, else OperationFailedError."""
    kind = getattr(errors, str(payload.get("type")), None) or _BY_CODE.get(str(payload.get("code")))
    message = str(payload.get("message", "the operation failed"))
    if not isinstance(kind, type) or not issubclass(kind, PlaylaneError):
        return OperationFailedError(message, payload=payload)
    if issubclass(kind, ToolCallError):
        if kind.__init__ is not ToolCallError.__init__:
            return errors.tool_call_error(payload)
        return kind(
            message,
            tool=str(payload.get("tool", "")),
            code=payload.get("code"),
            retryable=bool(payload.get("retryable")),
            details=payload.get("details"),
        )
    if kind is errors.RowFailedError:
        return errors.RowFailedError.of_payload(payload)
    plain = kind.__init__ is PlaylaneError.__init__
    return kind(message) if plain else OperationFailedError(message, payload=payload)


def is_fatal(payload: dict[str, Any]) -> bool:
    """Whether this failure of an operation ends its run, whatever the body makes of it."""
    return isinstance(error_of(payload), RunFatalError)


def run_error(error: BaseException, source_file: str) -> dict[str, Any]:
    """Why a run failed: type, message and the line of the play where it happened."""
    payload = error_payload(error)
    where = line_in(error.__traceback__, source_file)
    return {**payload, "where": where} if where else payload


def line_in(traceback: TracebackType | None, source_file: str) -> str | None:
    """The innermost `file:line` of the traceback inside `source_file`."""
    where: str | None = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == source_file:
            where = f"{source_file}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return where


def _text(error: BaseException) -> str:
    text = with_hint(error, said(error) or type(error).__name__)
    if isinstance(error, BaseExceptionGroup):
        text = f"{text}: " + "; ".join(named(inner) for inner in error.exceptions)
    clean = text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= MESSAGE_CHARS else clean[:MESSAGE_CHARS] + "…"
