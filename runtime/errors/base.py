"""The root of every error."""

from typing import Any


class PlaylaneError(Exception):
    """Base of every error that playlane raises."""

    code = "playlane_error"

    def to_payload(self) -> dict[str, Any]:
        """The error as a JSON object: code, message and what else is known."""
        return {"code": self.code, "message": str(self)}
