"""Where a ctx operation is asked from: the body (None), a row of a dataset, a child play, or a step's function."""

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from runtime.context.asks import Ask
from runtime.model.call_options import NO_OPTIONS, CallOptions


class Printed(Protocol):
    """Where a place's `print` and `logging` go."""

    def write(self, text: str, level: str) -> None: ...

    def line(self, text: str, level: str) -> None: ...


class TaskKeeper(Protocol):
    """The tasks that a place's code started."""

    def add(self, task: "asyncio.Task[Any]") -> None: ...


class Scope(Protocol):
    """What `ctx` does outside a body's own loop; the engine supplies one per place."""

    async def tool(self, *, id: str, tool: str, input: Any, options: CallOptions = NO_OPTIONS) -> Any:
        """The tool's result here, from its receipt if there is one."""
        ...

    async def perform(self, ask: Ask) -> Any:
        """What `ask` gives here, as the author meets it: from its receipt, else done and stored."""
        ...

    async def secret(self, name: str) -> str:
        """The value of a secret, for a request's body."""
        ...

    def refuse(self, call: str, instead: str) -> None:
        """Raise PlayDefinitionError: `call` belongs into a body; says where this is and what to do instead."""
        ...

    def log(self, text: str, fields: dict[str, Any], *, level: str = "info") -> None:
        """Keep a log line of this place, once however often it is run."""
        ...

    def stage(
        self,
        path: str,
        state: str,
        error: dict[str, Any] | None = None,
        *,
        branch: str | None = None,
        reads: Sequence[str] | None = None,
    ) -> None:
        """Note how a step of a program ended, for the cell that it makes."""
        ...

    def describe(self) -> str:
        """Where this is, as a message names it."""
        ...

    @property
    def output(self) -> Printed: ...

    @property
    def own_tasks(self) -> TaskKeeper: ...

    @property
    def captures(self) -> bool:
        """Whether the run asked for provenance."""
        ...


current_scope: ContextVar[Scope | None] = ContextVar("playlane_scope", default=None)
