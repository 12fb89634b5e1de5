"""The renewal thread: keeps the session alive on connections of its own, so that a blocking resolver costs
its neighbours nothing; ends the process when its session is lost or its loop hangs."""

import os
import sys
import threading
import time
from collections.abc import Callable

import structlog

from runtime.engine.body import zombie_tasks
from runtime.errors import PlaylaneError
from runtime.policy.limits import Limits
from runtime.policy.readiness import consumer_is_lost
from runtime.policy.renewing import Renewal, decide
from workers.blocking import blocker_of
from workers.loop import BackgroundLoop
from workers.vitals import vital_signs

log = structlog.get_logger()
EXIT_SESSION_LOST = 75
EXIT_LOOP_STALLED = 70
EXIT_ZOMBIES = 71
EXIT_RENEWAL_BROKE = 72
EXIT_CONSUMER_LOST = 73


class RenewalThread:
    """Renews every `heartbeat_s`, looks at the loop every second."""

    def __init__(
        self,
        *,
        bridge: BackgroundLoop,
        limits: Limits,
        renew_session: Callable[[], bool],
        renew_leases: Callable[[], None],
        watches_consumer: bool = True,
    ) -> None:
        """`watches_consumer`: end the process if Redis, which is the broker too, answers and it reads nothing."""
        self._watches_consumer = watches_consumer
        self._bridge = bridge
        self._limits = limits
        self._renew_session = renew_session
        self._renew_leases = renew_leases
        self._turned = time.monotonic()
        self._stopped = threading.Event()
        self._session_ours = True
        self._warned = 0.0
        self._thread = threading.Thread(target=self._run, name="playlane-renewal", daemon=True)

    def start(self) -> None:
        """Begin; runs until `stop` or the end of the process."""
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(timeout=self._limits.redis_timeout_s)

    def _run(self) -> None:
        try:
            self._beat()
        except Exception:
            log.exception("the renewal thread broke off", action="session.renew")
            self._exit(EXIT_RENEWAL_BROKE, "nobody would renew its session any more")

    def _beat(self) -> None:
        beat_s = min(1.0, self._limits.heartbeat_s / 2)
        renew_at = 0.0
        while not self._stopped.wait(beat_s):
            self._bridge.loop.call_soon_threadsafe(self._on_turn)
            now = time.monotonic()
            if now >= renew_at:
                renew_at = now + self._limits.heartbeat_s
                self._renew()
            self._act(now - self._turned)
            if self._watches_consumer and consumer_is_lost(vital_signs.now(), self._limits):
                self._exit(
                    EXIT_CONSUMER_LOST,
                    "Redis answers, but the consumer reads no message: a fresh process does",
                )

    def _on_turn(self) -> None:
        self._turned = time.monotonic()
        vital_signs.loop()

    def _renew(self) -> None:
        try:
            self._session_ours = self._renew_session()
        except PlaylaneError as error:
            log.warning("session not renewed", action="session.renew", error=str(error))
        try:
            self._renew_leases()
        except PlaylaneError as error:
            log.warning("leases not renewed", action="leases.renew", error=str(error))

    def _act(self, stalled_s: float) -> None:
        verdict = decide(
            loop_stalled_s=stalled_s,
            session_ours=self._session_ours,
            zombie_tasks=zombie_tasks(),
            limits=self._limits,
        )
        if verdict is Renewal.RENEW_AND_WARN and time.monotonic() - self._warned > self._limits.heartbeat_s:
            self._warned = time.monotonic()
            self._tell(stalled_s)
        elif verdict is Renewal.EXIT_STALLED:
            self._exit(EXIT_LOOP_STALLED, f"the loop hasn't turned for {stalled_s:.0f} s: {self._blocker()}")
        elif verdict is Renewal.EXIT_ZOMBIES:
            self._exit(
                EXIT_ZOMBIES, "too many tasks of plays outlived their cancellation; a fresh process has none"
            )
        elif verdict is Renewal.EXIT_LOST:
            self._exit(EXIT_SESSION_LOST, "this session was ended: it did not renew in time")

    def _tell(self, stalled_s: float) -> None:
        """Name who blocks the loop, here and in the log of the run."""
        blocker = blocker_of(self._bridge.loop, self._bridge.thread_id)
        seconds = round(stalled_s, 1)
        log.warning(
            "the loop is blocked", action="loop.blocked", seconds=seconds, by=blocker.line, of=blocker.name
        )
        if blocker.scope is not None:
            blocker.scope.output.line(
                f"{blocker.name} blocks the rows beside it for more than a second, at {blocker.line}: await "
                "something asynchronous there, or asyncio.to_thread(...)",
                "warning",
            )

    def _blocker(self) -> str:
        """The line that blocks the loop."""
        return blocker_of(self._bridge.loop, self._bridge.thread_id).line

    def _exit(self, code: int, why: str) -> None:
        """No clean-up: nothing that this process still wants to do is its own to do."""
        log.error("process ends; its work goes on elsewhere", action="process.exit", why=why, code=code)
        sys.stderr.flush()
        os._exit(code)
