"""Does what is asked of `ctx` in a row or for a body, on the process's loop."""

from typing import Any

from runtime.context.asks import Ask, ChildAsk, EnqueueAsk, StepAsk
from runtime.context.fetch_ask import FetchAsk
from runtime.context.waits import EventAsk, SleepAsk
from runtime.engine.child_plays import enqueue_child, run_child
from runtime.engine.hosts import Host
from runtime.engine.inner_scopes import Within
from runtime.engine.local_steps import fetch, step
from runtime.errors import PlayDefinitionError, RowWaitsError, RunFatalError


async def perform(host: Host, ask: Ask, within: Within) -> Any:
    """The outcome of `ask` as JSON, kept if it must be; raises how it failed, or RowWaitsError."""
    host.begin()
    try:
        match ask:
            case StepAsk():
                return await step(host, ask, within)
            case ChildAsk():
                return await run_child(host, ask, within)
            case EnqueueAsk():
                return await enqueue_child(host, ask, within)
            case SleepAsk() | EventAsk() if host.durable is not None:
                return await host.durable.perform(ask)
            case FetchAsk():
                return await fetch(host, ask, within)
            case _:
                raise PlayDefinitionError(
                    f'{ask.call}("{ask.id}") can\'t be used here: ask for it in the body'
                )
    except RunFatalError as error:
        host.fatal = host.fatal or error
        raise
    except RowWaitsError as later:
        host.waits = host.waits or later
        raise


async def settled(host: Host) -> None:
    """Before its place is given up: the steps that it began have ended, within their bound."""
    if host.working and host.services is not None:
        await host.services.local.settled(tuple(host.working))
