"""`playlane doctor`: what is wrong with this deployment, and what to do about it."""

import time

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from broker_config.lanes import LANES
from broker_config.queues import ROLES, queues_of_role
from broker_config.settings import Settings
from runtime.errors import ServiceUnreachableError
from runtime.model.health import Finding, QueueFacts, Verdict
from runtime.policy.diagnosis import of_database, of_queues, of_redis, worst
from runtime.policy.limits import Limits
from runtime.postgres_store.health import database_facts
from runtime.redis_store.health import redis_facts
from runtime.server_address import postgres_address, redis_address
from workers.cli.connection import reason, sender_settings
from workers.cli.options import AsJson
from workers.cli.terminal import FAILED, say_json

STYLES = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.BAD: "red"}


def doctor(as_json: AsJson = False) -> None:
    """Look at servers, versions, settings, clocks, queues and runs; exit code 1 if something is bad.

    Every finding that isn't well says what to do. Nothing is changed.
    """
    settings = sender_settings()
    from workers.configuration import limits_of

    findings = examine(settings, limits_of(settings))
    if as_json:
        for finding in findings:
            say_json(
                {
                    "what": finding.what,
                    "verdict": finding.verdict.value,
                    "found": finding.found,
                    "fix": finding.fix,
                }
            )
    else:
        tell(Console(), findings)
    if worst(findings) is Verdict.BAD:
        raise typer.Exit(FAILED)


def examine(settings: Settings, limits: Limits) -> list[Finding]:
    """All findings; a server that does not answer is one."""
    return [
        *_of_postgres(settings, limits),
        *(reached := _of_redis(settings, limits)),
        *(_of_queues(limits) if not settings.broker_is_redis or _answers(reached) else []),
    ]


def _answers(of_redis: list[Finding]) -> bool:
    return all(one.what != "Redis" for one in of_redis)


def tell(console: Console, findings: list[Finding]) -> None:
    """A line a finding; fixes below those that need one."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for finding in findings:
        style = STYLES[finding.verdict]
        said = Text(finding.found)
        if finding.fix:
            said.append(f"\n→ {finding.fix}", style=style)
        table.add_row(Text(finding.verdict.value, style=style), Text(finding.what), said)
    console.print(table)


def _of_postgres(settings: Settings, limits: Limits) -> list[Finding]:
    url = settings.database_url.get_secret_value()
    try:
        return of_database(database_facts(url, limits), time.time(), limits)
    except ServiceUnreachableError as error:
        return [_unreachable("Postgres", postgres_address(url), error, "PLAYLANE_DATABASE_URL")]


def _of_redis(settings: Settings, limits: Limits) -> list[Finding]:
    try:
        return of_redis(redis_facts(settings.state_url, limits), time.time(), limits)
    except ServiceUnreachableError as error:
        return [_unreachable("Redis", redis_address(settings.state_url), error, "PLAYLANE_REDIS_URL")]


def _unreachable(what: str, address: str, error: ServiceUnreachableError, variable: str) -> Finding:
    return Finding(
        what=what,
        verdict=Verdict.BAD,
        found=f"{address} does not answer ({reason(error)})",
        fix=f"start it, or name the right one in {variable}",
    )


def _of_queues(limits: Limits) -> list[Finding]:
    from workers.queue_depths import queue_depths, queue_readers

    names = [name for role in ROLES for name in queues_of_role(role, table=LANES)]
    try:
        return of_queues(QueueFacts(waiting=queue_depths(names), readers=queue_readers(limits.doctor_ask_s)))
    except ServiceUnreachableError as error:
        return [
            Finding(
                what="queues",
                verdict=Verdict.BAD,
                found=str(error),
                fix="start the broker, or name the right one in PLAYLANE_BROKER_URL "
                "(PLAYLANE_REDIS_URL, where that is the broker)",
            )
        ]


__all__ = ["doctor", "examine", "tell"]
