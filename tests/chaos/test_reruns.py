"""Runs over rows that earlier runs left: what failed, what is fresh, what is new."""

from pathlib import Path
from secrets import token_hex
from typing import Any

from runtime.client import PlayClient
from runtime.model.run import RunState
from runtime.model.status import RunStatus, SheetRow
from tests.chaos.ledger import Ledger
from tests.chaos.stack_under_test import StackUnderTest
from workers.cli.main import run

RUN_S = 60.0


def ended(client: PlayClient, run_id: str) -> RunStatus:
    status = client.wait(run_id, RUN_S)
    assert status.state is RunState.COMPLETED, status.error
    return status


def paid(stack: StackUnderTest, run_id: str) -> dict[str, int]:
    return dict(Ledger.of_run(stack.api_url, run_id).charged())


def sheet(client: PlayClient, play: str, namespace: str) -> dict[str, SheetRow]:
    return {row.row_key: row for row in client.sheet(play, namespace)}


def cells(row: SheetRow) -> dict[str, str]:
    return {name: cell["state"] for name, cell in row.cell_meta.items()}


def command(stack: StackUnderTest, monkeypatch: Any, *arguments: str) -> int:
    monkeypatch.setenv("PLAYLANE_DATABASE_URL", stack.servers.database_url)
    monkeypatch.setenv("PLAYLANE_REDIS_URL", stack.servers.redis_url)
    monkeypatch.setenv("PLAYLANE_PLAY_MODULES", "tests.chaos.rerun_plays")
    return run(arguments)


def test_one_poisoned_row_then_a_rerun_of_only_what_failed(
    stack: StackUnderTest, tmp_path: Path, monkeypatch: Any
) -> None:
    """B05: 99 rows complete, row 42 holds its error and its later column is not run. Repaired, the rerun of what failed
    sends calls for row 42 alone; then a rerun of everything sends none."""
    tag, mended = token_hex(3), tmp_path / "mended"
    sick = f"{tag}-0042"
    with stack.client(f"org-{tag}") as client:
        first = ended(client, client.enqueue("repairable", {"tag": tag, "rows": 100, "mended": str(mended)}))
        assert first.result == {"rows": 100, "completed": 99, "failed": 1}
        rows = sheet(client, "repairable", "domains")
        assert cells(rows[sick]) == {"looked_up": "failed", "again": "not_run"}
        assert rows[sick].cell_meta["looked_up"]["error"]["message"] == "ValueError: this row is poisoned"
        assert {tuple(cells(row).values()) for key, row in rows.items() if key != sick} == {
            ("completed", "completed")
        }
        (failure,) = client.failures(first.datasets[0].dataset_id)
        assert failure.row_key == sick

        mended.touch()
        repaired = f"{first.run_id}-repaired"
        assert command(
            stack, monkeypatch, "rerun", first.run_id, "--only", "failed", "--run-id", repaired
        ) in (0, None)
        status = ended(client, repaired)
        assert status.result == {"rows": 100, "completed": 100, "failed": 0}
        assert paid(stack, repaired) == {sick: 1, f"2:{sick}": 1}
        (dataset,) = status.datasets
        assert (dataset.kept, dataset.left_out, status.options) == (
            99,
            0,
            {"only": "failed", "rerun_of": first.run_id},
        )
        assert sheet(client, "repairable", "domains")[sick].data["again"] == f"v:2:{sick}"

        whole = ended(client, client.rerun(first.run_id))
        assert whole.result == {"rows": 100, "completed": 100, "failed": 0}
        assert Ledger.of_run(stack.api_url, whole.run_id).entries == []


def test_a_fresh_cell_is_taken_and_a_resolver_knows_the_one_before(stack: StackUnderTest) -> None:
    """The second run makes a forced call anew unless its cell is fresh; what was kept in the cell is alive."""
    tag = token_hex(3)
    with stack.client(f"org-{tag}") as client:
        first = ended(client, client.enqueue("fresh", {"tag": tag, "rows": 3}))
        second = ended(client, client.rerun(first.run_id))
        assert (len(paid(stack, first.run_id)), paid(stack, second.run_id)) == (3, {})
        rows = sheet(client, "fresh", "fresh_rows")
        for index, (key, row) in enumerate(sorted(rows.items())):
            assert row.data == {
                "row_id": key,
                "domain": row.data["domain"],
                "count": {"count": 2, "index": index},
                "kept": {"count": 1, "index": index},
                "paid": row.data["paid"],
                "source": "tests",
                "tenfold": None if index == 1 else 20,
                "value": f"v:{key}",
            }
            assert cells(row) == {
                "count": "completed",
                "kept": "cached",
                "paid": "cached",
                "source": "completed",
                "tenfold": "skipped" if index == 1 else "completed",
                "value": "completed",
            }
            kept, count = row.cell_meta["kept"], row.cell_meta["count"]
            assert kept["reused"] is True and kept["stale_at"] == kept["completed_at"] + 3_600_000
            assert kept["completed_at"] < count["completed_at"]
            assert row.cell_meta["paid"]["producer"] == {"kind": "tool", "id": "paid", "tool": "echo"}


def test_only_rows_not_seen_before_are_admitted(stack: StackUnderTest) -> None:
    tag = token_hex(3)
    with stack.client(f"org-{tag}") as client:
        first = ended(client, client.enqueue("only_new", {"tag": tag, "rows": 5}))
        second = ended(client, client.enqueue("only_new", {"tag": tag, "rows": 8}))
        third = ended(client, client.enqueue("only_new", {"tag": tag, "rows": 8}))
    assert [one.result for one in (first, second, third)] == [
        {"rows": 5, "completed": 5, "left_out": 0},
        {"rows": 3, "completed": 3, "left_out": 5},
        {"rows": 0, "completed": 0, "left_out": 8},
    ]
    assert set(paid(stack, second.run_id)) == {f"{tag}-{n:04d}" for n in (6, 7, 8)}
