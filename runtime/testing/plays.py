"""`run_play`: a play in a plain test, in milliseconds, over a scripted world."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import structlog

from runtime.context import captured_output
from runtime.context.kept_cells import alive_row
from runtime.errors import BadInputError, PlayDefinitionError
from runtime.known_secrets import known_secrets
from runtime.model.boundary import BoundaryState, Event
from runtime.model.messages import RunOptions
from runtime.model.run import ENDED_RUNS, NewRun, RunState
from runtime.play import PlayDefinition, PlayRegistry, plays
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.testing.play_stage import PlayStage
from runtime.testing.scripted import Fetched, ScriptedEgress, ScriptedSecrets, ScriptedTools, ToolCalled
from runtime.testing.state import MemoryBoundary, is_resumable

QUICK = replace(
    DEFAULT_LIMITS,
    body_poll_s=0.001,
    body_slow_poll_s=0.001,
    suspend_grace_s=0.001,
    writer_flush_ms=1.0,
    writer_final_ms=0.1,
    tool_facts_s=1e-9,
)
_ORGS = count()


class PlayStuckError(AssertionError):
    """The play waits for what the test does not give, or for longer than it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOutcome:
    """What a run left: its end, its sheets by dataset key, what it asked of the world, what it said."""

    state: RunState
    result: Any
    error: dict[str, Any] | None
    sheets: dict[str, list[dict[str, Any]]] = field(repr=False)
    failures: dict[str, list[dict[str, Any]]] = field(repr=False)
    calls: list[ToolCalled] = field(repr=False)
    fetched: list[Fetched] = field(repr=False)
    logs: list[str] = field(repr=False)

    def rows(self, dataset: str | None = None) -> list[dict[str, Any]]:
        """The rows of a dataset, in the order of its input; without a name, of the only one."""
        if dataset is None and len(self.sheets) == 1:
            return next(iter(self.sheets.values()))
        if dataset not in self.sheets:
            raise BadInputError(f"the run has the datasets {sorted(self.sheets)}: name one of them")
        return self.sheets[dataset]

    @property
    def ok(self) -> bool:
        return self.state is RunState.COMPLETED


def run_play(
    play: str | Callable[..., Any],
    input: Any = None,
    *,
    tools: Mapping[str, Any] | None = None,
    fetches: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    events: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    workspace: Sequence[str] = (),
    registry: PlayRegistry = plays,
    limits: Limits = QUICK,
    timeout_s: float = 10.0,
) -> PlayOutcome:
    """Run a play to its end. Waits cost no time: the clock jumps to what is due, and an event comes when it is awaited.

    `tools`, `fetches`: an answer, an error, or a function of the input or request, by name or URL; `events`: payloads
    by event key. Raises PlayStuckError if the play waits for something that never comes.
    """
    definition = _definition(play, registry)
    tested = _Tested(
        NewRun(
            run_id="test-run",
            org_id=f"test-{next(_ORGS)}",
            play=definition.name,
            input={} if input is None else input,
            options=RunOptions.model_validate(dict(options or {})).model_dump(exclude_defaults=True),
        ),
        tools=ScriptedTools(tools or {}),
        egress=ScriptedEgress(fetches or {}),
        secrets=ScriptedSecrets(secrets or {}),
        events=dict(events or {}),
        workspace=workspace,
        registry=registry,
        limits=limits,
        timeout_s=timeout_s,
    )
    return tested.outcome()


