"""A body's reads of datasets: operations like any other, so that a replay meets the same rows or fails by name."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Protocol

from runtime.model.operation import Op, OpKind
from runtime.model.row import RowState
from runtime.model.stored_row import StoredRow, Stretch
from runtime.policy.identity import operation_digest
from runtime.policy.limits import Limits


class AskingBody(Protocol):
    limits: Limits

    def ask(self, op: Op) -> Any: ...

    def nth(self, name: str) -> int: ...


class BodyReader:
    """ReadsRows for the code of one body."""

    def __init__(self, body: AskingBody) -> None:
        self.limits = body.limits
        self.body = body

    async def read_rows(self, stretch: Stretch, *, name: str, keep: bool) -> Sequence[StoredRow]:
        key = f"read:{name}"
        op = Op(
            key=f"{key}:{self.body.nth(key)}",
            kind=OpKind.READ,
            digest=operation_digest(OpKind.READ.value, asdict(stretch)),
            args={"stretch": stretch, "name": name, "keep": keep},
        )
        found = await self.body.ask(op)
        return [_row(parts) for parts in found["rows"]]


def _row(parts: Sequence[Any]) -> StoredRow:
    position, row_key, state, data, cell_meta = parts
    return StoredRow(
        position=position, row_key=row_key, state=RowState(state), data=data, cell_meta=cell_meta
    )
