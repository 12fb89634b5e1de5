"""A busy process gives its places to runs in turn; every message still takes one slice."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from runtime.engine.slice_turns import SliceTurns
from runtime.errors import ServiceUnreachableError
from runtime.model.slice import SUSPECTS_FROM, SliceId, SliceOfRun
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.policy.slice_turns import next_slice

LIMITS = replace(DEFAULT_LIMITS, slice_turns_from=2, slice_turns_look_s=0.0)
DATASETS = {"large": 1, "other": 2, "small": 3}


def of(run_id: str, number: int) -> SliceOfRun:
    return SliceOfRun(run_id=run_id, id=SliceId(dataset_id=DATASETS[run_id], page=0, slice=number))


@dataclass
class Process:
    """A process that holds slices, over a table of those that wait."""

    free: list[SliceOfRun]
    holds: list[SliceOfRun] = field(default_factory=list)
    is_away: bool = False
    limits: Limits = LIMITS

    def __post_init__(self) -> None:
        self.turns = SliceTurns(cast(Any, self), self, self.limits)

    def held(self) -> int:
        return len(self.holds)

    def held_by_run(self) -> Counter[str]:
        return Counter(one.run_id for one in self.holds)

    async def waiting_slices(self, datasets: int) -> Sequence[SliceOfRun]:
        if self.is_away:
            raise ServiceUnreachableError("Postgres is away")
        firsts = {one.run_id: one for one in reversed(self.free)}
        return [one for one in self.free if firsts[one.run_id] == one]

    async def take(self, run_id: str, slice_id: SliceId) -> Any:
        one = SliceOfRun(run_id=run_id, id=slice_id)
        if one not in self.free:
            return None
        self.free.remove(one)
        self.holds.append(one)
        return one

    async def message(self, one: SliceOfRun) -> SliceOfRun | None:
        return cast(SliceOfRun | None, await self.turns.take(one.run_id, one.id))


def test_the_run_that_holds_least_is_next_and_a_tie_is_the_message_s_own() -> None:
    asked, waiting = of("large", 5), [of("large", 1), of("other", 0), of("small", 0)]
    assert next_slice(asked, waiting, {"large": 20, "other": 3}) == of("small", 0)
    assert next_slice(asked, waiting, {}) == asked
    assert next_slice(asked, waiting, {"large": 2, "other": 2, "small": 2}) == asked
    assert next_slice(asked, [], {"large": 9}) == asked


async def test_a_process_with_room_takes_what_it_is_told() -> None:
    process = Process(free=[of("large", 0), of("small", 0)])
    assert await process.message(of("large", 0)) == of("large", 0)


async def test_a_busy_process_lets_the_small_run_in_before_the_large_ones_backlog() -> None:
    """Messages of two large runs stand in front of the small run's: its slice goes first all the same."""
    free = [of(run, n) for run in ("large", "other") for n in range(6)] + [of("small", 0)]
    process = Process(free=list(free))
    taken = [await process.message(one) for one in free]
    assert taken.index(of("small", 0)) < 5
    assert sorted(map(str, taken)) == sorted(map(str, free))


async def test_a_message_whose_slice_is_gone_takes_the_one_that_was_left_for_it() -> None:
    process = Process(free=[of("large", 2)], holds=[of("small", 0)])
    assert await process.message(of("small", 0)) == of("large", 2)
    assert await process.message(of("small", 0)) is None, "a doubled message finds nothing and takes nothing"


async def test_every_slice_is_taken_once_in_any_case() -> None:
    free = [of(run, n) for n in range(8) for run in ("large", "other")] + [of("small", 0)]
    process = Process(free=list(free))
    taken = [await process.message(one) for one in free]
    assert sorted(str(one) for one in taken) == sorted(map(str, free))


async def test_no_place_is_lost_when_two_gave_theirs_away_within_one_look() -> None:
    """Their messages find their slices taken, and must find both that were left: a stale look showed one."""
    large = [of("large", n) for n in range(5)]
    process = Process(
        free=[*large, of("other", 0), of("small", 0)], limits=replace(LIMITS, slice_turns_look_s=60)
    )
    messages = [*large, of("other", 0), of("small", 0)]
    taken = [await process.message(one) for one in messages]
    assert sorted(map(str, taken)) == sorted(map(str, messages))
    assert not process.free


async def test_who_loses_a_slice_to_another_process_looks_again() -> None:
    class Contended(Process):
        async def take(self, run_id: str, slice_id: SliceId) -> Any:
            if slice_id == of("large", 1).id and of("large", 1) in self.free:
                self.free.remove(of("large", 1))  # another process is faster
            return await super().take(run_id, slice_id)

    process = Contended(free=[of("large", 1), of("large", 2)])
    assert await process.message(of("small", 0)) == of("large", 2)


async def test_a_suspect_is_never_swapped() -> None:
    suspect = SliceOfRun(run_id="large", id=SliceId(dataset_id=1, page=0, slice=SUSPECTS_FROM))
    process = Process(free=[of("small", 0), suspect], holds=[of("large", 0), of("large", 1)])
    assert await process.message(suspect) == suspect
    assert await process.message(suspect) is None


async def test_if_the_table_can_t_be_read_each_message_takes_its_own() -> None:
    process = Process(free=[of("large", 2)], holds=[of("large", 0), of("large", 1)], is_away=True)
    assert await process.message(of("large", 2)) == of("large", 2)
