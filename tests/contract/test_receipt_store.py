"""Contract of ReceiptStore."""

from runtime.model.call import Usage
from runtime.model.receipt import ReceiptState
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
