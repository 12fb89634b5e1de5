"""Our own token in what a provider answers: out before anything is read, or it would be stored and shown."""

from dataclasses import replace
from functools import lru_cache

import httpx

from runtime.execution_api.transport import WireReply
from runtime.policy.redacting import SHORTEST, Redaction, spellings

_NAME = "execution API token"


@lru_cache(maxsize=100)
def _forms(token: str) -> tuple[bytes, ...]:
    return tuple(form.encode("utf-8", "surrogatepass") for form in spellings(token))


@lru_cache(maxsize=100)
def _redaction(token: str) -> Redaction:
    return Redaction({token: _NAME})


def without_token(reply: WireReply, token: str) -> WireReply:
    """The same reply with `[secret …]` wherever body or headers spell the token."""
    if len(token) < SHORTEST:
        return reply  # it would blacken ordinary text
    if any(form in reply.body for form in _forms(token)):
        text = reply.body.decode("utf-8", "surrogateescape")
        reply = replace(reply, body=_redaction(token).text(text).encode("utf-8", "surrogateescape"))
    if any(token in value for value in reply.headers.values()):
        clean = [(name, _redaction(token).text(value)) for name, value in reply.headers.multi_items()]
        reply = replace(reply, headers=httpx.Headers(clean))
    return reply
