"""What `ctx` does inside one row."""

from dataclasses import dataclass, field
from typing import Any

from runtime.engine.tool_calls import CallContext, CallPlace, ToolCalls
from runtime.errors import PlayDefinitionError, RowWaitsError, RunFatalError
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.canonical_json import canonical
from runtime.model.cell import CellState
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
    asked: int = 0
    cached: int = 0
    fatal: RunFatalError | None = None  # what ends the run, whatever a resolver made of it
    waits: RowWaitsError | None = None  # what the row waits for, whatever a resolver made of it
    _logged: int = field(default=0)
    _open: list[tuple[str, str, Any]] = field(default_factory=list)
    _equals: dict[str, int] = field(default_factory=dict)

    async def tool(self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS) -> Any:
        self.check()
        self._refuse_twin(id, tool, input)
        asked = (id, tool, input)
        self._open.append(asked)
        self.asked += 1
        try:
            value, cached = await self.calls.execute(self.context, tool, input, options, self._place(id))
        except RunFatalError as error:
            self.fatal = self.fatal or error
            raise
        except RowWaitsError as later:
            self.waits = self.waits or later
            raise
        finally:
            self._open = [other for other in self._open if other is not asked]
        self.cached += cached
        return value

    def check(self) -> None:
        """Raise the run-fatal error that a call of this row met, or what the row waits for."""
        if self.fatal is not None:
            raise self.fatal
        if self.waits is not None:
            raise self.waits

    def _place(self, id: str) -> CallPlace:
        column = self.column
        parts = ("row", self.dataset, self.position, column, id)
        return CallPlace(parts=parts, nth=lambda what: self._nth(f"{column}:{id}:{what}"))

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

    def log(self, text: str, fields: dict[str, Any]) -> None:
        line = LogLine(
            scope=f"row:{self.position}",
            n=self._logged,
            level="info",
            message=text[: self.limits.log_chars],
            fields=fields,
        )
        self._logged += 1
        self.logs.append((self.context.run_id, line))

    def take_cell_state(self) -> CellState:
        """The state of the cell just made: cached if receipts answered every call that it made."""
        state = CellState.CACHED if self.asked and self.asked == self.cached else CellState.COMPLETED
        self.asked = self.cached = 0
        return state
