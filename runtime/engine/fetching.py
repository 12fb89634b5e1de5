"""Fetches: done once and stored, paced with all other plain HTTP of an organisation, free of secrets when kept."""

import base64
import codecs
import re
from dataclasses import dataclass, replace
from typing import Any

import structlog

from runtime.context.scope import current_scope
from runtime.engine.secret_values import SecretValues
from runtime.engine.tool_calls import CallContext
from runtime.errors import (
    EgressRefusedError,
    FetchFailedError,
    FetchTimeoutError,
    PlaylaneError,
    RowWaitsError,
    SecretTaintError,
)
from runtime.known_secrets import KnownSecrets, known_secrets
from runtime.model import json_value
from runtime.model.canonical_json import digest
from runtime.model.fetch import EgressReply, EgressRequest, FetchRequest
from runtime.model.local_work import Made
from runtime.model.rate_scope import RateScope
from runtime.model.row_wait import RowWait, WaitKind
from runtime.policy import fetching
from runtime.policy.limits import Limits
from runtime.policy.redacting import Redaction
from runtime.ports import Clock, Pacer, Ticket
from runtime.ports.egress import Egress

log = structlog.get_logger()

GENERIC_HTTP = "generic_http"
"""The lane of plain HTTP: of `ctx.fetch` and of any tool whose provider has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchParts:
    """What fetches stand on."""

    egress: Egress
    pacer: Pacer
    secrets: SecretValues
    limits: Limits
    clock: Clock
    known: KnownSecrets = known_secrets


class Fetches:
    """One per process, on its loop."""

    def __init__(self, parts: FetchParts) -> None:
        self._parts = parts

    def checked(self, context: CallContext, id: str, request: FetchRequest) -> FetchRequest:
        """The request, told from others by a digest without secrets; SecretTaintError before anything is done."""
        known = self._parts.known.of(context.org_id)
        self._refuse_secrets(_where(id), request, known)
        return _blackened(request, known)

    async def make(self, context: CallContext, id: str, request: FetchRequest, play: str) -> Made:
        """Send it and give what is kept of the answer.

        Raises RowWaitsError if its turn is so far away that nobody should wait for it here.
        """
        current_scope.set(None)  # it runs in a task of its own: what it starts is nobody's left-over
        reply = await self._send(context, _where(id), request, play)
        said = response_json(reply, self._parts.known.of(context.org_id))
        lasting = not fetching.is_for_this_run_only(reply.status)
        return Made(output=json_value.dumps(said), lasting=lasting)

    def _refuse_secrets(self, where: str, request: FetchRequest, known: Redaction) -> None:
        """Before anything is stored: no secret in a URL or a raw header, none without TLS."""
        name = known.found(request.url)
        if name is not None:
            raise SecretTaintError(
                f'{where}: the secret "{name}" stands in the URL, which ends up in logs everywhere: give it by '
                "auth=ctx.secrets.header(...), or in the body. Nothing was sent"
            )
        for header, value in request.headers.items():
            if (name := known.found(value)) is not None:
                raise SecretTaintError(
                    f'{where}: the secret "{name}" stands in headers["{header}"]: give it by '
                    "auth=ctx.secrets.bearer(...) or ctx.secrets.header(..., header). Nothing was sent"
                )
        carries = bool(request.auth) or _body_secret(request, known) is not None
        if carries and not request.url.lower().startswith("https://") and not self._is_allowed(request.url):
            raise SecretTaintError(
                f"{where}: a secret leaves over TLS only: give an https:// URL. Nothing was sent"
            )

    def _is_allowed(self, url: str) -> bool:
        try:
            return self._parts.egress.is_allowed(url)
        except EgressRefusedError:
            return False

    # ---- sending

    async def _send(self, context: CallContext, where: str, request: FetchRequest, play: str) -> EgressReply:
        parts, limits = self._parts, self._parts.limits
        whole_ms = min(request.timeout_ms or limits.fetch_total_ms, limits.fetch_total_ms)
        attempt, used_ms = 1, 0.0
        while True:
            filled = await self._filled(context, request, play)
            ticket = await self._ticket(context, where)
            began_ms = parts.clock.now_ms()
            ticket.sent()
            try:
                return await parts.egress.send(filled, total_ms=max(1.0, whole_ms - used_ms))
            except (EgressRefusedError, FetchTimeoutError) as error:
                raise self._told(context, where, request, error, attempt) from error
            except FetchFailedError as error:
                delay_ms = fetching.retry_delay_ms(attempt, limits)
                used_ms += parts.clock.now_ms() - began_ms
                may_repeat = fetching.may_repeat(request.method, request.headers)
                if delay_ms is None or not may_repeat or used_ms + delay_ms >= whole_ms:
                    raise self._told(context, where, request, error, attempt) from error
            finally:
                ticket.free()
            log.info("fetch sent again", action="fetch.retry", run_id=context.run_id, attempt=attempt)
            await parts.clock.sleep(delay_ms)
            used_ms += delay_ms
            attempt += 1

    async def _filled(self, context: CallContext, request: FetchRequest, play: str) -> EgressRequest:
        """The request with its secrets, resolved now and dropped with it."""
        secret_headers = {
            one.header: one.filled(await self._parts.secrets.value(context.org_id, one.secret, play))
            for one in request.auth
        }
        for name, value in secret_headers.items():
            if not value.isascii() or not value.isprintable():
                raise SecretTaintError(f"a secret holds characters that the header {name} may not carry")
        return EgressRequest(
            method=request.method,
            url=request.url,
            headers=request.headers,
            secret_headers=secret_headers,
            body=request.body,
            has_secret_body=_body_secret(request, self._parts.known.of(context.org_id)) is not None,
        )

    async def _ticket(self, context: CallContext, where: str) -> Ticket:
        """A confirmed place among the organisation's plain HTTP requests."""
        parts = self._parts
        scope = RateScope(lane=GENERIC_HTTP, org_id=context.org_id, provider=GENERIC_HTTP)
        ticket = await parts.pacer.reserve(scope, 1, context.run_id)
        try:
            far_ms = await ticket.due(parts.limits.hold_ms)
            granted, waited_ms = 0, 0.0
            while far_ms <= 0 and not granted:
                granted, wait_ms = await ticket.confirm(1, whole=True)
                waited_ms += wait_ms
                if waited_ms > parts.limits.hold_ms:  # the lane was closed meanwhile
                    far_ms = wait_ms
                elif not granted:
                    await parts.clock.sleep(wait_ms)
            if not granted:
                due_ms = await ticket.later(1, far_ms)
                raise RowWaitsError(
                    RowWait(kind=WaitKind.LANE, due_ms=due_ms, detail=f"{where} on lane {GENERIC_HTTP}")
                )
        except BaseException:
            ticket.free()
            raise
        return ticket

    def _told(
        self, context: CallContext, where: str, request: FetchRequest, error: PlaylaneError, attempt: int
    ) -> PlaylaneError:
        """The error with what was fetched and how often it was tried, secrets blackened."""
        place = fetching.shown_url(request.url)
        text = f"{where}: {request.method} {place} failed in attempt {attempt}: {error}"
        return type(error)(self._parts.known.of(context.org_id).text(text))