class _Tested:
    """One test of one play."""

    def __init__(
        self,
        run: NewRun,
        *,
        tools: ScriptedTools,
        egress: ScriptedEgress,
        secrets: ScriptedSecrets,
        events: dict[str, Any],
        workspace: Sequence[str],
        registry: PlayRegistry,
        limits: Limits,
        timeout_s: float,
    ) -> None:
        self._run = run
        self._tools, self._egress, self._secrets = tools, egress, secrets
        self._events = events
        self._told = 0
        self._make = lambda: PlayStage(
            tools=tools, egress=egress, secrets=secrets, registry=registry, limits=limits, workspace=workspace
        )
        self._until_s = time.monotonic() + timeout_s
        self._timeout_s = timeout_s

    def outcome(self) -> PlayOutcome:
        """In a thread of its own: a test may have a running loop in its thread, a play's body may not."""
        made: list[PlayOutcome | BaseException] = []

        def work() -> None:
            try:
                made.append(self._outcome())
            except BaseException as error:  # noqa: BLE001
                made.append(error)

        thread = threading.Thread(target=work, name="playlane-test")
        captured_output.capture()
        try:
            with structlog.testing.capture_logs():
                thread.start()
                thread.join()
        finally:
            captured_output.release()
            known_secrets.forget(self._run.org_id)
        (result,) = made
        if isinstance(result, BaseException):
            raise result
        return result

    def _outcome(self) -> PlayOutcome:
        stage = self._make()
        try:
            stage.bridge.call(stage.admission.admit(self._run))
            while not self._has_ended(stage):
                if time.monotonic() > self._until_s:
                    raise PlayStuckError(
                        f'play "{self._run.play}" did not end within {self._timeout_s:g} s: {self._waits_for(stage)}'
                    )
                if not stage.work_off():
                    self._go_on(stage)
            return self._told_of(stage)
        finally:
            stage.close()

    def _has_ended(self, stage: PlayStage) -> bool:
        runs = stage.stores.state.runs
        return bool(runs) and all(run.state in ENDED_RUNS for run in runs.values())

    def _go_on(self, stage: PlayStage) -> None:
        """Nothing is on its way: tell an awaited event, else jump to what is due next."""
        if self._woken(stage):
            return
        armed = list(_armed(stage))
        for boundary in armed:
            if boundary.event_key in self._events:
                self._tell(stage, str(boundary.event_key))
                return
        state = stage.stores.state
        due = [one.due_s for one in armed if one.due_s is not None]
        due += [
            row.due_s
            for dataset in state.datasets.values()
            for row in dataset.rows.values()
            if row.due_s is not None
        ]
        later = [due_s for due_s in due if due_s > stage.now_s]
        if later:
            stage.now_s = min(later)
        elif not due:
            raise PlayStuckError(f'play "{self._run.play}" can\'t go on: {self._waits_for(stage)}')
        self._woken(stage)

    def _woken(self, stage: PlayStage) -> bool:
        """Whether something can go on by itself."""
        stage.sweep()
        state = stage.stores.state
        stage.outbox.messages.extend(run_id for run_id, run in state.runs.items() if is_resumable(state, run))
        return bool(stage.outbox.messages)

    def _tell(self, stage: PlayStage, key: str) -> None:
        self._told += 1
        event = Event(
            org_id=self._run.org_id, event_id=f"event-{self._told}", key=key, payload=self._events[key]
        )
        stage.bridge.call(stage.events.deliver(event))

    def _waits_for(self, stage: PlayStage) -> str:
        keys = sorted({str(one.event_key) for one in _armed(stage) if one.event_key})
        if keys:
            return (
                f"it waits for the event(s) {', '.join(keys)}: give run_play(events={{{keys[0]!r}: payload}})"
            )
        return "it waits for nothing that the test could tell"

    def _told_of(self, stage: PlayStage) -> PlayOutcome:
        state = stage.stores.state
        run = state.runs[self._run.run_id]
        mine = [one for one in state.datasets.values() if one.new.run_id == self._run.run_id]
        sheets: dict[str, list[dict[str, Any]]] = {}
        failures: dict[str, list[dict[str, Any]]] = {}
        for dataset in mine:
            kept = state.sheets.get((self._run.org_id, self._run.play, dataset.new.namespace), {})
            rows = [row for _, row in sorted(dataset.rows.items())]
            sheets[dataset.new.key] = [
                alive_row(kept[row.row_key]["data"], kept[row.row_key]["cell_meta"])
                for row in rows
                if row.row_key in kept
            ]
            failures[dataset.new.key] = [row.error for row in rows if row.error is not None]
        return PlayOutcome(
            state=run.state,
            result=run.result,
            error=run.error,
            sheets=sheets,
            failures=failures,
            calls=self._tools.called,
            fetched=self._egress.fetched,
            logs=[line.message for (run_id, _, _), line in state.logs.items() if run_id == self._run.run_id],
        )


def _armed(stage: PlayStage) -> list[MemoryBoundary]:
    state = stage.stores.state
    ended = {run_id for run_id, run in state.runs.items() if run.state in ENDED_RUNS}
    bodies = [
        one for run_id, found in state.boundaries.items() if run_id not in ended for one in found.values()
    ]
    rows = [
        one
        for dataset in state.datasets.values()
        if dataset.new.run_id not in ended
        for row in dataset.rows.values()
        for one in row.boundaries.values()
    ]
    return [one for one in bodies + rows if one.state is BoundaryState.ARMED]


def _definition(play: str | Callable[..., Any], registry: PlayRegistry) -> PlayDefinition:
    if isinstance(play, str):
        return registry.find(play)
    found = registry.of_function(play)
    if found is None:
        raise PlayDefinitionError(f"run_play takes a play's name or its decorated function, not {play!r:.80}")
    return found
