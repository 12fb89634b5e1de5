"""What every contender is given: a CSV of items that no run has seen before."""

import csv
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ITEM_COLUMN = "item"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """`tag` begins every item of the file, so that nothing of it is cached anywhere."""

    tag: str
    rows: int
    file: Path


def write_workload(folder: Path, rows: int, tag: str | None = None) -> Workload:
    """A new file of `rows` unique items."""
    tag = tag or secrets.token_hex(4)
    file = folder / f"{tag}.csv"
    with file.open("w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow([ITEM_COLUMN])
        writer.writerows([item] for item in items_of(tag, rows))
    return Workload(tag=tag, rows=rows, file=file)


def items_of(tag: str, rows: int) -> Iterator[str]:
    return (f"{tag}-{number:07d}" for number in range(rows))


def read_items(file: Path) -> list[str]:
    """The items as a contender that isn't playlane reads them."""
    with file.open(newline="") as opened:
        return [row[ITEM_COLUMN] for row in csv.DictReader(opened)]
