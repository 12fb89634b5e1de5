"""A run's status as tables: columns that say nothing are left away."""

from typing import Any

from tests.unit.statuses import dataset_status, run_status
from workers.cli.summary import summary


def headers(**counts: Any) -> list[str]:
    (table,) = summary(run_status(datasets=(dataset_status(**counts), dataset_status("plain"))))
    return [str(column.header) for column in table.columns]


def test_counts_that_are_rare_are_shown_where_there_are_any() -> None:
    always = ["dataset", "state", "rows", "completed", "failed", "cancelled"]
    assert headers() == always
    assert headers(duplicates=1) == [*always, "duplicates"]
    assert headers(kept=2, left_out=3) == [*always, "kept", "left out"]
