"""What `ctx` does inside one row."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, NoReturn

from runtime.context.asks import Ask
from runtime.context.captured_output import Output
from runtime.context.own_tasks import OwnTasks
from runtime.context.scope import current_scope
from runtime.engine.home_thread import refuse_other_thread
from runtime.engine.hosts import Services
from runtime.engine.inner_scopes import HERE, LogScope, Within, left_over
from runtime.engine.local_steps import secret
from runtime.engine.performing import perform, settled
from runtime.engine.provenance import RowTrace
from runtime.engine.row_waits import RowPlace, RowWaiting
from runtime.engine.stop_sign import NEVER, StopSign
from runtime.engine.tool_calls import CallContext, CallPlace, ToolCalls
from runtime.errors import PlayDefinitionError, RowStopsError, RowWaitsError, RunFatalError
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.canonical_json import canonical
from runtime.model.cell import CellState
from runtime.model.lineage import Lineage
from runtime.policy.limits import Limits
from runtime.ports import LogLine


@dataclass(slots=True)
class RowScope:
    """What `ctx` does inside one row."""

    calls: ToolCalls
    context: CallContext
    position: int
    limits: Limits
    logs: list[tuple[str, LogLine]]
    dataset: str = ""
    column: str = ""  # the one whose resolver runs
    row_key: str = ""
    namespace: str = ""  # of the dataset's sheet
    services: Services | None = None
    durable: RowWaiting | None = None
    lineage: Lineage | None = None
    trace: RowTrace | None = None  # if the run captures
    stop: StopSign = NEVER
    asked: int = 0
    cached: int = 0
    fatal: RunFatalError | None = None  # what ends the run, whatever a resolver made of it
    waits: RowWaitsError | None = None  # what the row waits for, whatever a resolver made of it
    stopped: bool = False  # a call was refused because the dataset fails
    producer: dict[str, Any] | None = None  # the last call of the cell that is being made
    children: set[str] = field(default_factory=set)
    children_ok: int = 0
    children_failed: int = 0
    working: set[str] = field(default_factory=set)
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)  # steps of the cell's program, by path
    play: str = ""
    _logs: LogScope | None = None
    _output: Output | None = None
    _tasks: OwnTasks | None = None
    _open: list[tuple[str, str, Any]] = field(default_factory=list)
    _equals: dict[str, int] = field(default_factory=dict)
    _home: int = field(default_factory=get_ident)

    async def perform(self, ask: Ask, within: Within = HERE) -> Any:
        inside = current_scope.get()
        current_scope.set(None)  # what the engine starts and says is not the author's
        try:
            return ask.met(await perform(self, ask, within))
        finally:
            current_scope.set(inside)

    @property
    def output(self) -> Output:
        """What its columns print."""
        if self._output is None:
            lines = LogScope(f"{self.log_scope()}:out", self.add_line)
            self._output = Output(
                lambda text, level: lines.log(text, {"column": self.column}, level), self.limits
            )
        return self._output

    @property
    def own_tasks(self) -> OwnTasks:
        """What the resolver that runs has started."""
        if self._tasks is None:
            self._tasks = OwnTasks()
        return self._tasks

    @property
    def has_tasks(self) -> bool:
        return self._tasks is not None and not self._tasks.is_empty

    async def end_tasks(self) -> None:
        """The resolver has returned: what it left running is cancelled and noted."""
        if names := await self.own_tasks.end(self.limits.left_over_wait_s):
            self.log(left_over(f'column "{self.column}"', names), {}, level="warning")

    def end(self) -> None:
        """The row's turn is over: keep what its columns printed."""
        if self._output is not None:
            self._output.end()

    def describe(self) -> str:
        return (
            f'column "{self.column}" of dataset "{self.dataset}" in play "{self.play}" (row {self.position})'
        )

    @property
    def is_busy(self) -> bool:
        resting = 0 if self.durable is None else self.durable.resting_calls
        return len(self._open) > resting or bool(self.working)

    async def secret(self, name: str) -> str:
        return await secret(self, name)

    async def settled(self) -> None:
        """Before its turn ends: the steps that it began have ended, within their bound."""
        if self.working:
            await settled(self)

    async def tool(
        self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS, within: Within = HERE
    ) -> Any:
        self.begin()
        self._refuse_twin(id, tool, input)
        asked = (id, tool, input)
        self._open.append(asked)
        self.asked += 1
        self.producer = {"kind": "tool", "id": id, "tool": tool}
        inside = current_scope.get()
        current_scope.set(None)
        try:
            value, cached = await self._execute(tool, input, options, self._place(id, within))
        except RunFatalError as error:
            self.fatal = self.fatal or error
            raise
        except RowWaitsError as later:
            self.waits = self.waits or later
            raise
        finally:
            current_scope.set(inside)
            self._open = [other for other in self._open if other is not asked]
        self.cached += cached
        return value

    async def _execute(
        self, tool: str, input: Any, options: CallOptions, place: CallPlace
    ) -> tuple[Any, bool]:
        if self.trace is None:
            return await self.calls.execute(self.context, tool, input, options, place)
        with self.trace.call("tool", str(place.parts[-1]), tool) as noted:
            value, cached = await self.calls.execute(self.context, tool, input, options, place)
            noted.ended(value, cached=cached)
        return value, cached

    @property
    def captures(self) -> bool:
        return self.trace is not None

    def begin(self) -> None:
        """Before any call, step or fetch: raise if the row may do nothing more."""
        refuse_other_thread(self._home, f'column "{self.column}"')
        self.check()
        if self.stop.is_up:
            self.stopped = True
            raise RowStopsError

    def check(self) -> None:
        """Raise the run-fatal error that a call of this row met, or why the row goes no further in this turn."""
        if self.fatal is not None:
            raise self.fatal
        if self.stopped:
            raise RowStopsError
        if self.waits is not None:
            raise self.waits

    def here(self) -> tuple[str | int, ...]:
        return ("row", self.dataset, self.position, self.column)

    def row_identity(self) -> tuple[str | int, ...]:
        return ("row", self.namespace, self.row_key or self.position, self.column)

    def nth(self, what: str) -> int:
        return self._nth(f"{self.column}:{what}")

    def refuse(self, call: str, instead: str) -> NoReturn:
        raise PlayDefinitionError(f"{call} can't be used inside a row: {instead}")

    def log_scope(self) -> str:
        return f"row:{self.position}"

    def add_line(self, line: LogLine) -> None:
        self.logs.append((self.context.run_id, line))

    def child_ended(self, id: str, play: str, *, failed: bool) -> None:
        self.producer = {"kind": "play", "id": id, "play": play}
        self.children_ok += not failed
        self.children_failed += failed

    def stage(
        self,
        path: str,
        state: str,
        error: dict[str, Any] | None = None,
        *,
        branch: str | None = None,
        reads: Sequence[str] | None = None,
    ) -> None:
        known: dict[str, Any] = {"state": state, "error": error}
        if self.trace is not None:
            known |= {"reads": reads, "decide": {"branch": branch} if branch else None}
        self.stages[path] = {name: value for name, value in known.items() if value is not None}

    def take_stages(self) -> dict[str, Any] | None:
        """How the steps of the cell's program ended; None if it has no program."""
        taken, self.stages = self.stages, {}
        return taken or None

    def _place(self, id: str, within: Within) -> CallPlace:
        parts = (*self.here(), *within.parts, id)
        asked = "/".join(map(str, (self.column, *within.parts, id)))
        node = (id, self.column, self.namespace)
        durable = None
        if self.durable is not None:
            durable = RowPlace(self.durable, asked, allows_events=not within.parts)
        return CallPlace(
            parts=parts, nth=lambda what: self._nth(f"{asked}:{what}"), durable=durable, node=node
        )

    def _nth(self, what: str) -> int:
        n = self._equals.get(what, 0)
        self._equals[what] = n + 1
        return n

    def _refuse_twin(self, id: str, tool: str, input: Any) -> None:
        """The same question twice at once in one row is a slip, or needs two names."""
        if not self._open:
            return
        twins = [one for one in self._open if one[:2] == (id, tool) and one[2] == input]
        if twins and any(canonical(one[2]) == canonical(input) for one in twins):
            raise PlayDefinitionError(
                f'column "{self.column}": tools.execute(id="{id}", tool="{tool}") is asked twice at once with the same '
                "input in one row: await the first and use its result, or give the second call another id"
            )

    def log(self, text: str, fields: dict[str, Any], *, level: str = "info") -> None:
        if self._logs is None:
            self._logs = LogScope(self.log_scope(), self.add_line)
        self._logs.log(text[: self.limits.log_chars], fields, level, self.limits)

    def take_producer(self) -> dict[str, Any] | None:
        """The last call of the cell just made."""
        producer, self.producer = self.producer, None
        return producer

    def take_cell_state(self) -> CellState:
        """The state of the cell just made: cached if receipts answered every call that it made."""
        state = CellState.CACHED if self.asked and self.asked == self.cached else CellState.COMPLETED
        self.asked = self.cached = 0
        return state
