"""A body whose secret can't be had stops there: it meets no branch that a replay would contradict."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.body_attempt import DriveEnd
from runtime.engine.secret_values import SecretValues
from runtime.errors import SecretSilentError
from runtime.known_secrets import known_secrets
from runtime.model.run import RunState
from tests.unit.body_world import FAST, RUN, World, bridge, dataset_facts, recovery, returned_by, runner


class Source:
    """A source of secrets that may be silent or have nothing."""

    def __init__(self) -> None:
        self.is_silent = False
        self.values = {"KEY": "a-long-value"}

    async def secret(self, org_id: str, name: str, play: str) -> str | None:
        if self.is_silent:
            raise SecretSilentError("the store of secrets does not answer")
        return self.values.get(name)


async def it(ctx: Any, input: Any) -> Any:
    before = await ctx.step("before", lambda: 1)
    try:
        size = len(await ctx.secrets.get("KEY"))
    except (Exception, asyncio.CancelledError):
        size = 0
    await ctx.sleep(60)
    return [before, await ctx.step("after", lambda: size)]


def drive(world: World, source: Source) -> DriveEnd:
    """One attempt of a process of its own."""
    with bridge() as on:
        return runner(world, it, on, secrets=SecretValues((source,), FAST)).drive(RUN)


@pytest.fixture(autouse=True)
def no_secret_is_left() -> Iterator[None]:
    yield
    known_secrets.forget("org")


def test_a_silent_source_is_asked_later_live_and_replayed() -> None:
    world, source = World(), Source()
    source.is_silent = True
    assert drive(world, source) is DriveEnd.HANDED_BACK
    assert [entry.op_key for entry in world.entries] == ["step:before:0"]
    source.is_silent = False
    assert drive(world, source) is DriveEnd.WAITING
    world.sleep_until_due()
    source.is_silent = True
    assert drive(world, source) is DriveEnd.HANDED_BACK
    assert "step:after:0" not in [entry.op_key for entry in world.entries]
    source.is_silent = False
    assert drive(world, source) is DriveEnd.ENDED
    assert returned_by(world) == [1, len("a-long-value")]


def test_rows_whose_body_needs_a_silent_source_are_given_back() -> None:
    """Their columns close over what the body made of the secret."""

    async def with_rows(ctx: Any, input: Any) -> Any:
        size = len(await ctx.secrets.get("KEY"))
        return await ctx.dataset("d", [{"a": 1}]).with_column("x", lambda row, ctx: size).run()

    world, source = World(dataset_s={"d": 600.0}), Source()
    with bridge() as on:
        secrets = SecretValues((source,), replace(FAST, secret_ttl_s=0.0))
        assert runner(world, with_rows, on, secrets=secrets).drive(RUN) is DriveEnd.WAITING
        rows = recovery(world, with_rows, on, secrets=secrets)
        facts = dataset_facts(world, "d")
        source.is_silent = True
        with pytest.raises(SecretSilentError):
            rows.columns(facts)
        source.is_silent = False
        assert [column.name for column in rows.columns(facts).columns] == ["x"]


def test_a_secret_that_nobody_has_ends_the_run_whatever_the_body_makes_of_it() -> None:
    world, source = World(), Source()
    source.values.clear()
    assert drive(world, source) is DriveEnd.ENDED
    assert world.state is RunState.FAILED
    assert world.error is not None
    assert world.error["code"] == "secret_unavailable"
    assert "PLAYLANE_SECRET_KEY" in world.error["message"]
