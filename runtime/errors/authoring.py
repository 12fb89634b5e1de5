"""What a play's code asks for and can't be: its author mends it."""

from typing import Any

from runtime.errors.base import PlaylaneError


class PlayDefinitionError(PlaylaneError):
    code = "play_definition"


class BodyIoError(PlayDefinitionError):
    code = "body_io"


class ChildPlayError(PlayDefinitionError):
    """A child play that may not be called; `code` says whether for a circle or for its depth."""

    code = "child_play"

    def __init__(self, message: str, *, code: str = "child_play") -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild_child_play, (str(self), self.code))


class SecretTaintError(PlaylaneError):
    code = "secret_taint"


def _rebuild_child_play(message: str, code: str) -> ChildPlayError:
    return ChildPlayError(message, code=code)
