"""What a dataset's end says to its body and to the run's log. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.errors import AllRowsFailedError, PlaylaneError, RowFailedError
from runtime.model.operation import OutcomeJson, completed, failed

FAILURES_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedRow:
    """A failed row and its stored error."""

    row_key: str
    error: Mapping[str, Any]

    @property
    def column(self) -> str:
        return str(self.error.get("column", ""))

    @property
    def message(self) -> str:
        return str(self.error.get("message", "no reason kept"))

    def told(self) -> str:
        where = f' in column "{self.column}"' if self.column else ""
        return f'row "{self.row_key}" failed{where}: {self.message}'


def outcome_of(
    value: dict[str, Any], first: Sequence[FailedRow], *, is_failed: bool, is_fail_fast: bool, at_ms: int
) -> OutcomeJson:
    """The outcome of an ended dataset with these counts; `first` are its first failed rows in input order."""
    if not is_failed:
        return completed(value, at_ms=at_ms)
    error = _row_failed(value, first) if is_fail_fast else _all_rows_failed(value, first)
    payload = {**error.to_payload(), "type": type(error).__name__}
    return failed({**value, **payload}, at_ms=at_ms)


def failure_lines(value: Mapping[str, Any], first: Sequence[FailedRow]) -> list[str]:
    """The first failed rows as lines for the log of their run, the rest as a number."""
    told = [row.told() for row in first[:FAILURES_NAMED]]
    rest = int(value["failed"]) - len(told)
    if told and rest > 0:
        told.append(f"{rest:,} more rows failed")
    return [f'dataset "{value["dataset"]}": {text}' for text in told]


def _row_failed(value: Mapping[str, Any], first: Sequence[FailedRow]) -> PlaylaneError:
    row = first[0] if first else FailedRow(row_key="", error={})
    return RowFailedError(
        f'dataset "{value["dataset"]}": {row.told()}; under on_row_error="fail" it ended the dataset: '
        f"{value['completed']:,} rows are completed and kept, {value['cancelled']:,} were not run",
        dataset=str(value["dataset"]),
        row_key=row.row_key,
        column=row.column,
        error=dict(row.error),
    )


def _all_rows_failed(value: Mapping[str, Any], first: Sequence[FailedRow]) -> PlaylaneError:
    rest = int(value["failed"]) - len(first)
    named = "; ".join(row.told() for row in first) + (f"; and {rest:,} more" if rest > 0 else "")
    return AllRowsFailedError(
        f'all {value["rows"]:,} rows of dataset "{value["dataset"]}" failed; what they have stays for the next run. '
        f"First: {named}"
    )
