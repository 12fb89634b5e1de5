"""`playlane rows`: which dataset, what is shown, what is written."""

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from runtime.errors import BadInputError
from runtime.model import json_value
from runtime.model.dataset import DatasetState
from runtime.model.row import RowState
from runtime.model.run import RunState
from runtime.model.status import RowFailure
from runtime.model.stored_row import StoredRow
from tests.unit.statuses import dataset_status, run_status
from workers.cli import rows
from workers.cli.datasets import choose


def row(key: str, data: dict[str, Any], **cells: Any) -> StoredRow:
    return StoredRow(
        position=0,
        row_key=key,
        state=RowState.COMPLETED,
        data=json_value.dumps(data).decode(),
        cell_meta=json_value.dumps(cells).decode(),
    )


def test_the_only_dataset_needs_no_name_and_others_are_listed() -> None:
    one, two = dataset_status(key="one"), dataset_status(key="two")
    assert choose(run_status(datasets=(one,)), None) is one
    assert choose(run_status(datasets=(one, two)), "two") is two
    assert choose(run_status(datasets=(one, two)), one.namespace) is one
    with pytest.raises(BadInputError, match="one, two; name one of them"):
        choose(run_status(datasets=(one, two)), None)
    with pytest.raises(BadInputError, match="r1 has no dataset yet: look again"):
        choose(run_status(), "one")
    with pytest.raises(BadInputError, match="r1 has no dataset and has ended"):
        choose(run_status(RunState.COMPLETED), None)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": 0, "state": DatasetState.SETTLED}, "dataset airports has no rows\n"),
        ({"rows": 0, "state": DatasetState.SEEDING}, "dataset airports has no rows yet\n"),
        ({"rows": 5}, "none of the 5 rows of dataset airports can be shown: none has ended"),
    ],
)
def test_a_dataset_without_rows_is_said_in_words(
    changes: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows.tell_rows([], dataset_status(**changes))
    assert capsys.readouterr().out.startswith(words)


def test_a_cell_without_a_value_says_its_state() -> None:
    shown = rows.table([row("k", {"a": "x" * 60}, b={"state": "not_run"})], ("a", "b"))
    console = Console(width=120, file=StringIO())
    console.print(shown)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "x" * 39 + "…" in text and "<not_run>" in text


def test_failures_name_row_column_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"column": "zone", "message": "no such place"}
    rows.tell_failures([RowFailure(position=4, row_key="EDDF", error=error)], as_json=False)
    assert capsys.readouterr().out == "row 5 (EDDF), zone: no such place\n"
    rows.tell_failures([], as_json=False)
    assert capsys.readouterr().out == "no row has failed\n"
