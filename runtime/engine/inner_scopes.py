"""Scopes inside a scope: a child play, which prefixes its caller's place, and a step, which asks for nothing."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from runtime.context.asks import Ask
from runtime.context.captured_output import Output
from runtime.context.own_tasks import OwnTasks
from runtime.context.scope import TaskKeeper
from runtime.errors import PlayDefinitionError
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.lineage import Lineage
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.ports import LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Where inside a host something is asked. `namespace`: of shared receipts; empty = the play's own."""

    parts: tuple[str | int, ...] = ()
    namespace: str = ""
    lineage: Lineage | None = None


HERE = Within()


class OuterScope(Protocol):
    """What a child play needs of the row or body operation that it runs in."""

    limits: Limits

    async def tool(
        self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS, within: Within = HERE
    ) -> Any: ...

    async def perform(self, ask: Ask, within: Within = HERE) -> Any: ...

    async def secret(self, name: str) -> str: ...

    def log_scope(self) -> str: ...

    def add_line(self, line: LogLine) -> None: ...

    @property
    def captures(self) -> bool: ...

    @property
    def own_tasks(self) -> TaskKeeper: ...


def left_over(where: str, names: Sequence[str]) -> str:
    """What a log says of tasks that were still running."""
    return f"{where} left {len(names)} task(s) running when it returned; cancelled: {', '.join(names[:10])}"


class LogScope:
    """Numbers the lines of one place, so that each is kept once however often it is run."""

    __slots__ = ("_add", "_n", "_scope")

    def __init__(self, scope: str, add: Callable[[LogLine], None]) -> None:
        self._scope = scope
        self._add = add
        self._n = 0

    def log(self, text: str, fields: dict[str, Any], level: str, limits: Limits = DEFAULT_LIMITS) -> None:
        if self._n < limits.logs_per_scope:
            self._add(LogLine(scope=self._scope, n=self._n, level=level, message=text, fields=fields))
        self._n += 1


class _NoCell:
    """A place that makes no cell, so the steps of a program in it are noted nowhere."""

    def stage(
        self,
        path: str,
        state: str,
        error: dict[str, Any] | None = None,
        *,
        branch: str | None = None,
        reads: Sequence[str] | None = None,
    ) -> None:
        return None


class ChildScope(_NoCell):
    """A child play inside a row or a body operation: everything is its caller's but its place and its receipts."""

    def __init__(self, outer: OuterScope, within: Within, *, play: str, key: str) -> None:
        self._outer = outer
        self._within = within
        self._name = f'child play "{play}" (ctx.run_play("{key}"))'
        path = "/".join(str(part) for part in within.parts if part != "child")
        self._logs = LogScope(f"{outer.log_scope()}/{path}"[:500], outer.add_line)
        self.output = Output(lambda text, level: self.log(text, {}, level=level), outer.limits)

    async def tool(self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS) -> Any:
        return await self._outer.tool(id=id, tool=tool, input=input, options=options, within=self._within)

    async def perform(self, ask: Ask) -> Any:
        if ask.suspends:
            self.refuse(ask.call, "wait in its caller, before or after it")
        return await self._outer.perform(ask, self._within)

    async def secret(self, name: str) -> str:
        return await self._outer.secret(name)

    def describe(self) -> str:
        return self._name

    @property
    def own_tasks(self) -> TaskKeeper:
        return self._outer.own_tasks

    def refuse(self, call: str, instead: str) -> NoReturn:
        raise PlayDefinitionError(
            f"{call} can't be used inside {self._name}, which runs inside its caller and can't rest there: {instead}, "
            "or start it as a run of its own with ctx.enqueue_play(...)"
        )

    def log(self, text: str, fields: dict[str, Any], *, level: str = "info") -> None:
        self._logs.log(text, fields, level, self._outer.limits)

    @property
    def captures(self) -> bool:
        return self._outer.captures


class StepScope(_NoCell):
    """Inside a step's function: it is kept as a whole, so nothing in it is kept by itself."""

    captures = False

    def __init__(
        self,
        name: str,
        *,
        log_scope: str,
        add_line: Callable[[LogLine], None],
        secret: Callable[[str], Awaitable[str]],
    ) -> None:
        self._name = name
        self._secret = secret
        self._logs = LogScope(log_scope, add_line)
        self.output = Output(lambda text, level: self.log(text, {}, level=level))
        self.own_tasks = OwnTasks()

    async def secret(self, name: str) -> str:
        return await self._secret(name)

    def describe(self) -> str:
        return self._name

    async def end(self, wait_s: float) -> None:
        """Its function has returned: end what it left running and keep what it printed."""
        if names := await self.own_tasks.end(wait_s):
            self.log(left_over(self._name, names), {}, level="warning")
        self.output.end()

    async def tool(self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS) -> Any:
        self.refuse("ctx.tools.execute", "call it before the step and close over its result, or after it")

    async def perform(self, ask: Ask) -> Any:
        self.refuse(ask.call, "ask for it before the step and close over what it gave, or after it")

    def refuse(self, call: str, instead: str) -> NoReturn:
        raise PlayDefinitionError(
            f"{call} can't be used inside {self._name}, whose outcome is kept as a whole: {instead}"
        )

    def log(self, text: str, fields: dict[str, Any], *, level: str = "info") -> None:
        self._logs.log(text, fields, level)
