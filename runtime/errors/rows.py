"""How rows end or wait."""

from typing import Any

from runtime.errors.base import PlaylaneError
from runtime.model.row_wait import RowWait


class WorkerDiedError(PlaylaneError):
    code = "worker_died"


class RowFailedError(PlaylaneError):
    """The first failed row of a dataset under `on_row_error="fail"`; `error` is the row's own stored error."""

    code = "row_failed"

    def __init__(
        self,
        message: str,
        *,
        dataset: str = "",
        row_key: str = "",
        column: str = "",
        error: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.dataset = dataset
        self.row_key = row_key
        self.column = column
        self.error = error or {}

    def to_payload(self) -> dict[str, Any]:
        known = {"dataset": self.dataset, "row_key": self.row_key, "column": self.column, "error": self.error}
        return {"code": self.code, "message": str(self), **known}

    @classmethod
    def of_payload(cls, payload: dict[str, Any]) -> "RowFailedError":
        """The error of a stored payload."""
        names = {name: str(payload.get(name, "")) for name in ("dataset", "row_key", "column")}
        return cls(str(payload.get("message", cls.code)), error=dict(payload.get("error") or {}), **names)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_row_failed, (self.to_payload(),))


def _rebuild_row_failed(payload: dict[str, Any]) -> RowFailedError:
    return RowFailedError.of_payload(payload)


class RowWaitsError(BaseException):
    """Unwinds a resolver whose row waits; once raised, the row does nothing more in this turn."""

    def __init__(self, wait: RowWait) -> None:
        super().__init__(f"the row waits for {wait.kind.value}: {wait.detail}; it goes on by itself")
        self.wait = wait

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.wait,))


class RowStopsError(BaseException):
    """Unwinds a resolver whose dataset fails; the row ends cancelled, what it paid for is in its receipts."""

    def __init__(self) -> None:
        super().__init__('another row failed under on_row_error="fail": this row makes no further call')
