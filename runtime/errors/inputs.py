"""What a sender or operator gave and can't be taken: nothing was called."""

from typing import Any

from runtime.errors.base import PlaylaneError

_PATH_CHARS = 200


class BadInputError(PlaylaneError):
    code = "bad_input"


class UnknownPlayError(BadInputError):
    code = "unknown_play"


class UnknownRunError(BadInputError):
    code = "unknown_run"


class CsvError(BadInputError):
    """A CSV file that can't be read as rows; says line and column."""

    code = "bad_csv"


class DatasetInputError(BadInputError):
    code = "bad_row"


class DatasetReadError(BadInputError):
    """Rows of a dataset can't be read as asked."""

    code = "dataset_read"


class JsonValueError(BadInputError):
    """A value that can't be stored exactly; `path` is a JSONPath such as `$.a[3]`."""

    code = "bad_value"

    def __init__(self, path: str, reason: str) -> None:
        if len(path) > _PATH_CHARS:
            path = f"{path[: _PATH_CHARS - 50]}…{path[-40:]}"
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.path, self.reason))
