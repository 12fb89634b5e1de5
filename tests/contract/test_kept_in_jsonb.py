"""What a cell keeps survives a real JSONB column: other order of names, other spelling of numbers, equal results."""

from typing import Any

import pytest

from runtime.context.kept_cells import alive_row
from runtime.context.tool_result import journal_json, journal_result
from runtime.model import json_value
from runtime.model.tool_output import Origin
from runtime.postgres_store.pool import open_pool
from tests.contract.stores_world import LIMITS
from tests.unit.test_kept_cells import found, run

pytestmark = pytest.mark.servers

DATA = {
    "z": {"b": 1e22, "a": -0.0},
    "big": 2**70,
    "ä\n": "\u2028\t",
    "list": [1.0, 1, True, None, 5e-324],
    "": {},
}


async def through_jsonb(database_url: str, *texts: bytes) -> list[Any]:
    pool = open_pool(database_url, LIMITS)
    await pool.open()
    try:
        async with pool.connection() as connection:
            asked = b"select " + b", ".join([b"%s::jsonb"] * len(texts))
            row = await (await connection.execute(asked, [text.decode() for text in texts])).fetchone()
    finally:
        await pool.close()
    assert row is not None
    return list(row)


async def test_a_cell_read_by_a_later_run_is_an_equal_result(contract_database: str) -> None:
    made = found(json_value.dumps(DATA), rest={"page": 1.50}, meta={"provider": "p", "n": 2**70})
    row = await run(("hit", lambda row, ctx: made), ("deep", lambda row, ctx: {"in": [made]}))
    data, cell_meta = await through_jsonb(contract_database, row.data, row.cell_meta)
    later = alive_row(data, cell_meta)
    for again in (later["hit"], later["deep"]["in"][0]):
        assert again == made
        assert (again.raw, again.meta, again.origin) == (made.raw, made.meta, Origin.CACHE)


async def test_a_journal_keeps_every_byte(contract_database: str) -> None:
    made = found(json_value.dumps(DATA), meta={"provider": "p"})
    (stored,) = await through_jsonb(contract_database, json_value.dumps(journal_json(made)))
    again = journal_result(stored)
    assert (again.output, again.origin, again.extracted.email) == (made.output, made.origin, None)