def _where(id: str) -> str:
    return f'ctx.fetch("{id}")'


def response_json(reply: EgressReply, known: Redaction) -> dict[str, Any]:
    """What is kept of a reply: text where the body is text, else base64; secrets blackened either way."""
    said: dict[str, Any] = {
        "ok": 200 <= reply.status < 300,
        "status": reply.status,
        "reason": known.text(_storable(reply.reason)),
        "url": known.text(_storable(reply.url)),
        "headers": {
            known.text(_storable(name)): known.text(_storable(value)) for name, value in reply.headers.items()
        },
    }
    return said | _body_json(reply, known)


_CHARSET = re.compile(r"charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


def _body_json(reply: EgressReply, known: Redaction) -> dict[str, Any]:
    named = _CHARSET.search(reply.headers.get("content-type", ""))
    charset = named[1].lower() if named else "utf-8"
    try:
        charset = codecs.lookup(charset).name
        text = reply.body.decode(charset)
        is_text = "\0" not in text and text.encode(charset) == reply.body
        text.encode()  # no half surrogates
    except (LookupError, UnicodeError, AttributeError):
        is_text, text = False, ""
    if is_text:
        return {"text": known.text(text), **({} if charset == "utf-8" else {"charset": charset})}
    shown = reply.body if known.is_empty else known.text(reply.body.decode("latin-1")).encode("latin-1")
    return {"base64": base64.b64encode(shown).decode()}


def _storable(text: str) -> str:
    return text.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


def _body_secret(request: FetchRequest, known: Redaction) -> str | None:
    if not request.body or known.is_empty:
        return None
    return known.found(request.body.decode("utf-8", "backslashreplace"))


def _blackened(request: FetchRequest, known: Redaction) -> FetchRequest:
    """What tells this request from others without telling a secret."""
    if not request.body or known.is_empty:
        return request
    return replace(request, shown_body=digest(known.text(request.body.decode("utf-8", "backslashreplace"))))
