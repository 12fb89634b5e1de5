"""Which rows a dataset admits: new ones only, or those of a rerun; and what the sheet tells of them."""

from typing import Any

import pytest

from runtime.model import json_value
from runtime.model.cell import StoredCells
from runtime.model.dataset import DatasetMode, NewDataset, SeedPage, SeedRow
from runtime.model.row import FinishedRow, RowState
from runtime.model.run import NewRun
from runtime.model.stored_row import Stretch
from runtime.ports import RowWrite, SliceRows
from tests.contract.stores_world import StoresWorld


async def opened(
    world: StoresWorld,
    run_id: str,
    *,
    mode: DatasetMode = DatasetMode.DEFAULT,
    only: str | None = None,
    columns: tuple[str, ...] = ("c",),
) -> int:
    await world.session()
    options: dict[str, Any] = {} if only is None else {"only": only}
    await world.runs.insert(NewRun(run_id=run_id, org_id="org", play="play", input={}, options=options))
    assert await world.runs.claim(run_id, "s1") is not None
    new = NewDataset(run_id=run_id, key="d", namespace="sheet", columns=columns, source_hash="h", mode=mode)
    return (await world.datasets.open(new, 1, "dataset:d")).dataset_id


async def standing(world: StoresWorld, dataset_id: int) -> dict[int, str]:
    return {at: row.state.value for at, row in (await world.rows(dataset_id)).items()}


async def outcome(world: StoresWorld, dataset_id: int, run_id: str) -> dict[str, Any]:
    await world.datasets.finish_seeding(dataset_id, 1)
    await world.settling.claim_pages(dataset_id)
    for page in range(10):
        await world.run_page(dataset_id, page, run_id=run_id)
        await world.settling.claim_pages(dataset_id)
    assert await world.settling.end_dataset(dataset_id) is not None
    ((_, found),) = (await world.runs.poll(run_id, 1)).resolved
    return found["ok"]


async def write(world: StoresWorld, dataset_id: int, run_id: str, **rows: dict[str, Any]) -> None:
    """End the rows of page 0 with these cell metas; a failed cell fails its row."""
    await world.settling.claim_pages(dataset_id)
    for number in await world.due(dataset_id, 0):
        taken = await world.taken(dataset_id, 0, number, run_id=run_id)
        ended = [
            _row(row.position, row.row_key, rows[row.row_key]) for row in taken.rows if row.row_key in rows
        ]
        part = SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=tuple(ended), final=True)
        await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))


def _row(position: int, row_key: str, meta: dict[str, Any]) -> FinishedRow:
    errors = [cell["error"] for cell in meta.values() if cell["state"] == "failed"]
    return FinishedRow(
        position=position,
        row_key=row_key,
        state=RowState.FAILED if errors else RowState.COMPLETED,
        data=json_value.dumps({name: f"{name}:{row_key}" for name in meta}),
        cell_meta=json_value.dumps(meta),
        error=json_value.dumps(errors[0]) if errors else None,
    )


DONE = {"c": {"state": "completed", "completed_at": 1}}
FAILED = {"c": {"state": "failed", "error": {"code": "x", "message": "it broke"}}}
STALE = {"c": {"state": "completed", "completed_at": 1, "stale_at": 2}}
NEVER = {"c": {"state": "completed", "completed_at": 1, "stale_at": None}}


async def test_only_rows_that_no_run_ended_are_new(world: StoresWorld) -> None:
    first = await opened(world, "r1", mode=DatasetMode.NET_NEW)
    assert await world.seed(first, 0, ["a", "b", "a"], "r1") == 1
    await write(world, first, "r1", a=DONE, b=FAILED)
    second = await opened(world, "r2", mode=DatasetMode.NET_NEW)
    await world.seed(second, 0, ["a", "n", "b", "n"], "r2")
    await world.seed(second, 1, ["n", "a", "m"], "r2")
    assert set(await world.rows(second)) == {1, 6}
    counts = await outcome(world, second, "r2")
    assert {name: counts[name] for name in ("rows", "completed", "left_out", "duplicates", "kept")} == {
        "rows": 2,
        "completed": 2,
        "left_out": 3,
        "duplicates": 2,
        "kept": 0,
    }
    assert await world.sheet("org", "play", "sheet") == {
        "a": {"c": "c:a"},
        "b": {"c": "c:b"},
        "n": {"c": "v:n"},
        "m": {"c": "v:m"},
    }


async def test_a_row_that_another_live_run_took_is_seen_and_one_of_a_dead_run_is_not(
    world: StoresWorld,
) -> None:
    first = await opened(world, "r1", mode=DatasetMode.NET_NEW)
    await world.seed(first, 0, ["a", "b"], "r1")
    assert await world.sheet("org", "play", "sheet") == {}
    second = await opened(world, "r2", mode=DatasetMode.NET_NEW)
    await world.seed(second, 0, ["a", "c"], "r2")
    assert await standing(world, second) == {1: "pending"}
    await world.runs.cancel("r1")
    third = await opened(world, "r3", mode=DatasetMode.NET_NEW)
    await world.seed(third, 0, ["a", "b", "c"], "r3")
    assert await standing(world, third) == {0: "pending", 1: "pending"}


