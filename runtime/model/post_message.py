"""A post as a message. Calls travel as JSON text inside it, so that no serializer reinterprets an input."""

from typing import Any

from runtime.errors import BadInputError, JsonValueError
from runtime.model import json_value
from runtime.model.call import ANY_AGE, Accepts, Call, Post
from runtime.model.query_page import QueryPage

VERSION = 1
_FIELDS = (
    "key",
    "org_id",
    "run_id",
    "tool",
    "input",
    "idempotency_key",
    "inbox",
    "integration_mode",
    "auth_scope",
)


def to_message(post: Post) -> dict[str, Any]:
    """A JSON-able dict of plain text fields."""
    calls = [[*(getattr(call, name) for name in _FIELDS), *_more(call)] for call in post.calls]
    return {
        "v": VERSION,
        "post_id": post.post_id,
        "lane": post.lane,
        "calls": json_value.dumps(calls).decode(),
    }


def from_message(message: Any) -> Post:
    """Raises BadInputError for anything that is not a post of this version."""
    try:
        if message["v"] != VERSION:
            raise BadInputError(
                f"a post is of version {message['v']!r}, not {VERSION}: all processes must run one release"
            )
        rows = json_value.loads(message["calls"].encode())
        calls = tuple(_call(row) for row in rows)
        return Post(post_id=message["post_id"], lane=message["lane"], calls=calls)
    except (KeyError, TypeError, ValueError, AttributeError, JsonValueError) as error:
        raise BadInputError(
            f"a message on a lane is not a post ({type(error).__name__}): it is dropped"
        ) from error


def _more(call: Call) -> list[dict[str, Any]]:
    """What most calls leave as it is, as one object, or nothing."""
    more: dict[str, Any] = {
        "shared_key": call.shared_key,
        "timeout_ms": call.timeout_ms,
        "not_before_ms": call.accepts.not_before_ms,
        "failed_not_before_ms": call.accepts.failed_not_before_ms,
        "read_keys": list(call.read_keys) or None,
        "accounts": list(call.accounts) or None,
        "page": None if call.page is None else call.page.to_json(),
        "node": list(call.node) or None,
    }
    more = {name: value for name, value in more.items() if value is not None}
    return [more] if more else []


def _call(row: list[Any]) -> Call:
    fields = dict(zip(_FIELDS, row[: len(_FIELDS)], strict=True))
    more: dict[str, Any] = row[len(_FIELDS)] if len(row) > len(_FIELDS) else {}
    moments = (more.get("not_before_ms"), more.get("failed_not_before_ms"))
    return Call(
        **fields,
        accepts=ANY_AGE
        if moments == (None, None)
        else Accepts(not_before_ms=moments[0], failed_not_before_ms=moments[1]),
        read_keys=tuple(more.get("read_keys", ())),
        shared_key=more.get("shared_key"),
        timeout_ms=more.get("timeout_ms"),
        accounts=tuple(more.get("accounts", ())),
        page=QueryPage.of(more.get("page")),
        node=tuple(more.get("node", ())),
    )
