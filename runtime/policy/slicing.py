"""How many rows make a slice: few while nothing is known, more where a dataset's rows prove cheap."""

from runtime.policy.limits import Limits


def slice_rows(*, rows_settled: int, elapsed_s: float, limits: Limits) -> int:
    """Rows per slice of the next pages. A slice costs about 15 ms of CPU whatever it holds, so cheap rows share it."""
    if not rows_settled or elapsed_s <= 0:
        return limits.slice_rows
    per_s = rows_settled / elapsed_s
    for at_least_per_s, rows in limits.cheap_slices:
        if per_s >= at_least_per_s:
            return max(rows, limits.slice_rows)
    return limits.slice_rows