async def test_a_row_taken_by_one_run_takes_no_other_run_s_values(world: StoresWorld) -> None:
    """An older run in default mode writes what a newer one only took: nothing is lost if the newer one ends."""
    older = await opened(world, "r1")
    await world.seed(older, 0, ["a"], "r1")
    newer = await opened(world, "r2", mode=DatasetMode.NET_NEW)
    await world.seed(newer, 0, ["a"], "r2")
    await write(world, older, "r1", a=DONE)
    assert await world.sheet("org", "play", "sheet") == {"a": {"c": "c:a"}}
    assert not (await world.rows(older))[0].superseded


async def test_rows_that_a_page_left_away_as_doubles_are_counted(world: StoresWorld) -> None:
    dataset_id = await opened(world, "r1")
    rows = (SeedRow(position=0, row_key="a", input=b"{}"), SeedRow(position=2, row_key="b", input=b"{}"))
    page = SeedPage(
        dataset_id=dataset_id,
        run_id="r1",
        attempt=1,
        page=0,
        first_position=0,
        end_position=4,
        rows=rows,
        input_digest="x",
    )
    await world.datasets.seed_page(page)
    counts = await outcome(world, dataset_id, "r1")
    assert (counts["rows"], counts["duplicates"]) == (2, 2)


async def test_a_page_seeded_twice_takes_nothing_twice(world: StoresWorld) -> None:
    dataset_id = await opened(world, "r1", mode=DatasetMode.NET_NEW)
    for _ in range(2):
        await world.seed(dataset_id, 0, ["a", "b"], "r1")
    assert (await outcome(world, dataset_id, "r1"))["rows"] == 2


@pytest.mark.parametrize(
    ("only", "states", "left_out"),
    [
        ("failed", {0: "completed", 1: "pending", 2: "completed", 3: "completed"}, 1),
        ("missing", {0: "completed", 1: "failed", 2: "completed", 3: "completed", 4: "pending"}, 0),
        ("stale", {0: "completed", 1: "failed", 2: "pending", 3: "completed"}, 1),
    ],
)
async def test_a_rerun_takes_the_rows_that_it_names(
    world: StoresWorld, only: str, states: dict[int, str], left_out: int
) -> None:
    first = await opened(world, "r1")
    await world.seed(first, 0, ["a", "b", "c", "d"], "r1")
    await write(world, first, "r1", a=DONE, b=FAILED, c=STALE, d=NEVER)
    again = await opened(world, "r2", only=only)
    await world.seed(again, 0, ["a", "b", "c", "d"], "r2")
    await world.seed(again, 1, ["x", "a"], "r2")
    assert await standing(world, again) == states
    ended = await outcome(world, again, "r2")
    assert (ended["rows"], ended["left_out"], ended["duplicates"]) == (len(states), left_out, 1)
    assert ended["kept"] == sum(state != "pending" for state in states.values())
    assert ended["failed"] == sum(state == "failed" for state in states.values())
    assert ended["completed"] + ended["failed"] == ended["rows"]
    read = await world.reads.rows(Stretch(dataset_id=again, limit=10, failed=True))
    assert {row.position: row.state.value for row in read or ()} == {
        at: "completed" if state == "pending" else state for at, state in states.items()
    }


async def test_a_column_that_the_sheet_lacks_is_missing_and_a_scratch_one_is_not(world: StoresWorld) -> None:
    first = await opened(world, "r1")
    await world.seed(first, 0, ["a"], "r1")
    await write(world, first, "r1", a=DONE)
    scratch = await opened(world, "r2", only="missing", columns=("c", "_s"))
    await world.seed(scratch, 0, ["a"], "r2")
    added = await opened(world, "r3", only="missing", columns=("c", "new"))
    await world.seed(added, 0, ["a"], "r3")
    assert (await standing(world, scratch), await standing(world, added)) == (
        {0: "completed"},
        {0: "pending"},
    )


async def test_rows_that_stand_need_no_slice(world: StoresWorld) -> None:
    first = await opened(world, "r1")
    await world.seed(first, 0, ["a", "b", "c", "d"], "r1")
    await write(world, first, "r1", a=DONE, b=DONE, c=DONE, d=FAILED)
    again = await opened(world, "r2", only="failed")
    await world.seed(again, 0, ["a", "b", "c", "d"], "r2")
    await world.datasets.finish_seeding(again, 1)
    await world.settling.claim_pages(again)
    assert len(await world.due(again, 0)) == 1


async def test_what_the_sheet_has_of_rows_is_read_in_bounded_parts(world: StoresWorld) -> None:
    """The world reads at most 600 bytes at once: more rows come by further reads."""
    first = await opened(world, "r1")
    keys = [f"k{n}" for n in range(4)]
    await world.seed(first, 0, keys, "r1")
    big = {"c": {"state": "completed", "note": "x" * 300}}
    await write(world, first, "r1", **dict.fromkeys(keys[:3], big))
    taken = await opened(world, "r2", mode=DatasetMode.NET_NEW)
    await world.seed(taken, 0, ["n"], "r2")
    facts = await world.datasets.facts(first)
    assert facts is not None
    found = await world.slices.stored_rows(facts, [*keys, "n", "nobody"])
    assert found == {key: StoredCells(data={"c": f"c:{key}"}, cell_meta=big) for key in keys[:3]}
