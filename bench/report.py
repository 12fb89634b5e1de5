"""What a benchmark prints: a table for people and, as its last line, one JSON object."""

import json
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from bench.measuring import Measurement


def spine_numbers(rates: Mapping[str, float]) -> dict[str, float | None]:
    """The JSON object of `spine`; None for what was not measured."""
    own, celery, floor = (rates.get(name) for name in ("playlane", "celery", "floor"))
    return {
        "rows_per_s": _rounded(own, 1),
        "celery_rows_per_s": _rounded(celery, 1),
        "floor_rows_per_s": _rounded(floor, 1),
        "ratio_celery": _rounded(_ratio(own, celery), 3),
        "ratio_floor": _rounded(_ratio(own, floor), 3),
    }


def print_report(
    title: str,
    measurements: Sequence[Measurement],
    notes: Sequence[str],
    numbers: Mapping[str, float | None],
) -> None:
    """The JSON object is the last line, whatever the table needs."""
    # A pipe has no width: the table then takes what it needs.
    console = Console(width=None if Console().is_terminal else 140)
    console.print(_table(title, measurements, notes))
    print(json.dumps(numbers), flush=True)


def print_numbers(title: str, numbers: Mapping[str, float | None], notes: Sequence[str]) -> None:
    """A title, notes and, as the last line, the numbers."""
    print(title)
    for note in notes:
        print(f"  {note}")
    print(json.dumps(numbers), flush=True)


def _table(title: str, measurements: Sequence[Measurement], notes: Sequence[str]) -> Table:
    table = Table(title=title, caption="\n".join(notes), caption_justify="left", title_justify="left")
    table.add_column("contender")
    for heading in ("rows", "seconds", "rows/s", "requests", "fill", "charged"):
        table.add_column(heading, justify="right")
    table.add_column("how")
    for one in measurements:
        table.add_row(
            one.name,
            f"{one.rows:,}",
            f"{one.seconds:.2f}",
            f"{one.rows_per_s:,.0f}",
            f"{one.account.requests:,}",
            "-" if one.fill is None else f"{one.fill:.2f}",
            f"{one.account.charged:,}",
            one.setup,
        )
    return table


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
