"""Contract of RunStore."""

import pytest

from runtime.errors import AttemptLostError
from runtime.model.dataset import DatasetState
from runtime.model.operation import JournalEntry
from runtime.model.row import RowState
from runtime.model.run import NewRun, RunState
from runtime.ports import LogLine
from tests.contract.stores_world import StoresWorld


def entry(seq: int, key: str = "", digest: str = "g") -> JournalEntry:
    outcome = {"ok": {"big": 2**70, "f": 0.5}, "at_ms": 7}
    return JournalEntry(seq=seq, op_key=key or f"op{seq}", kind="tool", digest=digest, outcome=outcome)


async def test_a_run_is_inserted_once(world: StoresWorld) -> None:
    new = NewRun(run_id="r1", org_id="org", play="p", input={"a": [1, None]}, options={"o": True})
    assert await world.runs.insert(new)
    assert not await world.runs.insert(NewRun(run_id="r1", org_id="other", play="q", input=None))
    assert not await world.runs.refuse(new, {"code": "bad"})
    claimed = await world.runs.claim("r1", await world.session())
    assert claimed is not None
    assert (claimed.org_id, claimed.play, claimed.input, claimed.options, claimed.attempt) == (
        "org",
        "p",
        {"a": [1, None]},
        {"o": True},
        1,
    )


async def test_a_refused_run_has_ended(world: StoresWorld) -> None:
    assert await world.runs.refuse(NewRun(run_id="r1", org_id="org", play="p", input=None), {"code": "bad"})
    assert await world.runs.claim("r1", await world.session()) is None
    assert await world.runs.ended(["r1", "unknown"]) == {"r1", "unknown"}
    assert await world.runs.cancel("r1") is RunState.FAILED


async def test_a_live_holder_keeps_its_run_also_against_itself(world: StoresWorld) -> None:
    await world.held_run()
    assert await world.runs.claim("r1", "s1") is None
    assert await world.runs.claim("r1", await world.session("s2")) is None


async def test_a_dead_holder_loses_its_run(world: StoresWorld) -> None:
    await world.held_run()
    await world.session("s2")
    await world.kill("s1")
    claimed = await world.runs.claim("r1", "s2")
    assert claimed is not None
    assert claimed.attempt == 2
    with pytest.raises(AttemptLostError):
        await world.runs.poll("r1", 1)


async def test_only_a_live_session_claims(world: StoresWorld) -> None:
    await world.runs.insert(NewRun(run_id="r1", org_id="org", play="p", input=None))
    assert await world.runs.claim("r1", "never opened") is None


async def test_a_released_run_is_due_at_once(world: StoresWorld) -> None:
    await world.held_run()
    assert await world.settling.due_runs() == []
    await world.runs.release("r1", 1)
    assert await world.settling.due_runs() == ["r1"]
    assert await world.settling.due_runs() == []
    claimed = await world.runs.claim("r1", "s1")
    assert claimed is not None
    assert claimed.attempt == 2


async def test_the_journal_keeps_order_and_exact_values(world: StoresWorld) -> None:
    await world.held_run()
    await world.runs.append_journal("r1", 1, [entry(0), entry(1)])
    await world.runs.append_journal("r1", 1, [entry(2)])
    await world.runs.append_journal("r1", 1, [entry(2)])
    assert await world.runs.journal("r1") == [entry(0), entry(1), entry(2)]
    assert await world.runs.journal("r1", 1) == [entry(2)]


async def test_the_journal_is_fenced_and_all_or_none(world: StoresWorld) -> None:
    await world.held_run()
    with pytest.raises(AttemptLostError):
        await world.runs.append_journal("r1", 2, [entry(0)])
    await world.runs.append_journal("r1", 1, [entry(0)])
    with pytest.raises(AttemptLostError):
        await world.runs.append_journal("r1", 1, [entry(1), entry(0, "other")])
    assert await world.runs.journal("r1") == [entry(0)]


