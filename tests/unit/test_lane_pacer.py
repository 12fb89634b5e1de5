"""The plain pacer: caps per lane and overall, turns, and tickets given back at any moment."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.plain_pacer import PlainPacer
from runtime.testing_redis import settle


async def _is_due(ticket: object) -> bool:
    task = asyncio.get_running_loop().create_task(ticket.due())  # type: ignore[attr-defined]
    await settle(3)
    if task.done():
        return True
    task.cancel()
    return False


async def test_places_are_capped_and_handed_on_in_order() -> None:
    pacer = PlainPacer(lambda _lane: 2, 10)
    tickets = [pacer.place("a") for _ in range(4)]
    assert [await _is_due(ticket) for ticket in tickets] == [True, True, False, False]
    tickets[0].free()
    tickets[0].free()
    assert [await _is_due(ticket) for ticket in tickets[2:]] == [True, False]
    assert pacer.in_use("a") == 2


async def test_a_waiting_ticket_given_back_leaves_the_line() -> None:
    pacer = PlainPacer(lambda _lane: 1, 10)
    first, second, third = [pacer.place("a") for _ in range(3)]
    second.free()
    first.free()
    assert await _is_due(third)
    third.free()
    assert pacer.in_use("a") == 0


async def test_a_busy_lane_does_not_take_the_last_places_of_all() -> None:
    pacer = PlainPacer(lambda _lane: 3, 3)
    busy = [pacer.place("a") for _ in range(6)]
    other = pacer.place("b")
    assert not await _is_due(other)
    busy[0].free()
    busy[1].free()
    assert await _is_due(other)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30)), max_size=40))
def test_no_order_of_frees_breaks_the_caps_or_leaks_a_place(steps: list[tuple[str, int]]) -> None:
    async def play() -> None:
        pacer = PlainPacer(lambda _lane: 2, 3)
        tickets = []
        for lane, n in steps:
            tickets.append(pacer.place(lane))
            tickets[n % len(tickets)].free()
            assert pacer.in_use("a") <= 2 and pacer.in_use("b") <= 2
            assert 0 <= pacer.in_use("a") + pacer.in_use("b") <= 3
        for ticket in tickets:
            ticket.free()
        assert pacer.in_use("a") == pacer.in_use("b") == 0

    asyncio.run(play())


async def test_in_one_lane_buckets_take_turns() -> None:
    pacer = PlainPacer(lambda _lane: 1, 3)
    large = [pacer.place("a", "large") for _ in range(5)]
    assert pacer.ahead("a", "small") == 1 and pacer.ahead("a", "large") == 4
    small = [pacer.place("a", "small") for _ in range(2)]
    assert pacer.waiting("a") == 6 and pacer.ahead("a", "large") == 6
    order = [large[0], large[1], small[0], large[2], small[1], large[3], large[4]]
    for ticket in order:
        assert await _is_due(ticket)
        ticket.free()
    assert pacer.in_use("a") == 0
