"""Work that this process does itself, a step or a fetch, and its durable outcome."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runtime.model.call import ANY_AGE, Accepts
from runtime.model.receipt import Receipt


class LocalKind(StrEnum):
    STEP = "step"
    FETCH = "fetch"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalWork:
    """What is to be done once. `shared`: runs and processes share the key, so that a lease decides who does it."""

    kind: LocalKind
    id: str  # the author's name for it
    key: str  # of its receipt
    org_id: str
    run_id: str
    shared: bool = False
    accepts: Accepts = ANY_AGE

    @property
    def name(self) -> str:
        """As messages call it."""
        return f'ctx.{self.kind.value}("{self.id}")'


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What the work gave: JSON text. Not `lasting`: it answers its own run alone."""

    output: bytes
    lasting: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOutcome:
    """What every asker is served: `output` or `error`; `cached`: from a receipt, nothing was done for it."""

    output: bytes | None
    error: dict[str, Any] | None
    cached: bool
    run_id: str
    terminal: bool = False
    produced_ms: int | None = None  # of the receipt that answers; None = just now


def outcome_of(receipt: Receipt, *, cached: bool) -> LocalOutcome:
    """A stored receipt as what is served."""
    has_output = receipt.output is not None
    return LocalOutcome(
        output=receipt.output,
        error=None if has_output else (receipt.error or {}),
        cached=cached,
        run_id=receipt.run_id,
        terminal=receipt.terminal,
        produced_ms=receipt.produced_ms if cached else None,
    )
