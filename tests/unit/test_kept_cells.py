"""Tool results and datasets in cells: plain JSON in the sheet, alive for whoever reads it next."""

import json
from typing import Any

from runtime.context.dataset import DatasetHandle
from runtime.context.kept_cells import alive, alive_row
from runtime.context.tool_result import ToolList, ToolObject, ToolResult, tool_result
from runtime.engine.row_run import run_row
from runtime.engine.row_scope import RowScope
from runtime.engine.run_result import result_json
from runtime.engine.tool_calls import CallContext
from runtime.model import json_value
from runtime.model.kept_value import plain
from runtime.model.result_rules import ResultRules
from runtime.model.row import FinishedRow, InputRow, RowState
from runtime.model.tool_output import Origin, ResponseEnvelope, second_line
from runtime.play import Column
from runtime.policy.limits import Limits
from runtime.policy.rows_input import KeySpec, check_row

RULES = ResultRules(targets=(("email", ("b.email", "email")),), lists=("people",))
OUTPUT = json_value.dumps({"b": {"email": "x@y.example"}, "a": 1e16, "n": -0.0, "i": 2**70})
HANDLE = DatasetHandle(
    dataset="D", namespace="d", columns=("x",), rows=3, completed=2, failed=1, counts={"superseded": 1}
)


def found(output: bytes = OUTPUT, **beside: Any) -> ToolResult:
    more = second_line(ResponseEnvelope(**beside)) if beside else b""
    return tool_result(output + more, tool="find", rules=RULES)


def as_jsonb(text: bytes) -> Any:
    """What the sheet gives back: equal values, names in another order."""
    return json.loads(json.dumps(json.loads(text), sort_keys=True))


async def run(*columns: tuple[str, Any], limits: Limits | None = None) -> FinishedRow:
    scope: Any = RowScope(
        calls=None,  # type: ignore[arg-type]
        context=CallContext(org_id="o", run_id="r"),
        position=0,
        limits=limits or Limits(),
        logs=[],
    )
    row = InputRow(position=0, row_key="k", input={"name": "acme"})
    return await run_row(row, [Column(*column) for column in columns], None, scope)


async def test_a_later_column_sees_the_result_alive() -> None:
    seen: list[Any] = []
    row = await run(
        ("hit", lambda row, ctx: found(meta={"p": 1})), ("mail", lambda row, ctx: seen.append(row["hit"]))
    )
    (again,) = seen
    assert isinstance(again, ToolObject)
    assert again.output == found(meta={"p": 1}).output
    assert (again.extracted.email, again.meta, again.origin) == ("x@y.example", {"p": 1}, Origin.LIVE)
    assert row.state is RowState.COMPLETED


async def test_the_sheet_holds_plain_data_and_a_later_run_gets_it_alive() -> None:
    row = await run(
        ("hit", lambda row, ctx: found(rest={"page": 2}, meta={"p": 1})), ("plain", lambda row, ctx: [1])
    )
    assert json.loads(row.data) == {"name": "acme", "hit": json.loads(OUTPUT), "plain": [1]}
    later = alive_row(as_jsonb(row.data), as_jsonb(row.cell_meta))
    assert later["hit"] == found(rest={"page": 2}, meta={"p": 1})
    assert later["hit"].raw["page"] == 2
    assert (later["hit"].origin, later["plain"], later["name"]) == (Origin.CACHE, [1], "acme")


async def test_results_deep_in_a_value_and_datasets_come_back_too() -> None:
    seen: list[Any] = []
    value = {"a/b~c": [found(), {"list": found(b"[1,2]")}], "table": HANDLE, "n": 1}
    row = await run(("mixed", lambda row, ctx: value), ("see", lambda row, ctx: seen.append(row["mixed"])))
    stored = json.loads(row.data)["mixed"]
    assert stored["a/b~c"] == [json.loads(OUTPUT), {"list": [1, 2]}]
    assert set(json.loads(row.cell_meta)["mixed"]["kept"]) == {"/a~1b~0c/0", "/a~1b~0c/1/list", "/table"}
    for mixed in (seen[0], alive_row(as_jsonb(row.data), as_jsonb(row.cell_meta))["mixed"]):
        assert mixed["a/b~c"][0].extracted.email == "x@y.example"
        assert isinstance(mixed["a/b~c"][1]["list"], ToolList)
        assert (mixed["table"].rows, mixed["table"].namespace, mixed["n"]) == (3, "d", 1)
        assert mixed["table"].to_json() == HANDLE.to_json()


