"""A worker process from start to end: session, sweeps, renewal, drain on SIGTERM."""

import asyncio
import gc
import logging
import os
import secrets
import socket
import sys
import threading
import time
import warnings
from typing import Any, NoReturn

import psycopg
import structlog
from celery import signals

from broker_config.queues import queues_of_role, refuse_mixed
from runtime.context.captured_output import capture
from runtime.errors import PlaylaneError, ServiceUnreachableError
from runtime.postgres_store.sessions import renew_sync
from runtime.redis_store.heartbeat import HeartbeatKey
from workers.app import app, consume, load_settings
from workers.configuration import limits_of, load_plays
from workers.logs import configure_logs
from workers.probing import serve_probe
from workers.renewal import RenewalThread
from workers.vitals import vital_signs
from workers.wiring import WorkerProcess, process, set_role

log = structlog.get_logger()
CONCURRENCY = {"control": 8, "plays": 8, "lanes": 1}
GC_THRESHOLDS = (20_000, 10, 5)  # few looks at what is young; what tasks leave in cycles goes within seconds
EXIT_NOT_STARTED = 3


def run_worker(
    role: str, *, concurrency: int | None = None, lanes: tuple[str, ...] = (), name: str | None = None
) -> int:
    """Run a worker of `role` until it is told to stop; returns its exit code."""
    settings = load_settings()
    configure_logs(settings.log_level, as_json=settings.log_json)
    queues = queues_of_role(role, lanes or settings.lanes)
    refuse_mixed(queues)
    load_plays(settings)
    limits = limits_of(settings)
    slots = limits.slices_per_row_process if role == "rows" else CONCURRENCY[role]
    set_role(role)
    consume(queues)
    if role in ("plays", "rows"):
        capture(level=min(logging.INFO, logging.getLevelName(settings.log_level)))
    if role == "lanes":
        app.conf.worker_disable_prefetch = False
        app.conf.worker_prefetch_multiplier = limits.lane_prefetch
    # Said once, in the README: which account runs workers is the operator's choice.
    warnings.filterwarnings("ignore", message=".*superuser privileges.*")
    _connect_signals(role)  # before the worker is made: it is told of its start while it is made
    worker = app.Worker(
        hostname=f"{name or role}@{socket.gethostname()}",
        pool="threads",
        concurrency=concurrency or slots,
        loglevel=settings.log_level,
        without_mingle=True,
        without_gossip=True,
        quiet=True,
    )
    gc.collect()
    gc.freeze()  # what is loaded now lives as long as the process: no collection looks at it again
    gc.set_threshold(*GC_THRESHOLDS)
    worker.start()
    return worker.exitcode or 0


