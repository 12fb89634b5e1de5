"""The pure parts of the benchmarks: workloads, the ledger's account, rates and the last line."""

from pathlib import Path
from typing import Any

import pytest

from bench.contenders.floor import chunks
from bench.ledger import Account, account_of, complaint
from bench.measuring import Measurement, median
from bench.report import print_report, spine_numbers
from bench.workload import Workload, items_of, read_items, write_workload


def entry(items: list[str], *, charged: list[str] | None = None, status: int = 200) -> dict[str, Any]:
    charged = items if charged is None else charged
    return {"status": status, "items": items, "charged": len(charged), "charged_items": charged}


def measurement(
    *, batch_size: int = 100, requests: int = 2, items: int = 150, seconds: float = 0.5
) -> Measurement:
    account = Account(requests=requests, items=items, charged=items, charged_items=(), refused=0)
    return Measurement(
        name="playlane", setup="how", rows=items, batch_size=batch_size, seconds=seconds, account=account
    )


def test_a_written_workload_reads_back_and_repeats_no_item(tmp_path: Path) -> None:
    one, other = write_workload(tmp_path, 250), write_workload(tmp_path, 250)
    assert read_items(one.file) == list(items_of(one.tag, 250))
    assert len({*read_items(one.file), *read_items(other.file)}) == 500


def test_chunks_keep_every_item_in_order() -> None:
    items = [str(number) for number in range(205)]
    parts = list(chunks(items, 100))
    assert [len(part) for part in parts] == [100, 100, 5]
    assert [item for part in parts for item in part] == items


def test_refused_requests_are_no_work() -> None:
    account = account_of([entry(["a", "b"]), entry(["c"], charged=[]), entry(["d"], charged=[], status=429)])
    assert (account.requests, account.items, account.charged, account.refused) == (2, 3, 2, 1)


@pytest.mark.parametrize(
    ("charges", "words"),
    [
        ([["0000000", "0000001", "0000002"]], None),
        ([["0000000", "0000001"], ["0000001", "0000002"]], "1 more than once, 0 never, 0 unknown"),
        ([["0000000", "0000001"]], "0 more than once, 1 never, 0 unknown"),
        ([["0000000", "0000001", "0000002", "other"]], "0 more than once, 0 never, 1 unknown"),
    ],
)
def test_what_was_not_paid_exactly_once_is_told(charges: list[list[str]], words: str | None) -> None:
    workload = Workload(tag="t", rows=3, file=Path("unread.csv"))
    told = complaint(account_of(entry([f"t-{item}" for item in items]) for items in charges), workload)
    assert told is None if words is None else told is not None and words in told


def test_fill_counts_items_against_room_and_says_nothing_of_single_calls() -> None:
    assert measurement().fill == 0.75
    assert measurement(batch_size=1).fill is None
    assert measurement(requests=0).fill is None


@pytest.mark.parametrize(
    ("seconds", "middle"),
    [([2.0], 2.0), ([3.0, 1.0, 2.0], 2.0), ([1.0, 2.0], 2.0), ([4.0, 1.0, 3.0, 2.0], 3.0)],
)
def test_the_median_is_the_slower_of_an_even_number(seconds: list[float], middle: float) -> None:
    assert median([measurement(seconds=one) for one in seconds]).seconds == middle


def test_ratios_are_against_each_peer() -> None:
    assert spine_numbers({"playlane": 3000.0, "celery": 300.0, "floor": 6000.0}) == {
        "rows_per_s": 3000.0,
        "celery_rows_per_s": 300.0,
        "floor_rows_per_s": 6000.0,
        "ratio_celery": 10.0,
        "ratio_floor": 0.5,
    }


def test_what_was_not_measured_is_null() -> None:
    numbers = spine_numbers({"floor": 6000.0})
    assert numbers["floor_rows_per_s"] == 6000.0
    assert [numbers[name] for name in ("rows_per_s", "ratio_celery", "ratio_floor")] == [None, None, None]


def test_the_last_line_is_the_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    print_report("title", [measurement()], ["a note"], {"rows_per_s": 300.0, "ratio_floor": None})
    printed = capsys.readouterr().out
    assert printed.splitlines()[-1] == '{"rows_per_s": 300.0, "ratio_floor": null}'
    assert "a note" in printed
    assert "0.75" in printed
