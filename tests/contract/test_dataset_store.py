"""Contract of DatasetStore."""

import pytest

from runtime.errors import AttemptLostError, PlayVersionUnavailableError
from runtime.model.dataset import NewDataset
from tests.contract.stores_world import StoresWorld


async def test_opening_again_finds_where_seeding_stands(world: StoresWorld) -> None:
    await world.held_run()
    opened = await world.opened()
    assert (opened.pages_seeded, opened.pages_total, opened.next_position, opened.input_digest) == (
        0,
        None,
        0,
        "",
    )
    assert await world.seed(opened.dataset_id, 0, ["a", "b", "a"]) == 1
    again = await world.opened()
    assert (
        again.pages_seeded,
        again.next_position,
        again.rows_seeded,
        again.duplicates,
        again.input_digest,
    ) == (
        1,
        3,
        2,
        1,
        "digest-0",
    )


async def test_a_page_is_seeded_once(world: StoresWorld) -> None:
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    await world.seed(dataset_id, 0, ["a", "b", "c", "a"])
    assert await world.seed(dataset_id, 0, ["a", "b", "c", "a"]) == 1
    assert await world.seed(dataset_id, 1, ["b", "d"]) == 1
    assert len(await world.rows(dataset_id)) == 4
    with pytest.raises(AttemptLostError):
        await world.seed(dataset_id, 5, ["x"])


async def test_seeding_is_fenced_by_the_attempt(world: StoresWorld) -> None:
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    with pytest.raises(AttemptLostError):
        await world.seed(dataset_id, 0, ["a"], attempt=2)
    with pytest.raises(AttemptLostError):
        await world.datasets.finish_seeding(dataset_id, 2)
    with pytest.raises(AttemptLostError):
        await world.opened(attempt=2)


async def test_seeding_ends_once_and_for_good(world: StoresWorld) -> None:
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    await world.seed(dataset_id, 0, ["a"])
    await world.datasets.finish_seeding(dataset_id, 1)
    await world.datasets.finish_seeding(dataset_id, 1)
    assert (await world.opened()).pages_total == 1
    with pytest.raises(AttemptLostError):
        await world.seed(dataset_id, 1, ["b"])


async def test_a_cancelled_run_takes_no_more_pages(world: StoresWorld) -> None:
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    await world.runs.cancel("r1")
    with pytest.raises(AttemptLostError):
        await world.seed(dataset_id, 0, ["a"])
    with pytest.raises(AttemptLostError):
        await world.opened()


async def test_columns_never_mix(world: StoresWorld) -> None:
    await world.held_run()
    await world.opened()
    other = NewDataset(run_id="r1", key="d", namespace="sheet", columns=("c", "x"), source_hash="h")
    with pytest.raises(PlayVersionUnavailableError):
        await world.datasets.open(other, 1, "dataset:d")


async def test_facts_are_those_of_run_and_dataset(world: StoresWorld) -> None:
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    facts = await world.datasets.facts(dataset_id)
    assert facts is not None
    assert (facts.run_id, facts.org_id, facts.play, facts.key, facts.namespace, facts.columns) == (
        "r1",
        "org",
        "play",
        "d",
        "sheet",
        ("c",),
    )
    assert await world.datasets.facts(dataset_id + 1_000) is None
    assert await world.settling.run_of(dataset_id) == "r1"
