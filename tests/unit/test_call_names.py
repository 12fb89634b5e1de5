"""Names that an author gives: one that can't be stored fails its own row, before anything is asked or paid."""

from typing import Any

import pytest

from runtime.play import PlayRegistry, play
from runtime.testing.plays import run_play

registry = PlayRegistry()
BAD = ("a\ud800b", "a\x00b", "x" * 2_000_000, " ", "")


@play("named", registry=registry)
async def named(ctx: Any, input: Any) -> Any:
    async def value(row: Any, ctx: Any) -> Any:
        if row["n"] == 0 and input["what"] == "event":
            return await ctx.wait_for_event("asked", key=input["name"])
        name = input["name"] if row["n"] == 0 else "fine"
        return await ctx.tools.execute(id=name, tool="echo", input={"n": row["n"]})

    rows = [{"n": n} for n in range(3)]
    made = await ctx.dataset("rows", rows).with_column("value", value).run(key="n")
    return {"completed": made.completed, "failed": made.failed}


@pytest.mark.parametrize(
    ("what", "name"),
    [*(("call", name) for name in BAD), *(("event", name) for name in BAD if name != " ")],
    ids=lambda given: repr(given)[:20],
)
def test_a_name_that_can_t_be_stored_fails_its_row_alone(what: str, name: str) -> None:
    """Half a surrogate in the id of one row's call used to end its run, and the neighbours of its slice with it."""
    asked: list[Any] = []

    def echo(given: Any) -> Any:
        asked.append(given["n"])
        return given

    outcome = run_play("named", {"what": what, "name": name}, tools={"echo": echo}, registry=registry)
    assert outcome.result == {"completed": 2, "failed": 1}
    assert sorted(asked) == [1, 2]
