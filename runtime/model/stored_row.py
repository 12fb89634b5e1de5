"""A row of a dataset as its sheet holds it."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from runtime.model.row import RowState


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """`data` and `cell_meta` are JSON text, spelled alike at every reading."""

    position: int
    row_key: str
    state: RowState
    data: str
    cell_meta: str

    @property
    def size_bytes(self) -> int:
        return len(self.data) + len(self.cell_meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rows of a dataset in input order: above position `after`, the first `skip` of them left out, at most `limit`."""

    dataset_id: int
    after: int = -1
    skip: int = 0
    limit: int
    failed: bool = False  # failed rows too
    from_end: bool = False  # the last rows, last first; `after` is of no account


def rows_digest(rows: Iterable[StoredRow]) -> str:
    """sha256 (hex) of what a reading gave."""
    sha256 = hashlib.sha256()
    for row in rows:
        for part in (str(row.position), row.data, row.cell_meta):
            sha256.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return sha256.hexdigest()
