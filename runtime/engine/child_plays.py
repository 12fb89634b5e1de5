"""Child plays: run inside their caller, or started as runs of their own."""

import asyncio
import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

from runtime.context.asks import ChildAsk, EnqueueAsk
from runtime.context.scope import current_scope
from runtime.engine.hosts import Host, lineage_of, services_of
from runtime.engine.inner_scopes import ChildScope, Within
from runtime.engine.outcomes import error_payload
from runtime.errors import BudgetExceededError, ChildPlayError, OperationFailedError, PlaylaneError
from runtime.known_secrets import known_secrets
from runtime.model.canonical_json import digest
from runtime.model.error_text import named
from runtime.model.lineage import RUN_ID_CHARS
from runtime.model.run import NewRun
from runtime.policy import lineage
from runtime.policy.hints import with_hint


async def run_child(host: Host, ask: ChildAsk, within: Within) -> Any:
    """What the child play returned, as JSON."""
    parent = within.lineage or lineage_of(host)
    lineage_here = lineage.child_of(parent, ask.play.name, host.limits)
    what = digest([ask.play.name, ask.input])[:24]
    n = host.nth(f"child:{json.dumps([*within.parts, ask.id, what])}")
    row = [*host.row_identity()]
    namespace = f"child:{ask.play.name}#{ask.id}@{digest([what, row, within.namespace])[:24]}"
    _count(host, ask, f"{namespace}:{n}")
    await _take_budget(host, namespace, ask.play.name)
    inner = Within(parts=(*within.parts, "child", ask.id, what, n), namespace=namespace, lineage=lineage_here)
    try:
        kept = await _run_child(host, ask, ChildScope(host, inner, play=ask.play.name, key=ask.id))
    except Exception:
        host.child_ended(ask.id, ask.play.name, failed=True)
        raise
    host.child_ended(ask.id, ask.play.name, failed=False)
    return kept


async def _run_child(host: Host, ask: ChildAsk, scope: ChildScope) -> Any:
    """Its result as JSON. What its author raises comes as its caller meets it live and replayed."""
    token = current_scope.set(scope)
    try:
        kept = ask.kept(await ask.play.function(ask.ctx, deepcopy(ask.input)))
        host.check()
        return kept
    except PlaylaneError:
        raise
    except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0:
            raise
        raise OperationFailedError(
            f'child play "{ask.play.name}" (ctx.run_play("{ask.id}")) failed: '
            + with_hint(error, named(error)),
            payload=error_payload(error),
        ) from error
    finally:
        with suppress(ValueError):  # a coroutine that is thrown away ends in another context
            current_scope.reset(token)


def _count(host: Host, ask: ChildAsk, namespace: str) -> None:
    host.children.add(namespace)
    most = host.limits.children_per_row
    if len(host.children) > most:
        raise ChildPlayError(
            f'ctx.run_play("{ask.id}") of play "{ask.play.name}": more than {most} child plays are called from one '
            "place; nothing further was called. Give what repeats to a dataset's rows, one child a row",
            code="child_play_count",
        )


async def _take_budget(host: Host, namespace: str, play: str) -> None:
    """A child play counts once in every budget of its run, however often it is replayed."""
    context, budgets = host.context, host.services.budgets if host.services else None
    if budgets is None or not context.budget:
        return
    refusal = await budgets.take_child(context.budget, context.run_id, namespace)
    if refusal is not None:
        raise BudgetExceededError(
            f"child play {play!r} was not called: {refusal.describe()}; raise it with "
            f"`playlane budget {refusal.account} --child-plays N` and run again",
            retryable=True,
        )


async def enqueue_child(host: Host, ask: EnqueueAsk, within: Within) -> Any:
    """Insert the child's run, once however often this is asked."""
    parent = within.lineage or lineage_of(host)
    child = lineage.child_of(parent, ask.play, host.limits)
    context = host.context
    known_secrets.refuse(ask.input, context.org_id, f'the input of {ask.call}("{ask.id}")')
    n = host.nth(f"enqueue:{json.dumps([*within.parts, ask.id])}")
    place = [*host.here(), *within.parts, ask.id, n]
    run_id = f"{context.run_id[:RUN_ID_CHARS]}.{digest([context.run_id, place])[:16]}"
    own = {} if context.integration_mode is None else {"integration_mode": context.integration_mode}
    run = NewRun(
        run_id=run_id,
        org_id=context.org_id,
        play=ask.play,
        input=ask.input,
        options=lineage.child_options(child, own),
    )
    await _take_budget(host, f"run:{run_id}", ask.play)
    await services_of(host).start_run(run)
    return {"run_id": run_id}
