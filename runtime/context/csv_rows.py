"""CSV as rows, read as a stream; a file is taken whole or refused with line and column.

Rules: UTF-8 (a byte order mark is dropped), comma or what is said instead, double quotes, any line ending. The first
line names the columns: outer blanks are trimmed, empty or equal names are refused, case matters. Blank lines are no
rows. Short rows get empty cells, long rows are refused. Cells are text, as they stand in the file.
"""

import csv
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime.context.csv_projection import WHOLE, Projection
from runtime.errors import CsvError, InputChangedError
from runtime.policy.limits import DEFAULT_LIMITS, Limits

_NOT_TEXT = re.compile("[\x00\udc80-\udcff]")
_GZIP = "\x1f\udc8b"
_UTF_16 = ("\udcff\udcfe", "\udcfe\udcff")
_CHUNK = 1024 * 1024
INLINE = "inline CSV"
_OFTEN = {";": "semicolons", "\t": "tabs"}
_NEVER = '"\r\n\x00\ufeff'


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvHandle:
    """CSV rows that were read once: iterating yields them, as long as the source is still the same.

    `path`: how messages name it; `file`: where it lies on this machine; `url`: where it came from; `content`: inline.
    `delimiter`: None = a comma that nobody named.
    """

    path: str
    columns: tuple[str, ...]
    count: int
    digest: str
    file: str | None = None
    url: str | None = field(default=None, repr=False)
    content: bytes | None = field(default=None, repr=False)
    projection: Projection = WHOLE
    delimiter: str | None = None
    limits: Limits = field(default=DEFAULT_LIMITS, repr=False, compare=False)

    def __iter__(self) -> Iterator[dict[str, str]]:
        """Rows as dicts; raises InputChangedError if the source is another one by now."""
        if self.content is None:
            self._same(file_digest(self.file or self.path, self.path))
        reading = _Reading(self.path, self.content, self.limits, file=self.file, delimiter=self.delimiter)
        yield from self._projected(reading) if self.projection else reading.rows()
        self._same(reading.digest())

    def __len__(self) -> int:
        return self.count

    def read_as(self) -> dict[str, Any]:
        """How it is read, as far as it was said."""
        said = {} if self.delimiter is None else {"delimiter": self.delimiter}
        return {**self.projection.described(), **said}

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "columns": list(self.columns), "count": self.count, "digest": self.digest}

    def _projected(self, reading: "_Reading") -> Iterator[dict[str, str]]:
        rows = reading.rows()
        for first in rows:  # the columns are known with the first row
            projected = self.projection.over(reading.columns, file=self.path)
            yield projected.row(first)
            yield from map(projected.row, rows)

    def _same(self, digest: str) -> None:
        if digest != self.digest:
            raise InputChangedError(
                f"{self.path} is not the file that this run read first (sha256 {self.digest[:12]}, now "
                f"{digest[:12]}): put it back, or start a new run; this run is failed and not retried"
            )


def scan_csv(
    path: str,
    limits: Limits = DEFAULT_LIMITS,
    *,
    file: str | None = None,
    content: bytes | None = None,
    projection: Projection = WHOLE,
    delimiter: str | None = None,
) -> CsvHandle:
    """Read the whole source once, in flat memory; raises CsvError for the first thing that is wrong."""
    reading = _Reading(path, content, limits, file=file, delimiter=delimiter)
    count = sum(1 for _ in reading.rows())
    columns = projection.over(reading.columns, file=path).columns if projection else reading.columns
    return CsvHandle(
        path=path,
        columns=columns,
        count=count,
        digest=reading.digest(),
        file=file,
        content=content,
        projection=projection,
        delimiter=delimiter,
        limits=limits,
    )


def is_delimiter(said: object) -> bool:
    """Whether it can stand between the cells of a line."""
    return (
        isinstance(said, str) and len(said) == 1 and said not in _NEVER and not "\ud800" <= said <= "\udfff"
    )


def file_digest(file: str, path: str | None = None) -> str:
    """sha256 (hex) of the file's bytes; an error names it as `path`."""
    try:
        with Path(file).open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(path or file, error) from error


