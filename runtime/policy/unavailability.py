"""Which failures of a call say that its provider can't serve now, so that a waterfall may ask the next. Pure."""

from typing import Any

from runtime.errors import ProviderExhaustedError, ToolCallError
from runtime.model.failure import FailureClass

CATEGORIES = {
    FailureClass.PROVIDER_UNAVAILABLE.value: "provider_account",
    FailureClass.RATE_LIMITED.value: "rate_limit",
    FailureClass.TRANSIENT.value: "upstream",
    FailureClass.GATEWAY_502.value: "upstream",
}
"""By failure class. What may have been charged, was refused for its input or for our credentials is not among them."""


def unavailable_leg(error: BaseException) -> dict[str, Any] | None:
    """The leg of a waterfall that this failure makes; None if it fails the row.

    It tells of a provider that may answer later: never kept as "there is none".
    """
    if not isinstance(error, ToolCallError):
        return None
    details = error.details
    if isinstance(error, ProviderExhaustedError):
        category = "rate_limit"
    else:
        category = CATEGORIES.get(str(details.get("failure_class")), "")
    if not category:
        return None
    return {
        "status": "unavailable",
        "provider": details.get("provider"),
        "operation": details.get("operation") or error.tool or None,
        "code": error.code,
        "category": category,
        "retryable": bool(error.retryable),
        "statusCode": details.get("status"),
        "requestId": details.get("request_id") or None,
        "retryAfterMs": details.get("retry_after_ms"),
        "error": str(error),
    }