async def test_look_alikes_stay_plain_data() -> None:
    """B18: what a provider or an author writes into a value never makes it alive."""
    look_alike = {"kind": "tool_result", "tool": "find", "beside": {}, "kept": {"": {"kind": "tool_result"}}}
    seen: list[Any] = []
    row = await run(
        ("fake", lambda row, ctx: look_alike),
        ("hit", lambda row, ctx: found(json_value.dumps(look_alike))),
        ("see", lambda row, ctx: seen.extend([row["fake"], row["hit"]["kept"]])),
    )
    assert (type(seen[0]), seen[0], type(seen[1])) == (dict, look_alike, dict)
    later = alive_row(as_jsonb(row.data), as_jsonb(row.cell_meta))
    assert type(later["fake"]) is dict
    assert type(later["hit"]["kept"][""]) is dict


async def test_a_resolver_that_spoils_its_data_spoils_no_cell() -> None:
    seen: list[Any] = []

    def spoils(row: Any, ctx: Any) -> Any:
        made = found()
        made.data["b"].clear()
        return made

    row = await run(("hit", spoils), ("see", lambda row, ctx: seen.append(row["hit"].extracted.email)))
    assert json.loads(row.data)["hit"]["b"] == {"email": "x@y.example"}
    assert seen == ["x@y.example"]


async def test_what_a_cell_keeps_counts_for_its_size() -> None:
    row = await run(("hit", lambda row, ctx: found(rest={"x": "y" * 600})), limits=Limits(cell_bytes=500))
    assert row.state is RowState.FAILED
    assert "are more than a cell holds (500)" in json.loads(row.error or b"")["message"]


async def test_a_bad_value_beside_a_result_names_its_path() -> None:
    row = await run(("a", lambda row, ctx: {"hit": found(), "bad": float("nan")}))
    assert json.loads(row.error or b"")["message"].startswith("$.a.bad:")


def test_a_cycle_is_refused_not_followed() -> None:
    cycle: list[Any] = [found()]
    cycle.append(cycle)
    value, marks = plain(cycle, max_depth=20)
    assert marks
    assert isinstance(value, list)


def test_a_mark_that_leads_nowhere_changes_nothing() -> None:
    assert alive({"a": 1}, {"/b/0": {"kind": "tool_result"}, "/a": {"kind": "later"}}) == {"a": 1}


def test_what_a_play_returns_is_plain() -> None:
    text = result_json({"hit": found(), "all": [found(b"[1]"), found(b'"s"')], "table": HANDLE}, Limits())
    assert json.loads(text) == {
        "hit": json.loads(OUTPUT),
        "all": [[1], "s"],
        "table": json.loads(json_value.dumps({"kind": "dataset", **HANDLE.to_json(), "count": HANDLE.count})),
    }


def test_a_dataset_takes_results_in_its_rows() -> None:
    row = {"key": "k", "hit": found(), "rows": [found(b"[1]")]}
    cleaned = check_row(row, number=1, dataset="d", key=KeySpec(columns=("key",)), outputs=frozenset())
    assert cleaned == {"key": "k", "hit": json.loads(OUTPUT), "rows": [[1]]}
    whole = check_row(found(), number=1, dataset="d", key=KeySpec(), outputs=frozenset())
    assert whole == json.loads(OUTPUT)


def test_deep_values_come_back_and_compare() -> None:
    data: Any = {"end": found()}
    for _ in range(490):
        data = {"in": data}
    stored, marks = plain(data)
    assert len(marks) == 1
    deep: Any = 1
    for n in range(490):
        deep = {"a": deep} if n % 2 else [deep]
    assert json_value.same(deep, json_value.loads(json_value.dumps(deep)))
    again = alive(json_value.loads(json_value.dumps(stored)), marks)
    for _ in range(490):
        again = again["in"]
    assert again["end"] == found()
