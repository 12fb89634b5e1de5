"""How many rows to read next, so that neither small nor huge rows cost much. Pure."""

FIRST_ROWS = 8  # of unknown size: each may be as large as a row can be
_GROWTH = 8


def next_rows(*, rows_read: int, bytes_read: int, limit: int, max_bytes: int) -> int:
    """0: enough was read."""
    if rows_read >= limit or bytes_read >= max_bytes:
        return 0
    if not rows_read:
        return min(FIRST_ROWS, limit)
    average = max(1, bytes_read // rows_read)
    fits = max(1, (max_bytes - bytes_read) // average)
    return min(rows_read * _GROWTH, fits, limit - rows_read)
