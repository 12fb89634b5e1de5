"""A corner of the public web for fetches to try: it says what it was asked, redirects, and answers as it is told."""

import asyncio
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from examples.execution_api.replies import json_reply
from runtime.execution_api import wire
from runtime.model import json_value

ECHO_PATH = "/_web/echo"
CONNECTIONS_PATH = "/_web/connections"
_MOST_BYTES = 64 * 1024 * 1024


async def echo(request: Request) -> Response:
    """`?status=`, `?delay_ms=`, `?bytes=` (a body of that size), `?to=` (redirects there)."""
    asked = request.query_params
    await asyncio.sleep(min(float(asked.get("delay_ms", "0")), 60_000) / 1000)
    if "to" in asked:
        return Response(
            status_code=int(asked.get("status", "302")), headers={"location": unquote(asked["to"])}
        )
    if "bytes" in asked:
        return Response(b"x" * min(int(asked["bytes"]), _MOST_BYTES), int(asked.get("status", "200")))
    said = {
        "method": request.method,
        "path": request.url.path,
        "query": dict(asked),
        "headers": dict(request.headers),
        "body": (await request.body()).decode("utf-8", "replace"),
    }
    return json_reply(said, int(asked.get("status", "200")))


def secret_reply(secrets: dict[str, str], name: object, request: Request) -> Response:
    """The answer to `resolve_secret`."""
    value = secrets.get(name) if isinstance(name, str) else None
    headers = {wire.REQUEST_ID: request.headers.get(wire.REQUEST_ID, "") or "unnamed"}
    if value is None:
        error = {"code": "unknown_secret", "message": "there is no secret of that name for this play"}
        return json_reply({"error": error}, 404, headers)
    return json_reply({"value": value}, 200, headers)


def secrets_of(text: str) -> dict[str, str]:
    """Secrets from a JSON object of names and values; nothing else is said about text that isn't one."""
    known = json_value.loads(text.encode()) if text else {}
    if not isinstance(known, dict) or not all(isinstance(value, str) for value in known.values()):
        raise ValueError("EXECUTION_API_SECRETS must be a JSON object of names and texts")
    return known
