"""A post as a message. Calls travel as JSON text inside it, so that no serializer reinterprets an input."""

from typing import Any

from runtime.errors import BadInputError, JsonValueError
from runtime.model import json_value
from runtime.model.call import Call, Post

VERSION = 1
_FIELDS = ("key", "org_id", "run_id", "tool", "input", "idempotency_key", "inbox", "integration_mode")


def to_message(post: Post) -> dict[str, Any]:
    """A JSON-able dict of plain text fields."""
    calls = [[getattr(call, name) for name in _FIELDS] for call in post.calls]
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
        calls = tuple(Call(**dict(zip(_FIELDS, row, strict=True))) for row in rows)
        return Post(post_id=message["post_id"], lane=message["lane"], calls=calls)
    except (KeyError, TypeError, ValueError, AttributeError, JsonValueError) as error:
        raise BadInputError(
            f"a message on a lane is not a post ({type(error).__name__}): it is dropped"
        ) from error
