"""`playlane purge`: delete what old runs left behind."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from runtime.errors import BadInputError
from runtime.model.purged import Purged
from workers.cli.connection import sender_settings
from workers.cli.options import AsJson
from workers.cli.terminal import say, say_json

UNITS_S = {"h": 3_600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"(\d{1,5})([hdw])")


def purge(
    older_than: Annotated[
        str, typer.Option(help="Age of runs since they ended, such as 12h, 30d or 8w.")
    ] = "30d",
    receipts_older_than: Annotated[
        str,
        typer.Option(help="Delete receipts of that age too: their calls are paid again when asked again."),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete runs that ended long ago with their rows, journals and logs; live runs and sheets are never touched.

    Safe to stop and to repeat, while workers work.
    """
    older_s = age_s(older_than, "--older-than")
    receipts_s = age_s(receipts_older_than, "--receipts-older-than") if receipts_older_than else None
    from runtime.postgres_store.purge import Purge
    from workers.configuration import limits_of

    settings = sender_settings()
    work = Purge(settings.database_url.get_secret_value(), limits_of(settings))
    expected = work.count(older_s)
    if dry_run:
        receipts = 0 if receipts_s is None else work.count_receipts(receipts_s)
        _tell(replace(expected, receipts=receipts), "would be deleted", as_json)
        return
    total = _followed("runs", expected.runs, work.runs(older_s), quiet=as_json)
    if receipts_s is not None:
        gone = _followed("receipts", None, work.receipts(receipts_s), quiet=as_json)
        total = Purged(runs=total.runs, rows=total.rows, receipts=gone.receipts)
    _tell(total, "deleted", as_json)


def age_s(text: str, option: str) -> float:
    """Seconds of `30d`; raises BadInputError."""
    found = _AGE.fullmatch(text.strip())
    if found is None or int(found[1]) == 0:
        raise BadInputError(f"{option} {text!r}: write a number and h, d or w, such as 12h, 30d or 8w")
    return float(int(found[1]) * UNITS_S[found[2]])


def _followed(what: str, most: int | None, steps: Iterator[Purged], *, quiet: bool) -> Purged:
    runs = rows = receipts = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, disable=quiet, transient=True) as progress:
        task = progress.add_task(what, total=most)
        for step in steps:
            runs, rows, receipts = runs + step.runs, rows + step.rows, receipts + step.receipts
            progress.update(task, completed=runs or receipts)
    return Purged(runs=runs, rows=rows, receipts=receipts)


def _tell(found: Purged, verb: str, as_json: bool) -> None:
    if as_json:
        say_json({"runs": found.runs, "rows": found.rows, "receipts": found.receipts, "verb": verb})
    else:
        also = f" and {found.receipts:,} receipts" if found.receipts else ""
        say(f"{found.runs:,} runs with {found.rows:,} rows{also} {verb}")
