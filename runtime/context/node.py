"""Observations of a piece of a play: best effort, nothing at all unless its run captures, never able to fail it."""

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import structlog

from runtime.model.error_text import named

log = structlog.get_logger()


class Observer(Protocol):
    @property
    def captures(self) -> bool: ...

    def observe(self, text: str, fields: dict[str, Any]) -> None: ...


class Node:
    """`async with ctx.node("score", inputs={"n": n}) as node: ...; node.outputs(score=3)`."""

    def __init__(self, id: str, inputs: Mapping[str, Any] | None, observer: Observer) -> None:
        self._id = id
        self._inputs = inputs
        self._observer = observer
        self._outputs: dict[str, Any] = {}
        self._is_on = False

    def outputs(self, **values: Any) -> None:
        """What the piece gave, to be shown with it."""
        self._outputs.update(values)

    async def __aenter__(self) -> Self:
        self._is_on = self._observer.captures
        self._say("started", inputs=self._inputs)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._say("completed", inputs=self._inputs, outputs=self._outputs)
        elif isinstance(error, Exception):  # what unwinds a wait or a cancelled run is no end of the node
            self._say("failed", inputs=self._inputs, error=named(error))

    def _say(self, status: str, **seen: Any) -> None:
        if not self._is_on:
            return
        try:
            known = {
                name: dict(value) if isinstance(value, Mapping) else value for name, value in seen.items()
            }
            fields = {"status": status, **{name: value for name, value in known.items() if value}}
            self._observer.observe(str(self._id), fields)
        except Exception as error:  # noqa: BLE001
            # An observation never fails what it observes.
            log.warning("node not observed", action="node.observe", node=str(self._id), error=named(error))
