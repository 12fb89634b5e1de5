"""A log line made fit to keep: bounded text, JSON fields. A log never fails a play."""

from typing import Any

from runtime.errors import JsonValueError
from runtime.known_secrets import known_secrets
from runtime.model.json_value import check
from runtime.model.kept_value import plain
from runtime.policy.limits import Limits


def log_text(text: object, limits: Limits) -> str:
    """The message, storable and cut to `log_chars`."""
    return _storable(known_secrets.redacted(str(text)), limits.log_chars)


def log_fields(fields: dict[str, Any], limits: Limits) -> dict[str, Any]:
    """The first `fields_per_log` fields; what is no JSON value, or too long, is kept as text."""
    return {name: _field(value, limits) for name, value in list(fields.items())[: limits.fields_per_log]}


def _field(value: Any, limits: Limits) -> Any:
    value = known_secrets.redacted_value(plain(value)[0])
    try:
        check(value)
    except JsonValueError:
        return _storable(known_secrets.redacted(repr(value)), limits.log_chars)
    if isinstance(value, str):
        return _storable(value, limits.log_chars)
    if isinstance(value, (list, tuple, dict)) and len(text := repr(value)) > limits.log_chars:
        return _storable(text, limits.log_chars)
    return value


def _storable(text: str, chars: int) -> str:
    clean = text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()
    return clean if len(clean) <= chars else clean[:chars] + "…"
