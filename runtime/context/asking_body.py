"""What a `ctx` needs of the body that it belongs to."""

import asyncio
from typing import Any, Protocol

from runtime.context.dataset import DatasetSpec
from runtime.model.operation import Op
from runtime.play import PlayDefinition, PlayRegistry
from runtime.policy.limits import Limits


class AskingBody(Protocol):
    """What a ctx needs of its body."""

    play: PlayDefinition
    limits: Limits
    datasets: dict[str, DatasetSpec]
    registry: PlayRegistry
    captures: bool

    @property
    def input(self) -> Any: ...

    def ask(self, op: Op) -> "asyncio.Future[Any]": ...

    def nth(self, name: str) -> int: ...

    def secret(self, name: str) -> str: ...

    def log(self, text: str, fields: dict[str, Any], *, level: str = "info") -> None: ...
