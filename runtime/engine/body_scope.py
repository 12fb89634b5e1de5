"""What `ctx` does inside an operation that the process's loop performs for a body: its steps and child plays."""

from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, NoReturn, Protocol

from runtime.context.asks import Ask
from runtime.context.own_tasks import OwnTasks
from runtime.context.tool_result import ToolResult
from runtime.engine.home_thread import refuse_other_thread
from runtime.engine.hosts import Services
from runtime.engine.inner_scopes import HERE, Within
from runtime.engine.local_steps import secret
from runtime.engine.performing import perform, settled
from runtime.engine.tool_calls import CallContext, CallPlace
from runtime.errors import PlayDefinitionError, RowWaitsError, RunFatalError
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.lineage import Lineage
from runtime.policy.limits import Limits
from runtime.ports import LogLine


class BodyTools(Protocol):
    """Tool calls of a body: paid once per receipt key, like those of rows."""

    async def execute(
        self, context: CallContext, tool: str, input: Any, options: CallOptions, place: CallPlace
    ) -> tuple[ToolResult, bool]: ...

    async def store_usage(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class BodyScope:
    """One operation of a body. `n`: which of its equals it is."""

    tools: BodyTools
    context: CallContext
    limits: Limits
    services: Services | None
    lineage: Lineage | None
    op_key: str
    n: int = 0
    captures: bool = False
    lines: list[LogLine] = field(default_factory=list)
    fatal: RunFatalError | None = None
    waits: RowWaitsError | None = None
    children: set[str] = field(default_factory=set)
    children_ok: int = 0
    children_failed: int = 0
    working: set[str] = field(default_factory=set)
    own_tasks: OwnTasks = field(default_factory=OwnTasks)
    _counts: dict[str, int] = field(default_factory=dict)
    _is_begun: bool = False
    _home: int = 0

    async def perform(self, ask: Ask, within: Within = HERE) -> Any:
        """The outcome of the operation itself, as JSON; what is asked within it comes as its author meets it."""
        kept = await perform(self, ask, within)
        return ask.met(kept) if within.parts else kept

    async def tool(
        self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS, within: Within = HERE
    ) -> Any:
        self.begin()
        place = ("body", self.op_key, *within.parts, id)
        asked = CallPlace(parts=place, nth=lambda what: self.nth(f"tool:{place}:{what}"), node=(id,))
        try:
            value, _ = await self.tools.execute(self.context, tool, input, options, asked)
        except RunFatalError as error:
            self.fatal = self.fatal or error
            raise
        except RowWaitsError as later:
            self.waits = self.waits or later
            raise
        return value

    @property
    def durable(self) -> None:
        """Durable waits of a body are operations of its own."""
        return None

    async def secret(self, name: str) -> str:
        return await secret(self, name)

    async def settled(self) -> None:
        """Its steps have ended, within their bound."""
        await settled(self)

    def begin(self) -> None:
        self._home = self._home or get_ident()
        refuse_other_thread(self._home, self.op_key)
        self.check()

    def check(self) -> None:
        """Raise what its author may have swallowed: the end of the run, or that it goes on later."""
        if self.fatal is not None:
            raise self.fatal
        if self.waits is not None:
            raise self.waits

    def here(self) -> tuple[str | int, ...]:
        return ("body", self.op_key)

    def row_identity(self) -> tuple[str | int, ...]:
        return ()

    def nth(self, what: str) -> int:
        if not self._is_begun:
            self._is_begun = True
            return self.n
        count = self._counts.get(what, 0)
        self._counts[what] = count + 1
        return count

    def refuse(self, call: str, instead: str) -> NoReturn:
        raise PlayDefinitionError(f"{call} can't be used inside {self.op_key}: {instead}")

    def log_scope(self) -> str:
        return f"body:{self.op_key}"

    def add_line(self, line: LogLine) -> None:
        self.lines.append(line)

    def child_ended(self, id: str, play: str, *, failed: bool) -> None:
        self.children_ok += not failed
        self.children_failed += failed