class Life:
    """The running parts around a WorkerProcess."""

    def __init__(self, worker_process: WorkerProcess) -> None:
        self.process = worker_process
        self.renewal = self._renewal()
        self._session_connection: psycopg.Connection | None = None
        self._heartbeat = HeartbeatKey(worker_process.settings.state_url, worker_process.limits)

    def begin(self) -> None:
        """Open the session, then start what works under it."""
        part = self.process
        self._await_writes()
        part.bridge.call(self._open_session(), timeout_s=part.limits.database_timeout_s)
        if part.role == "lanes":
            log.debug("lane engine ready", action="lane.made", lane=part.lane.snapshot())
        self.renewal.start()
        part.bridge.call(self._start_parts())
        serve_probe(part)

    def end(self) -> None:
        """SIGTERM: give back what isn't sent, finish what is, within the grace; then end the session."""
        part = self.process
        watchdog = threading.Timer(part.limits.sigterm_grace_s + 5, self._too_late)
        watchdog.daemon = True
        watchdog.start()
        try:
            part.bridge.call(self._drain(), timeout_s=part.limits.sigterm_grace_s)
        except (TimeoutError, PlaylaneError) as error:
            log.warning("not all was given back", action="process.drain", error=repr(error))

    def close(self) -> None:
        """After the pool ended: close the session, so that nobody waits for it."""
        part = self.process
        self.renewal.stop()
        try:
            part.bridge.call(self._close_session(), timeout_s=part.limits.redis_timeout_s)
        except (TimeoutError, PlaylaneError) as error:
            log.warning("session not closed; it ends by itself", action="session.close", error=repr(error))
        part.publisher.close()

    def _await_writes(self) -> None:
        """A failover leaves Redis read-only for a while; a start that ends, again and again, would make it final."""
        part = self.process
        ends = time.monotonic() + part.limits.start_wait_s
        while True:
            try:
                self._heartbeat.beat(part.session_id)
            except ServiceUnreachableError as error:
                if time.monotonic() >= ends:
                    raise
                log.warning("waiting for Redis", action="process.start", error=str(error))
                time.sleep(part.limits.heartbeat_s / 10)
            else:
                return

    async def _open_session(self) -> None:
        part, stores = self.process, self.process.stores
        first = not await stores.sessions.others_registered(part.session_id)
        await stores.sessions.open(
            part.session_id,
            role=part.role,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            ttl_s=part.limits.session_ttl_s,
        )
        epoch = await stores.leases.register(part.session_id, first=first)
        await stores.sessions.registered(part.session_id, epoch)

    async def _start_parts(self) -> None:
        part = self.process
        part.sweeps.start()
        if part.role in ("plays", "rows"):
            part.caller.start()
        elif part.role == "lanes":
            self._lane_sweep = asyncio.get_running_loop().create_task(self._sweep_lane(), name="lane-sweeps")

    async def _sweep_lane(self) -> None:
        """Batches of dead sessions are looked for by every lane process, about every `sweep_s`."""
        part = self.process
        while not part.draining.is_set():
            await asyncio.sleep(part.limits.sweep_s * (0.75 + secrets.randbelow(500) / 1000))
            try:
                await part.lane.sweep()
            except PlaylaneError as error:
                log.warning("lane sweep put off", action="lane.sweep", error=str(error))

    async def _drain(self) -> None:
        part = self.process
        part.draining.set()
        vital_signs.drain()
        part.sweeps.stop()
        if part.role == "rows":
            await part.slices.stop()
        elif part.role == "lanes":
            await part.lane.drain(part.limits.sigterm_grace_s)

    async def _close_session(self) -> None:
        part = self.process
        await part.stores.sessions.close(part.session_id)
        await part.stores.events.flush()
        await part.stores.leases.forget(part.session_id)
        if part.role in ("plays", "rows"):
            await part.egress.close()

    def _renewal(self) -> RenewalThread:
        part = self.process
        return RenewalThread(
            bridge=part.bridge,
            limits=part.limits,
            renew_session=self._renew_session,
            renew_leases=self._renew_leases,
            watches_consumer=part.settings.broker_is_redis,
        )

    def _renew_session(self) -> bool:
        part = self.process
        connection = self._session_connection
        try:
            if connection is None or connection.closed:
                connection = psycopg.connect(
                    part.settings.database_url.get_secret_value(), autocommit=True, connect_timeout=5
                )
                self._session_connection = connection
        except psycopg.OperationalError as error:
            log.warning("session not renewed", action="session.renew", error=str(error).partition("\n")[0])
            return True
        is_ours = renew_sync(connection, part.session_id, part.limits.session_ttl_s)
        vital_signs.session()
        return is_ours

    def _renew_leases(self) -> None:
        part = self.process
        self._heartbeat.beat(part.session_id)
        vital_signs.redis()
        part.bridge.submit(self._renew_on_loop())

    async def _renew_on_loop(self) -> None:
        """The part of a heartbeat that needs the loop: what Redis lost, and claims that were never answered."""
        part = self.process
        try:
            if part.role == "lanes":
                await part.lane.renew()
                await part.pacer.renew()
            if part.role in ("plays", "rows"):
                await part.local.renew()
                await part.pacer.renew()
            if part.role == "plays":
                await part.stores.runs.give_back_doubtful()
            elif part.role == "rows":
                await part.stores.slices.give_back_doubtful()
                forgotten = await part.stores.slices.give_back_forgotten(part.session_id, part.slices.ids())
                if forgotten:
                    log.warning(
                        "gave back slices that nobody ran here", action="slice.forgotten", slices=forgotten
                    )
        except PlaylaneError as error:
            log.warning("heartbeat not complete", action="session.renew", error=str(error))

    def _too_late(self) -> None:
        log.error("the grace is over; what is left goes on elsewhere", action="process.exit")
        sys.stdout.flush()
        os._exit(1)


def _begin(role: str) -> Life:
    """Celery swallows what a handler raises; a worker without a session must not go on to "ready"."""
    try:
        life = Life(process())
        life.begin()
    except PlaylaneError as error:
        _end_start_up(role, str(error))
    except (TimeoutError, OSError) as error:
        _end_start_up(role, f"a server did not answer in time ({type(error).__name__}: {error})")
    except Exception as error:
        log.exception("start-up failed", action="process.start")
        _end_start_up(role, f"{type(error).__name__}: {error}")
    return life


def _end_start_up(role: str, why: str) -> NoReturn:
    sys.stderr.write(f"error: the {role} worker can't start: {why}\n")
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(EXIT_NOT_STARTED)


def _connect_signals(role: str) -> None:
    lives: list[Life] = []

    def on_init(**_: Any) -> None:
        lives.append(_begin(role))

    def on_ready(**_: Any) -> None:
        sys.stdout.write(f"playlane ready role={role}\n")
        sys.stdout.flush()

    def on_stopping(**_: Any) -> None:
        for life in lives:
            threading.Thread(target=life.end, name="playlane-drain", daemon=True).start()

    def on_stopped(**_: Any) -> None:
        for life in lives:
            life.close()

    signals.worker_init.connect(on_init, weak=False)
    signals.worker_ready.connect(on_ready, weak=False)
    signals.worker_shutting_down.connect(on_stopping, weak=False)
    signals.worker_shutdown.connect(on_stopped, weak=False)
