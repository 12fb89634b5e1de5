"""Which rows of a slice are read and run together. Pure."""

from collections.abc import Iterator, Sequence

from runtime.model.row import LaterRow


def helpings(rows: Sequence[LaterRow], *, most_bytes: int) -> Iterator[list[LaterRow]]:
    """Consecutive rows of at most so many bytes together; a larger one comes alone."""
    helping: list[LaterRow] = []
    size = 0
    for row in rows:
        if helping and size + row.size_bytes > most_bytes:
            yield helping
            helping, size = [], 0
        helping.append(row)
        size += row.size_bytes
    if helping:
        yield helping
