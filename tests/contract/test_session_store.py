"""Contract of SessionStore."""

from tests.contract.stores_world import TTL_S, StoresWorld


async def test_a_session_is_renewed_until_it_is_ended(world: StoresWorld) -> None:
    await world.session("s1")
    assert await world.sessions.renew("s1", 30)
    assert await world.sessions.live(["s1", "unknown"]) == {"s1"}
    await world.sessions.close("s1")
    assert not await world.sessions.renew("s1", 30)
    assert await world.sessions.live(["s1"]) == set()


async def test_opening_again_does_not_revive(world: StoresWorld) -> None:
    await world.session("s1")
    await world.sessions.close("s1")
    await world.session("s1")
    assert await world.sessions.live(["s1"]) == set()


async def test_an_expired_session_lives_until_somebody_ends_it(world: StoresWorld) -> None:
    await world.session("s1")
    await world.age(10 * TTL_S)
    assert await world.sessions.renew("s1", TTL_S)
    await world.age(10 * TTL_S)
    assert await world.sessions.end_expired() == ["s1"]
    assert await world.sessions.end_expired() == []
    assert not await world.sessions.renew("s1", TTL_S)


async def test_an_unknown_session_cannot_be_renewed(world: StoresWorld) -> None:
    assert not await world.sessions.renew("nobody", 30)
