"""Which stored receipt answers a call, and from which moment on one counts as fresh."""

import math
from dataclasses import dataclass
from typing import Any

from runtime.model.call import ANY_AGE, Accepts
from runtime.model.local_work import LocalOutcome, LocalWork
from runtime.model.receipt import Receipt, ReceiptState


@dataclass(frozen=True, slots=True, kw_only=True)
class Refresh:
    """What a run wants made anew; `epoch_ms` is the moment the run was created, by the database's clock."""

    epoch_ms: int = 0
    tools: bool = False  # completed receipts from before the run don't answer
    failed: bool = False  # nor do final failures from before it
    steps: bool = False  # nor do results of steps and fetches from before it

    @classmethod
    def of(cls, options: dict[str, Any], epoch_ms: int) -> "Refresh":
        """From a run's stored options."""
        tools = bool(options.get("refresh_tools"))
        return cls(
            epoch_ms=epoch_ms,
            tools=tools,
            failed=tools or bool(options.get("refresh_failed")),
            steps=bool(options.get("refresh_steps")),
        )


NO_REFRESH = Refresh()


def accepts(refresh: Refresh, stale_after_s: float | None) -> Accepts:
    """What a call of the run accepts. None = a receipt of any age; 0 = one made since the run began."""
    return _accepts(refresh, stale_after_s, since_run=refresh.tools)


def accepts_local(refresh: Refresh, stale_after_s: float | None) -> Accepts:
    """What a step or fetch of the run accepts of its shared key; failures of other runs only if they are final."""
    return _accepts(refresh, stale_after_s, since_run=refresh.steps)


def _accepts(refresh: Refresh, stale_after_s: float | None, *, since_run: bool) -> Accepts:
    ages_ms = [0.0] if since_run else []
    if stale_after_s is not None:
        ages_ms.append(stale_after_s * 1000)
    failed_ages_ms = [*ages_ms, 0.0] if refresh.failed else ages_ms
    if not failed_ages_ms:
        return ANY_AGE
    return Accepts(
        not_before_ms=_moment(refresh.epoch_ms, min(ages_ms)) if ages_ms else None,
        failed_not_before_ms=_moment(refresh.epoch_ms, min(failed_ages_ms)),
    )


def answers(receipt: Receipt, *, run_id: str, accepts: Accepts) -> bool:
    """Whether a caller is served by this receipt instead of by a new call. A run is served by what it produced."""
    is_own = receipt.run_id == run_id
    match receipt.state:
        case ReceiptState.COMPLETED:
            return is_own or is_since(receipt.produced_ms, accepts.not_before_ms)
        case ReceiptState.FAILED:
            return is_own or (
                receipt.terminal and is_since(receipt.produced_ms, accepts.failed_not_before_ms)
            )
        case ReceiptState.UNKNOWN:
            return is_own or receipt.terminal
        case ReceiptState.DISPATCHED:
            return False


def serves_local(outcome: LocalOutcome, work: LocalWork) -> bool:
    """Whether what was done, or read, for one asker is taken by another: a failure of another run only if final."""
    if outcome.run_id == work.run_id:
        return True
    if outcome.error is not None and not outcome.terminal:
        return False
    accepts = work.accepts
    moment_ms = accepts.not_before_ms if outcome.error is None else accepts.failed_not_before_ms
    return not outcome.cached or is_since(outcome.produced_ms, moment_ms)


def is_since(produced_ms: int | None, moment_ms: int | None) -> bool:
    """Whether a result is young enough; one of unknown age is only if every age is."""
    return moment_ms is None or (produced_ms is not None and produced_ms >= moment_ms)


def _moment(epoch_ms: int, age_ms: float) -> int:
    return max(0, math.floor(epoch_ms - age_ms))