class _Digesting(io.RawIOBase):
    """Bytes of a source, digested as they pass."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        count = self._source.readinto(buffer) or 0
        self.sha256.update(memoryview(buffer)[:count])
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


class _Reading:
    """One pass over a source."""

    def __init__(
        self,
        path: str,
        content: bytes | None,
        limits: Limits,
        *,
        file: str | None,
        delimiter: str | None,
    ) -> None:
        self.columns: tuple[str, ...] = ()
        self._path = path
        self._file = file or path
        self._content = content
        self._limits = limits
        self._delimiter = delimiter
        self._line = 0
        self._header_line = ""
        self._row_line = 1
        self._record_chars = 0
        self._sha256: Any = None

    def digest(self) -> str:
        return self._sha256.hexdigest()

    def rows(self) -> Iterator[dict[str, str]]:
        csv.field_size_limit(self._limits.csv_field_bytes)  # one process-wide value, always the same
        raw = _Digesting(self._opened())
        self._sha256 = raw.sha256
        buffered = io.BufferedReader(raw, _CHUNK)
        with io.TextIOWrapper(buffered, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
            yield from self._records(
                csv.reader(self._lines(text), delimiter=self._delimiter or ",", strict=True)
            )

    def _opened(self) -> io.RawIOBase | io.BytesIO:
        if self._content is not None:
            return io.BytesIO(self._content)
        try:
            return io.FileIO(self._file)
        except OSError as error:
            raise _unreadable(self._path, error) from error

    def _lines(self, text: io.TextIOWrapper) -> Iterator[str]:
        limit = self._limits.row_bytes
        while line := text.readline(limit + 1):
            self._line += 1
            self._record_chars += len(line)
            if len(line) > limit:
                raise self._error(self._line, limit, f"the line is longer than {limit:,} characters")
            if self._record_chars > limit:
                raise self._error(
                    self._row_line, 1, f"the record that begins here is longer than {limit:,} characters"
                )
            if not line.isascii() or "\x00" in line:
                self._check_text(line)
            if not self.columns:
                self._header_line = line
            yield line

    def _check_text(self, line: str) -> None:
        if line.startswith("\ufeff") and self._line == self._row_line:
            raise self._error(
                self._line,
                1,
                "a byte order mark that doesn't begin the file: it was joined of several; join them without it, "
                "and without their headers",
            )
        bad = _NOT_TEXT.search(line)
        if bad is None:
            return
        if self._line == 1 and line.startswith(_UTF_16):
            raise self._error(1, 1, "the file is UTF-16: save it as UTF-8 text")
        if self._line == 1 and line.startswith(_GZIP):
            raise self._error(1, 1, "the file is packed with gzip: unpack it")
        what = (
            "a NUL byte"
            if bad.group() == "\x00"
            else f"byte 0x{ord(bad.group()) - 0xDC00:02x}, which is not UTF-8"
        )
        raise self._error(self._line, bad.start() + 1, f"{what}: save the file as UTF-8 text")

    def _records(self, reader: Any) -> Iterator[dict[str, str]]:
        while True:
            self._row_line, self._record_chars = self._line + 1, 0
            try:
                cells = next(reader, None)
            except csv.Error as error:
                if not self.columns:
                    self._refuse_other_delimiter()
                raise self._error(
                    self._row_line, 1, f"the record that begins here: {_meant(error)}"
                ) from error
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
        if len(cells) == 1:
            self._refuse_other_delimiter()
        names = tuple(cell.strip() for cell in cells)
        seen: set[str] = set()
        for position, name in enumerate(names, 1):
            if not name:
                raise self._error(self._row_line, position, "the column has no name")
            if name in seen:
                raise self._error(self._row_line, position, f'the column name "{name:.80}" appears twice')
            seen.add(name)
        return names

    def _refuse_other_delimiter(self) -> None:
        """A header without a comma whose names something else parts."""
        line = self._header_line.rstrip("\r\n")
        if self._delimiter is not None or "," in line:
            return
        for found, called in _OFTEN.items():
            if len(_split(line, found)) > 1:
                raise self._error(
                    self._row_line,
                    line.index(found) + 1,
                    f"the header has no comma, its names are parted by {called}: say "
                    f"ctx.csv(..., delimiter={found!r}), or delimiter=',' if it is one column",
                )

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


def _meant(error: csv.Error) -> str:
    """Python's words for a quote that nothing closes name no quote."""
    return "a quote is never closed" if str(error) == "unexpected end of data" else str(error)


def _split(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []
