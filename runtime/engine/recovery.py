"""A dataset's columns for row workers: closures of a body, recovered by replaying it up to that dataset."""

import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog

from runtime.context.dataset import DatasetSpec
from runtime.context.play_context import PlayContext
from runtime.engine.body import Body
from runtime.engine.handle_reads import HandleReads
from runtime.engine.play_versions import other_source
from runtime.engine.secret_values import SecretValues, body_secrets
from runtime.errors import (
    AttemptLostError,
    NonDeterministicPlayError,
    PlayVersionUnavailableError,
    ServiceUnreachableError,
    UnknownPlayError,
)
from runtime.model.dataset import DatasetFacts
from runtime.model.operation import JournalEntry
from runtime.play import Column, PlayDefinition, PlayRegistry, plays
from runtime.policy.limits import Limits
from runtime.policy.versions import VersionPolicy
from runtime.ports import LoopBridge, RunStore

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredDataset:
    """Columns and the `ctx` to give them; the parked body stays alive as long as `ctx` is referenced."""

    columns: tuple[Column, ...]
    ctx: PlayContext
    on_row_error: str


@dataclass(slots=True, eq=False)
class _Parked:
    """A run's body, stopped nowhere and cancelled never while rows may use what it closes over."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    body: Body | None = None
    seq: int = -1
    lent: "weakref.WeakSet[PlayContext]" = field(default_factory=weakref.WeakSet)


class Recovery:
    """Recovers columns; keeps the latest bodies parked, one per run."""

    def __init__(
        self,
        *,
        runs: RunStore,
        bridge: LoopBridge,
        limits: Limits,
        registry: PlayRegistry = plays,
        reads: HandleReads | None = None,
        secrets: SecretValues | None = None,
        version_policy: VersionPolicy = VersionPolicy.CONTINUE,
    ) -> None:
        self._secrets = secrets
        self._version_policy = version_policy
        self._runs = runs
        self._reads = reads
        self._bridge = bridge
        self._limits = limits
        self._registry = registry
        self._parked: OrderedDict[str, _Parked] = OrderedDict()
        self._retired: list[_Parked] = []
        self._mutex = threading.Lock()

    def columns(self, facts: DatasetFacts) -> RecoveredDataset:
        """The columns of a dataset under a claimed slice; blocking, in a thread without a loop."""
        self._stop_retired()
        parked = self._place(facts.run_id)
        if not parked.lock.acquire(timeout=self._limits.recovery_wait_s):
            raise ServiceUnreachableError(
                f"the body of run {facts.run_id} has been replaying for "
                f"{self._limits.recovery_wait_s:.0f} s: something in it blocks; the slice is given back"
            )
        try:
            body, spec = self._recover(parked, facts)
            ctx = PlayContext(body)
            parked.lent.add(ctx)
        finally:
            parked.lock.release()
        return RecoveredDataset(columns=spec.columns, ctx=ctx, on_row_error=spec.on_row_error)

    def forget(self, run_id: str) -> None:
        """The run has ended: its body may go once no row uses it."""
        with self._mutex:
            parked = self._parked.pop(run_id, None)
            if parked is not None:
                self._retired.append(parked)
        self._stop_retired()

    def parked(self) -> int:
        """How many bodies are kept."""
        return len(self._parked) + len(self._retired)

    def _place(self, run_id: str) -> _Parked:
        with self._mutex:
            parked = self._parked.setdefault(run_id, _Parked())
            self._parked.move_to_end(run_id)
            while len(self._parked) > self._limits.parked_bodies:
                self._retired.append(self._parked.popitem(last=False)[1])
        return parked

    def _recover(self, parked: _Parked, facts: DatasetFacts) -> tuple[Body, DatasetSpec]:
        body = parked.body
        try:
            if body is None:
                body = parked.body = self._start(facts)
                parked.seq = -1
            spec = self._reach(parked, body, facts)
        except NonDeterministicPlayError as error:
            self._discard(parked)
            if self._is_other(facts):
                raise PlayVersionUnavailableError(str(error)) from error
            raise
        except BaseException:
            self._discard(parked)
            raise
        if spec.column_names != facts.columns:
            raise PlayVersionUnavailableError(
                f'dataset "{facts.key}" of run {facts.run_id} was begun with the columns '
                f"{', '.join(facts.columns)}; "
                f'play "{facts.play}" of this worker has {", ".join(spec.column_names)}. '
                "Columns never mix: deploy the play as it was, or start a new run"
            )
        return body, spec

    def _start(self, facts: DatasetFacts) -> Body:
        run = self._bridge.call(self._runs.facts(facts.run_id), self._limits.body_call_s)
        if run is None:
            raise AttemptLostError(f"run {facts.run_id} has ended; its rows are not run any more")
        body = Body(
            self._play(facts),
            run.input,
            make_ctx=PlayContext,
            limits=self._limits,
            registry=self._registry,
            captures=bool(run.options.get("capture")),
            secret_of=body_secrets(self._secrets, self._bridge, run.org_id, facts.play, self._limits),
        )
        try:
            body.start()
        except BaseException:
            body.stop()
            raise
        return body

    def _play(self, facts: DatasetFacts) -> PlayDefinition:
        try:
            play = self._registry.find(facts.play)
        except UnknownPlayError as error:
            raise PlayVersionUnavailableError(f"run {facts.run_id}: {error}") from error
        if self._version_policy is VersionPolicy.REFUSE and self._is_other(facts):
            raise PlayVersionUnavailableError(other_source(facts.run_id, facts.play))
        return play

    def _is_other(self, facts: DatasetFacts) -> bool:
        """Whether the dataset was begun with another source of its play."""
        return bool(facts.source_hash) and facts.source_hash != self._registry.find(facts.play).source_hash

    def _reach(self, parked: _Parked, body: Body, facts: DatasetFacts) -> DatasetSpec:
        """Replay on until the body asks for the dataset; nothing that it asks for is started."""
        if facts.namespace not in body.datasets:
            entries = self._bridge.call(
                self._runs.journal(facts.run_id, parked.seq), self._limits.body_call_s
            )
            for entry in entries:
                body.deliver(self._whole(body, entry))
                parked.seq = entry.seq
                if facts.namespace in body.datasets:
                    break
        body.take_fresh()
        body.take_abandoned()
        body.take_logs()
        spec = body.datasets.get(facts.namespace)
        if spec is None:
            raise NonDeterministicPlayError(
                f'play "{facts.play}" does not repeat itself: run {facts.run_id} has the dataset '
                f'"{facts.key}", but its journal ends and the body has not asked for it; no row was run'
            )
        return spec

    def _whole(self, body: Body, entry: JournalEntry) -> JournalEntry:
        if self._reads is None:
            return entry
        asked = body.op(entry.op_key) if body.asks(entry.op_key) else None
        return self._bridge.call(self._reads.whole(entry, asked), self._limits.body_call_s)

    def _discard(self, parked: _Parked) -> None:
        body, parked.body = parked.body, None
        if body is not None:
            self._retire_body(body, parked)

    def _retire_body(self, body: Body, parked: _Parked) -> None:
        old = _Parked(body=body, lent=parked.lent)
        parked.lent = weakref.WeakSet()
        with self._mutex:
            self._retired.append(old)

    def _stop_retired(self) -> None:
        """Let go of bodies that no row uses any more."""
        with self._mutex:
            idle = [parked for parked in self._retired if not parked.lent and not parked.lock.locked()]
            self._retired = [parked for parked in self._retired if parked not in idle]
        for parked in idle:
            with parked.lock:
                if parked.body is not None and parked.body.stop():
                    log.warning(
                        "tasks of a parked body outlived their cancellation",
                        action="recovery.zombies",
                        play=parked.body.play.name,
                    )
