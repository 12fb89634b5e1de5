"""Contract of ReceiptStore."""

from runtime.model.call import ANY_AGE, Usage
from runtime.model.receipt import ReceiptState
from runtime.policy import freshness
from tests.contract.stores_world import StoresWorld, receipt

FAILED = {"state": ReceiptState.FAILED, "output": None, "error": {"code": "x"}}


async def test_outcomes_are_stored_and_read_byte_for_byte(world: StoresWorld) -> None:
    one = receipt("a", output=b'{"b": 1, "a":2.50}')
    two = receipt(
        "b", state=ReceiptState.UNKNOWN, output=None, error={"code": "y", "big": 2**70}, terminal=True
    )
    assert await world.receipts.commit("s1", [one, two], []) == {"a": one, "b": two}
    assert await world.receipts.read(["a", "b", "c"]) == {"a": one, "b": two}


async def test_a_completed_receipt_stays_and_is_served(world: StoresWorld) -> None:
    first = receipt("a", fence=1)
    await world.receipts.commit("s1", [first], [])
    late = receipt("a", fence=9, output=b"2")
    other = receipt("b")
    assert await world.receipts.commit("s2", [late, other], []) == {"a": first, "b": other}


async def test_a_failed_receipt_gives_way_but_not_to_an_older_fence(world: StoresWorld) -> None:
    failed = receipt("a", fence=5, **FAILED)
    await world.receipts.commit("s1", [failed], [])
    older = receipt("a", fence=4)
    assert await world.receipts.commit("s1", [older], []) == {"a": failed}
    newer = receipt("a", fence=5)
    assert await world.receipts.commit("s1", [newer], []) == {"a": newer}


async def test_many_large_receipts_are_read_page_by_page(world: StoresWorld) -> None:
    stored = {f"k{n}": receipt(f"k{n}", output=b'"' + b"x" * 250 + b'"') for n in range(10)}
    huge = receipt("huge", output=b'"' + b"y" * 5_000 + b'"')
    await world.receipts.commit("s1", [*stored.values(), huge], [])
    assert await world.receipts.read(["nothing", "huge", *stored]) == stored | {"huge": huge}
    assert await world.receipts.read([]) == {}


async def test_usage_is_summed_by_run_and_tool(world: StoresWorld) -> None:
    usage = Usage(run_id="r1", tool="t", items=3, batches=1, capacity=10, credits=0.5)
    await world.held_run()
    await world.receipts.commit("s1", [receipt("a")], [usage, usage])
    await world.receipts.commit("s2", [], [usage])
    assert await world.usage_items("r1") == 9


async def test_the_same_key_twice_in_one_commit(world: StoresWorld) -> None:
    done, failed = receipt("a"), receipt("a", **FAILED)
    assert await world.receipts.commit("s1", [done, failed], []) == {"a": done}


async def test_a_mark_is_taken_back_only_by_its_session_fence_and_before_its_outcome(
    world: StoresWorld,
) -> None:
    mark = receipt("a", fence=5, state=ReceiptState.DISPATCHED, output=None)
    done = receipt("b", fence=5)
    await world.receipts.commit("s1", [mark, done], [])
    await world.receipts.unmark("s1", [receipt("a", fence=4), done])
    assert await world.receipts.read(["a", "b"]) == {"a": mark, "b": done}
    await world.receipts.unmark("s1", [mark])
    await world.receipts.unmark("s1", [mark])
    assert await world.receipts.read(["a", "b"]) == {"b": done}
    await world.receipts.unmark("s1", [])


async def test_a_mark_gives_way_to_its_outcome_and_to_a_newer_mark(world: StoresWorld) -> None:
    mark = receipt("a", fence=5, state=ReceiptState.DISPATCHED, output=None)
    await world.receipts.commit("s1", [mark], [])
    newer = receipt("a", fence=7, state=ReceiptState.DISPATCHED, output=None)
    assert await world.receipts.commit("s2", [newer], []) == {"a": newer}
    assert await world.receipts.commit("s1", [mark], []) == {"a": newer}
    unknown = receipt(
        "a", fence=7, state=ReceiptState.UNKNOWN, output=None, error={"code": "u"}, terminal=True
    )
    assert await world.receipts.commit("s2", [unknown], []) == {"a": unknown}
    assert freshness.answers(unknown, run_id="another run", accepts=ANY_AGE)
    assert not freshness.answers(mark, run_id="r1", accepts=ANY_AGE)


async def test_a_completed_receipt_is_replaced_by_a_newer_refresh_only(world: StoresWorld) -> None:
    old = receipt("a", fence=5)
    await world.receipts.commit("s1", [old], [])
    same = receipt("a", fence=5, output=b"2", refreshes=True)
    assert await world.receipts.commit("s2", [same], []) == {"a": old}
    failed = receipt("a", fence=6, **FAILED, refreshes=True)
    assert await world.receipts.commit("s2", [failed], []) == {"a": old}
    newer = receipt("a", fence=7, output=b"3", refreshes=True)
    other = receipt("b", fence=7, output=b"4")
    assert await world.receipts.commit("s2", [newer, other], []) == {"a": newer, "b": other}
    late = receipt("a", fence=6, output=b"5", refreshes=True)
    assert await world.receipts.commit("s1", [late], []) == {"a": newer}
    assert await world.receipts.read(["a"]) == {"a": newer}


async def test_a_receipt_tells_when_it_was_made_by_the_clock_of_the_run_s_epoch(world: StoresWorld) -> None:
    await world.receipts.commit("s1", [receipt("before")], [])
    claimed = await world.held_run()
    await world.receipts.commit("s1", [receipt("after")], [])
    stored = await world.receipts.read(["before", "after"])
    before_ms, after_ms = stored["before"].produced_ms, stored["after"].produced_ms
    assert before_ms is not None and after_ms is not None
    assert 0 < before_ms <= claimed.epoch_ms <= after_ms
    dataset_id = (await world.opened()).dataset_id
    facts = await world.datasets.facts(dataset_id)
    assert facts is not None and facts.epoch_ms == claimed.epoch_ms


async def test_a_slice_carries_its_run_s_epoch(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    taken = await world.taken(dataset_id, 0, 0)
    assert taken.facts == await world.datasets.facts(dataset_id) and taken.facts.epoch_ms > 0
