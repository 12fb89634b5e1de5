"""A query's result is read page by page, and only as far as somebody reads it."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.context.kept_cells import alive
from runtime.context.query_rows import QueryRows, query_rows
from runtime.context.tool_result import ToolResult, tool_result
from runtime.errors import DatasetReadError, PlayDefinitionError
from runtime.execution_api.exchange import ExecuteRequest, request_body
from runtime.model import json_value
from runtime.model.kept_value import plain
from runtime.model.query_page import Query, QueryPage
from runtime.policy.limits import DEFAULT_LIMITS

LIMITS = replace(DEFAULT_LIMITS, query_page_rows=4, materialize_rows=12)


def result_of(value: Any) -> ToolResult:
    return tool_result(json_value.dumps(value), tool="q")


class Provider:
    def __init__(self, total: int) -> None:
        self.total = total
        self.asked: list[tuple[int, int]] = []

    async def __call__(self, query: Query, page: QueryPage) -> ToolResult:
        self.asked.append((page.offset, page.page_size))
        assert page.total_rows == self.total
        return result_of({"rows": list(range(page.offset, min(page.offset + page.page_size, self.total)))})


def made(value: Any, provider: Provider) -> QueryRows:
    result = tool_result(json_value.dumps(value), tool="q", call="k")
    rows = query_rows(result, id="i", tool="q", input={"x": 1}, timeout_ms=None, limits=LIMITS)
    return rows.asked_by(provider, LIMITS)


def rows_of(total: int = 10, first: int = 3, limit: int | None = None) -> tuple[QueryRows, Provider]:
    dataset = {"total_rows": total} | ({} if limit is None else {"returned_limit": limit})
    provider = Provider(total)
    return made({"rows": list(range(min(first, total))), "dataset": dataset}, provider), provider


async def test_every_way_to_read() -> None:
    rows, provider = rows_of()
    assert rows.count == 10
    assert await rows.peek(2) == [0, 1] and provider.asked == []
    assert await rows.peek() == await rows.materialize() == [row async for row in rows] == list(range(10))
    assert provider.asked[:2] == [(3, 4), (7, 3)]
    assert (await rows.at(9), await rows.at(-10), await rows.at(1)) == (9, 0, 1)
    assert await rows.materialize(limit=4) == [0, 1, 2, 3]
    for index in (10, -11):
        with pytest.raises(IndexError, match="has 10 rows"):
            await rows.at(index)


async def test_what_the_tool_returns_at_most_is_the_end() -> None:
    rows, provider = rows_of(total=10, limit=5)
    assert (rows.count, [row async for row in rows]) == (5, [0, 1, 2, 3, 4])
    assert provider.asked == [(3, 2)]


async def test_a_walk_that_is_left_asks_no_more() -> None:
    rows, provider = rows_of()
    async for row in rows:
        if row == 4:
            break
    assert provider.asked == [(3, 4)]


@pytest.mark.parametrize(
    "value", [[1, 2], {"rows": [1, 2]}, {"rows": [1, 2], "dataset": {"total_rows": "many"}}]
)
async def test_a_result_without_more_is_whole(value: Any) -> None:
    provider = Provider(0)
    rows = made(value, provider)
    assert (rows.count, [row async for row in rows], provider.asked) == (2, [1, 2], [])


async def test_what_cannot_be_read_says_so() -> None:
    with pytest.raises(DatasetReadError, match="gave no rows"):
        made({"a": 1}, Provider(0))
    rows, _ = rows_of(total=13)
    with pytest.raises(DatasetReadError, match="peek would hold 13 rows"):
        await rows.peek(100)
    with pytest.raises(DatasetReadError, match="13 rows, more than 12"):
        await rows.materialize()
    with pytest.raises(PlayDefinitionError, match="whole number"):
        await rows.peek(-1)


async def test_it_is_kept_as_a_reference_and_comes_back() -> None:
    rows, provider = rows_of(total=10, first=3, limit=8)
    value, marks = plain({"found": rows})
    assert value == {"found": {"query": "i", "tool": "q", "count": 8, "rows": [0, 1, 2]}}
    stored, kept = json_value.loads(json_value.dumps(value)), json_value.loads(json_value.dumps(marks))
    back = alive(stored, kept)["found"]
    assert isinstance(back, QueryRows)
    assert back.query == rows.query and back.query.call == "k"
    assert [row async for row in back.asked_by(provider, LIMITS)] == list(range(8))
    assert plain({"found": back}) == (value, marks)


def test_a_reference_holds_few_rows_and_a_complete_result_all() -> None:
    paged = made({"rows": list(range(40)), "dataset": {"total_rows": 50}}, Provider(50))
    assert len(paged.to_json()["rows"]) == LIMITS.preview_rows == 25
    complete = made({"rows": list(range(40))}, Provider(40))
    assert complete.to_json()["rows"] == list(range(40))
    heavy = made({"rows": ["x" * LIMITS.preview_bytes], "dataset": {"total_rows": 2}}, Provider(2))
    assert heavy.to_json()["rows"] == []


async def test_outside_a_play_nobody_asks() -> None:
    rows, _ = rows_of()
    back = alive(*plain(rows))
    with pytest.raises(PlayDefinitionError, match="outside a play"):
        await back.at(9)


@pytest.mark.parametrize(("tool", "names"), [("q", 1), ("query_customer_db", 2)])
def test_a_page_travels_in_the_metadata(tool: str, names: int) -> None:
    page = QueryPage(limit=9, offset=3, page_size=4, total_rows=10)
    body = request_body(
        ExecuteRequest(
            org_id="o",
            operation=tool,
            payload=b"{}",
            idempotency_key="k",
            item_idempotency_keys=("k",),
            run_id="r",
            timeout_ms=1.0,
            page=page,
        )
    )
    metadata = json_value.loads(body)["metadata"]
    wanted = {"limit": 9, "offset": 3, "page_size": 4, "total_rows": 10}
    assert metadata["query_result_dataset"] == wanted
    assert ("customer_db_dataset" in metadata) == (names == 2)
