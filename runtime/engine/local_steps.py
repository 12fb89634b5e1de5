"""Steps and fetches at their places: their keys, what they give, and the scope that their functions run in."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from runtime.context.asks import StepAsk
from runtime.context.fetch_ask import FetchAsk
from runtime.context.scope import current_scope
from runtime.engine.hosts import Host, play_of, services_of
from runtime.engine.inner_scopes import StepScope, Within
from runtime.engine.outcomes import error_of
from runtime.errors import PlayDefinitionError
from runtime.known_secrets import known_secrets
from runtime.model import json_value
from runtime.model.canonical_json import digest
from runtime.model.kept_value import plain
from runtime.model.local_work import LocalKind, LocalWork, Made
from runtime.policy import freshness, identity


def local_work(
    host: Host,
    within: Within,
    *,
    kind: LocalKind,
    id: str,
    shared: bool,
    semantic_key: str | None,
    stale_after_s: float | None,
) -> LocalWork:
    """A step or fetch at its place, numbered among its equals. Its key is its run's own unless it is `shared`."""
    context = host.context
    place = (*host.here(), *within.parts)
    n = host.nth(f"{kind.value}:{json.dumps([*within.parts, id])}")
    if not shared:
        key = identity.local_key(
            kind=kind.value, org_id=context.org_id, run_id=context.run_id, place=place, id=id, n=n
        )
        return LocalWork(kind=kind, id=id, key=key, org_id=context.org_id, run_id=context.run_id)
    row = host.row_identity()
    numbered = (n,) if row or semantic_key is None else ()  # in a body equal semantic keys are the same work
    key = identity.shared_local_key(
        kind=kind.value,
        org_id=context.org_id,
        namespace=within.namespace or play_of(host),
        id=id,
        place=(*row, *numbered),
        semantic_key=semantic_key,
    )
    return LocalWork(
        kind=kind,
        id=id,
        key=key,
        org_id=context.org_id,
        run_id=context.run_id,
        shared=True,
        accepts=freshness.accepts_local(context.refresh, stale_after_s),
    )


async def done_once(host: Host, work: LocalWork, make: Callable[[], Awaitable[Made]]) -> Any:
    """The JSON value that `work` gave, now or before; raises how it failed, the same live and later."""
    local = services_of(host).local
    host.working.add(work.key)
    try:
        outcome = await local.outcome(work, make)
    finally:
        # Given up by its author it goes on, and its place is held until it has ended.
        local.when_ended(work.key, lambda: host.working.discard(work.key))
    if outcome.error is not None:
        raise error_of(outcome.error)
    return json_value.loads(outcome.output or b"null")


async def step(host: Host, ask: StepAsk, within: Within) -> Any:
    """What the step's function gave, now or before."""
    work = local_work(
        host,
        within,
        kind=LocalKind.STEP,
        id=ask.id,
        shared=ask.is_shared,
        semantic_key=ask.semantic_key,
        stale_after_s=ask.stale_after_seconds,
    )
    scope = StepScope(
        work.name,
        log_scope=f"{host.log_scope()}:step:{work.key[:16]}",
        add_line=host.add_line,
        secret=lambda name: secret(host, name),
    )
    return await done_once(host, work, lambda: _made(ask, scope, host))


async def fetch(host: Host, ask: FetchAsk, within: Within) -> Any:
    """The response as JSON, now or before."""
    fetches = services_of(host).fetches
    if fetches is None:
        raise PlayDefinitionError("ctx.fetch can't be used here: this process has no way out")
    request = fetches.checked(host.context, ask.id, ask.request)
    work = local_work(
        host,
        within,
        kind=LocalKind.FETCH,
        id=ask.id,
        shared=request.stale_after_seconds is not None,
        semantic_key=None,
        stale_after_s=request.stale_after_seconds,
    )
    work = replace(work, key=digest([work.key, request.identity()]))
    return await done_once(host, work, lambda: fetches.make(host.context, ask.id, request, play_of(host)))


async def secret(host: Host, name: str) -> str:
    """The value of a secret, for the author's own hands."""
    secrets = services_of(host).secrets
    if secrets is None:
        raise PlayDefinitionError("ctx.secrets can't be used here: this process has no source of secrets")
    return await secrets.value(host.context.org_id, name, play_of(host))


async def _made(ask: StepAsk, scope: StepScope, host: Host) -> Made:
    """Runs in a task of its own, so the scope ends with it."""
    current_scope.set(scope)
    try:
        given = ask.run()
        if isawaitable(given):
            given = await given
    finally:
        await scope.end(host.limits.left_over_wait_s)
    value = json_value.check(plain(given)[0], max_depth=host.limits.value_depth)
    known_secrets.refuse(value, host.context.org_id, f'what ctx.step("{ask.id}") gave')
    return Made(output=json_value.dumps(value))


code_of_steps = _made.__code__
"""Of the frame whose `scope` says which step runs."""