async def test_a_timer_wakes_its_run_once(world: StoresWorld) -> None:
    await world.held_run()
    await world.runs.arm_timer("r1", 1, "timer:0", 5)
    await world.runs.arm_timer("r1", 1, "timer:0", 500)
    assert await world.runs.poll("r1", 1) == await world.runs.poll("r1", 1)
    await world.age(6)
    poll = await world.runs.poll("r1", 1)
    assert poll.wakes == 1
    assert [(key, outcome["ok"]) for key, outcome in poll.resolved] == [("timer:0", None)]
    await world.runs.append_journal("r1", 1, [entry(0, "timer:0")])
    assert (await world.runs.poll("r1", 1)).resolved == ()


async def test_a_due_timer_of_a_suspended_run_makes_it_due(world: StoresWorld) -> None:
    await world.held_run()
    await world.runs.arm_timer("r1", 1, "timer:0", 60)
    assert await world.runs.suspend("r1", 1, 0)
    assert await world.runs.claim("r1", "s1") is None
    await world.settling.resolve_timers()
    assert await world.settling.due_runs() == []
    await world.age(61)
    await world.settling.resolve_timers()
    await world.settling.resolve_timers()
    assert await world.settling.due_runs() == ["r1"]
    claimed = await world.runs.claim("r1", "s1")
    assert claimed is not None
    assert (await world.runs.poll("r1", 2)).wakes == 1


async def test_suspension_is_refused_if_a_wait_was_resolved_meanwhile(world: StoresWorld) -> None:
    await world.held_run()
    await world.runs.arm_timer("r1", 1, "timer:0", 1)
    await world.age(2)
    await world.settling.resolve_timers()
    assert not await world.runs.suspend("r1", 1, 0)
    assert await world.runs.suspend("r1", 1, 1)
    assert not await world.runs.suspend("r1", 1, 1)


async def test_fenced_operations_refuse_an_old_attempt(world: StoresWorld) -> None:
    await world.held_run()
    with pytest.raises(AttemptLostError):
        await world.runs.arm_timer("r1", 0, "timer:0", 1)
    with pytest.raises(AttemptLostError):
        await world.runs.cancel_boundary("r1", 0, "timer:0")
    assert not await world.runs.suspend("r1", 0, 0)
    assert not await world.runs.end("r1", 0, RunState.COMPLETED, result=b"1", error=None)
    await world.runs.release("r1", 0)
    assert await world.runs.claim("r1", "s1") is None


async def test_a_given_up_timer_never_wakes(world: StoresWorld) -> None:
    await world.held_run()
    await world.runs.arm_timer("r1", 1, "timer:0", 1)
    await world.runs.cancel_boundary("r1", 1, "timer:0")
    await world.age(5)
    assert await world.runs.poll("r1", 1) == await world.runs.poll("r1", 1)
    assert (await world.runs.poll("r1", 1)).wakes == 0


async def test_a_given_up_dataset_ends_cancelled(world: StoresWorld) -> None:
    dataset_id = await world.seeded(3)
    await world.settling.claim_pages(dataset_id)
    await world.runs.cancel_boundary("r1", 1, "dataset:d")
    assert await world.dataset_state(dataset_id) is DatasetState.CANCELLED
    assert {row.state for row in (await world.rows(dataset_id)).values()} == {RowState.CANCELLED}
    assert await world.due(dataset_id, 0) == []
    assert await world.take(dataset_id, 0, 0) is None
    assert await world.settling.end_dataset(dataset_id) is None


async def test_an_ended_run_stays_as_it_ended(world: StoresWorld) -> None:
    await world.held_run()
    assert await world.runs.end("r1", 1, RunState.COMPLETED, result=b'{"x":1}', error=None)
    assert not await world.runs.end("r1", 1, RunState.FAILED, result=None, error={"code": "late"})
    assert await world.runs.cancel("r1") is RunState.COMPLETED
    assert await world.runs.claim("r1", "s1") is None
    assert await world.runs.ended(["r1"]) == {"r1"}


