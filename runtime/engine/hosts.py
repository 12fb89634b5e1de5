"""Where work is done outside a body's own loop, and what all such places of a process share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from runtime.engine.fetching import Fetches
from runtime.engine.inner_scopes import OuterScope
from runtime.engine.local_receipts import LocalReceipts
from runtime.engine.row_waits import RowWaiting
from runtime.engine.secret_values import SecretValues
from runtime.engine.tool_calls import CallContext
from runtime.errors import PlayDefinitionError, RowWaitsError, RunFatalError
from runtime.model.lineage import Lineage
from runtime.model.run import NewRun
from runtime.ports import BudgetStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What scopes of this process share."""

    local: LocalReceipts
    start_run: Callable[[NewRun], Awaitable[None]]
    fetches: Fetches | None = None
    secrets: SecretValues | None = None
    budgets: BudgetStore | None = None


class Host(OuterScope, Protocol):
    """A row, or an operation of a body: where work is done and where its place is known."""

    context: CallContext
    services: Services | None
    lineage: Lineage | None
    fatal: RunFatalError | None
    waits: RowWaitsError | None
    children: set[str]
    working: set[str]

    @property
    def durable(self) -> RowWaiting | None:
        """The durable waits of a row; None where nothing can wait so."""
        ...

    def begin(self) -> None: ...

    def check(self) -> None: ...

    def here(self) -> tuple[str | int, ...]:
        """Its place in its run."""
        ...

    def row_identity(self) -> tuple[str | int, ...]:
        """What sets its shared receipts apart from those of other rows, in every run."""
        ...

    def nth(self, what: str) -> int: ...

    def child_ended(self, id: str, play: str, *, failed: bool) -> None:
        """A child play that was called here has ended."""
        ...


def services_of(host: Host) -> Services:
    """The services of its process."""
    if host.services is None:
        raise PlayDefinitionError(
            "steps and child plays can't be run here: this process has no services for them"
        )
    return host.services


def lineage_of(host: Host) -> Lineage:
    """Its play and those that called it."""
    return host.lineage or Lineage(root_run_id=host.context.run_id, plays=("",))


def play_of(host: Host) -> str:
    """The name of its play."""
    return lineage_of(host).plays[-1]
