"""What is wrong with one item of a request, or with all of it."""

from typing import Any

from examples.execution_api.misbehaviour import ForcedAnswer


class ItemError(Exception):
    """The item itself is at fault; nothing is charged for it."""

    def __init__(self, code: str, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.retryable = retryable

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": str(self), "retryable": self.retryable, "credits": 0}


class RefusedError(Exception):
    """The request as a whole is answered with an error."""

    def __init__(self, status: int, code: str, message: str, *, forced: ForcedAnswer | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.forced = forced