async def test_a_cancelled_run_ends_its_rows_but_for_those_that_are_held(world: StoresWorld) -> None:
    dataset_id = await world.seeded(3)
    await world.settling.claim_pages(dataset_id)
    taken = await world.taken(dataset_id, 0, 1)
    assert await world.runs.cancel("r1") is RunState.CANCELLED
    assert await world.runs.cancel("unknown") is None
    rows = await world.rows(dataset_id)
    assert {at for at, row in rows.items() if row.state is RowState.PENDING} == {2, 3}
    answer = await world.flush(taken, rows=1)
    assert answer.ended == {taken.id}
    assert answer.done == {taken.id}
    rows = await world.rows(dataset_id)
    assert rows[2].state is RowState.COMPLETED
    assert rows[3].state is RowState.CANCELLED


async def test_rows_of_a_cancelled_run_whose_holder_dies_are_ended_by_a_sweep(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.taken(dataset_id, 0, 0)
    await world.runs.cancel("r1")
    assert await world.settling.stale_pages("e", queue_empty=False) == []
    await world.kill("s1")
    assert await world.settling.stale_pages("e", queue_empty=False) == [("r1", dataset_id, 0)]
    assert await world.settling.settle_page(dataset_id, 0)
    assert {row.state for row in (await world.rows(dataset_id)).values()} == {RowState.CANCELLED}
    assert await world.settling.stale_pages("e", queue_empty=False) == []


async def test_a_run_is_failed_from_outside_its_body_once(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    facts = await world.runs.facts("r1")
    assert facts is not None
    assert (facts.run_id, facts.org_id, facts.play, facts.input, facts.options) == (
        "r1",
        "org",
        "play",
        {"n": 1},
        {},
    )
    assert await world.runs.fail("r1", {"code": "bad"})
    assert not await world.runs.fail("r1", {"code": "again"})
    assert await world.runs.cancel("r1") is RunState.FAILED
    assert await world.runs.facts("r1") is None
    assert await world.dataset_state(dataset_id) is DatasetState.CANCELLED
    with pytest.raises(AttemptLostError):
        await world.runs.poll("r1", 1)


async def test_a_log_line_is_stored_once(world: StoresWorld) -> None:
    await world.held_run()
    line = LogLine(scope="body", n=0, level="info", message="first", fields={"a": 1})
    await world.runs.add_logs("r1", [line])
    again = LogLine(scope="body", n=0, level="info", message="second", fields={})
    await world.runs.add_logs(
        "r1", [again, LogLine(scope="body", n=1, level="info", message="third", fields={})]
    )
    assert await world.log_messages("r1") == ["first", "third"]


async def test_queued_runs_are_hinted_once_a_sweep(world: StoresWorld) -> None:
    await world.runs.insert(NewRun(run_id="r1", org_id="org", play="p", input=None))
    assert await world.settling.due_runs() == []
    await world.age(6)
    assert await world.settling.due_runs() == ["r1"]
    assert await world.settling.due_runs() == []


async def test_a_rest_wakes_a_suspended_run_and_counts_anew_each_time(world: StoresWorld) -> None:
    await world.held_run()
    for attempt in (1, 2):
        await world.runs.rest("r1", attempt, "lane:tool:a", 60)
        await world.age(30)
        await world.runs.rest("r1", attempt, "lane:tool:a", 60)
        wakes = (await world.runs.poll("r1", attempt)).wakes
        assert await world.runs.suspend("r1", attempt, wakes)
        await world.age(45)
        await world.settling.resolve_timers()
        assert await world.runs.claim("r1", "s1") is None
        await world.age(20)
        await world.settling.resolve_timers()
        assert await world.runs.claim("r1", "s1") is not None
    with pytest.raises(AttemptLostError):
        await world.runs.rest("r1", 1, "lane:tool:a", 60)
