"""CSV files as rows, read as a stream; a file is taken whole or refused with line and column.

Rules: UTF-8 (a byte order mark is dropped), comma, double quotes, any line ending. The first line names the
columns: outer blanks are trimmed, empty or equal names are refused, case matters. Blank lines are no rows.
Short rows get empty cells, long rows are refused. Cells are text, as they stand in the file.
"""

import csv
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.errors import CsvError, InputChangedError
from runtime.policy.limits import DEFAULT_LIMITS, Limits

_NOT_TEXT = re.compile("[\x00\udc80-\udcff]")
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvHandle:
    """A CSV file that was read once: iterating it yields its rows, as long as it is still that file."""

    path: str
    columns: tuple[str, ...]
    count: int
    digest: str
    limits: Limits = field(default=DEFAULT_LIMITS, repr=False, compare=False)

    def __iter__(self) -> Iterator[dict[str, str]]:
        """Rows as dicts; raises InputChangedError if the file is another one by now."""
        self._same(file_digest(self.path))
        reading = _Reading(self.path, self.limits)
        yield from reading.rows()
        self._same(reading.digest())

    def __len__(self) -> int:
        return self.count

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "columns": list(self.columns), "count": self.count, "digest": self.digest}

    def _same(self, digest: str) -> None:
        if digest != self.digest:
            raise InputChangedError(
                f"{self.path} is not the file that this run read first (sha256 {self.digest[:12]}, now "
                f"{digest[:12]}): put it back, or start a new run; this run is failed and not retried"
            )


def scan_csv(path: str, limits: Limits = DEFAULT_LIMITS) -> CsvHandle:
    """Read the whole file once, in flat memory; raises CsvError for the first thing that is wrong."""
    reading = _Reading(path, limits)
    count = sum(1 for _ in reading.rows())
    return CsvHandle(path=path, columns=reading.columns, count=count, digest=reading.digest(), limits=limits)


def file_digest(path: str) -> str:
    """sha256 (hex) of the file's bytes."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path, error) from error


class _DigestingFile(io.FileIO):
    """Bytes of a file, digested as they pass."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.sha256 = hashlib.sha256()

    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:count])
        return count


class _Reading:
    """One pass over a file."""

    def __init__(self, path: str, limits: Limits) -> None:
        self.columns: tuple[str, ...] = ()
        self._path = path
        self._limits = limits
        self._line = 0
        self._row_line = 1
        self._sha256: Any = None

    def digest(self) -> str:
        return self._sha256.hexdigest()

    def rows(self) -> Iterator[dict[str, str]]:
        csv.field_size_limit(self._limits.csv_field_bytes)  # one process-wide value, always the same
        try:
            raw = _DigestingFile(self._path)
        except OSError as error:
            raise _unreadable(self._path, error) from error
        self._sha256 = raw.sha256
        buffered = io.BufferedReader(raw, _CHUNK)
        with io.TextIOWrapper(buffered, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            yield from self._records(csv.reader(self._lines(text), strict=True))

    def _lines(self, text: io.TextIOWrapper) -> Iterator[str]:
        limit = self._limits.row_bytes
        while line := text.readline(limit + 1):
            self._line += 1
            if len(line) > limit:
                raise self._error(self._line, limit, f"the line is longer than {limit:,} characters")
            if not line.isascii() or "\x00" in line:
                self._check_text(line)
            yield line

    def _check_text(self, line: str) -> None:
        bad = _NOT_TEXT.search(line)
        if bad is None:
            return
        what = (
            "a NUL byte"
            if bad.group() == "\x00"
            else f"byte 0x{ord(bad.group()) - 0xDC00:02x}, which is not UTF-8"
        )
        raise self._error(self._line, bad.start() + 1, f"{what}: save the file as UTF-8 text")

    def _records(self, reader: Any) -> Iterator[dict[str, str]]:
        while True:
            self._row_line = self._line + 1
            try:
                cells = next(reader, None)
            except csv.Error as error:
                raise self._error(self._row_line, 1, f"the record that begins here: {error}") from error
            if cells is None:
                break
            if not cells:
                continue
            if self.columns:
                yield self._row(cells)
            else:
                self.columns = self._header(cells)
        if not self.columns:
            raise self._error(1, 1, "the file is empty: its first line must name the columns")

    def _header(self, cells: list[str]) -> tuple[str, ...]:
        names = tuple(cell.strip() for cell in cells)
        for position, name in enumerate(names, 1):
            if not name:
                raise self._error(self._row_line, position, "the column has no name")
            if name in names[: position - 1]:
                raise self._error(self._row_line, position, f'the column name "{name:.80}" appears twice')
        return names

    def _row(self, cells: list[str]) -> dict[str, str]:
        extra = len(cells) - len(self.columns)
        if extra > 0:
            raise self._error(
                self._row_line,
                len(self.columns) + 1,
                f"the row has {len(cells)} cells, the header names {len(self.columns)} columns",
            )
        return dict(zip(self.columns, cells + [""] * -extra, strict=True))

    def _error(self, line: int, column: int, what: str) -> CsvError:
        return CsvError(f"{self._path}, line {line}, column {column}: {what}; no tool was called")


def _unreadable(path: str, error: OSError) -> CsvError:
    return CsvError(f"{path} can't be read ({error.strerror}): name a file that the play workers can open")
