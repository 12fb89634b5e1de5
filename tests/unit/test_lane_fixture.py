"""Fixture mode: nothing shared with live calls, limits bypassed or kept, the same slowness each time."""

from dataclasses import replace

import pytest
from fakeredis import FakeAsyncRedis
from hypothesis import given
from hypothesis import strategies as st

from runtime.model.call import Call
from runtime.model.tool import PacingRule
from runtime.policy import identity
from runtime.policy.fixtures import response_delay_ms
from runtime.policy.identity import FIXTURE
from runtime.policy.limits import Limits
from tests.lane_stage import LIMITS, LaneStage, call, calls
from tests.pacer_fleet import VirtualFleet

SLOW = Limits(fixture_delay_ms=(200.0, 900.0))


def fixture_of(live: Call) -> Call:
    keys = identity.call_keys(
        org_id=live.org_id,
        tool=live.tool,
        input=live.input,
        auth_scope=None,
        action_version="1",
        response_revision=None,
        integration_mode=FIXTURE,
    )
    return replace(live, key=keys.receipt, idempotency_key=keys.item, integration_mode=FIXTURE)


async def test_the_same_call_live_and_as_a_fixture_in_one_window_is_two_requests_and_two_receipts() -> None:
    stage = await LaneStage().start()
    live = calls(3)
    accepted = await stage.post([*live, *(fixture_of(one) for one in live)])
    await stage.finish(accepted)
    assert sorted(
        (request.integration_mode or "", len(request.item_idempotency_keys))
        for request in stage.requests.sent
    ) == [("", 3), (FIXTURE, 3)]
    assert len(stage.receipts.stored) == 6 and stage.balanced()


def test_live_is_what_is_meant_where_nothing_is_said() -> None:
    keys = [
        identity.call_keys(
            org_id="o",
            tool="t",
            input={},
            auth_scope=None,
            action_version="1",
            response_revision=None,
            integration_mode=mode,
        )
        for mode in (None, "live", FIXTURE)
    ]
    assert keys[0] == keys[1]
    assert keys[2].receipt != keys[0].receipt and keys[2].item != keys[0].item


async def test_a_fixtures_answer_takes_its_own_time() -> None:
    stage = await LaneStage(limits=SLOW).start()
    one = fixture_of(call("i0"))
    accepted = await stage.post([one])
    await stage.clock.advance(6)
    wait_ms = response_delay_ms(stage.requests.sent[0].idempotency_key, SLOW)
    await stage.clock.advance(wait_ms - 10)
    assert not accepted.is_done
    await stage.clock.advance(20)
    assert accepted.is_done


@given(st.text(), st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)))
def test_delays_are_between_their_bounds_and_the_same_for_the_same_request(
    key: str, bounds: tuple[float, float]
) -> None:
    limits = replace(LIMITS, fixture_delay_ms=bounds)
    delay_ms = response_delay_ms(key, limits)
    assert bounds[0] <= delay_ms <= max(bounds) and delay_ms == response_delay_ms(key, limits)


@pytest.mark.parametrize(("enforced", "least_ms"), [(False, 0), (True, 3_500)])
async def test_pacing_is_bypassed_or_kept_and_never_costs_live_calls_anything(
    enforced: bool, least_ms: float
) -> None:
    async with FakeAsyncRedis() as redis:
        limits = replace(LIMITS, fixture_pacing=enforced)
        fleet = await VirtualFleet(redis, 1, [PacingRule(limit=1, per_ms=1_000)], limits=limits).start()
        pacer, live = fleet.pacers[0], fleet.scope
        fleet.scope = replace(live, is_fixture=True)
        await fleet.run(fleet.send_all(pacer, 5, 1))
        assert fleet.now_ms >= least_ms and (enforced or fleet.now_ms < 10)
        ticket = await pacer.reserve(fleet.scope, 1)
        await ticket.due()
        await ticket.limited(60_000)
        fleet.scope = live
        before_ms = fleet.now_ms
        await fleet.run(fleet.send(pacer, 1))
        assert fleet.now_ms - before_ms < 1
