"""Plays over hostile values and files, and over datasets that read each other."""

import datetime
import decimal
from typing import Any

from runtime import play
from runtime.errors import CsvError

DEEP = 2_000
LONG = 2 * 1024 * 1024


def deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


async def forgotten() -> None: ...


# What a provider says, word for word; what the cell holds, or the path and the reason of its refusal.
SAID: dict[str, tuple[str, Any]] = {
    "nan": ('{"v":[1,NaN]}', ("$.v[1]", "not a finite number")),
    "infinity": ('{"v":Infinity}', ("$.v", "not a finite number")),
    "minus infinity": ('{"v":-Infinity}', ("$.v", "not a finite number")),
    "1e400": ('{"v":{"w":1e400}}', ("$.v.w", "not a finite number")),
    "minus zero": ('{"v":-0.0}', {"v": -0.0}),
    "2**53+1": ('{"v":9007199254740993}', {"v": 9007199254740993}),
    "2**70": ('{"v":1180591620717411303424}', {"v": 2**70}),
    "endless": ('{"v":' + "1" * 5_000 + "}", ("$.v", "a number of 5,000 digits")),
    "nul": ('{"v":"a\\u0000b"}', ("$.v", "NUL")),
    "nul in a name": ('{"a\\u0000b":1}', ("$", "NUL")),
    "half a pair": ('{"v":"\\ud800"}', ("$.v", "half of a surrogate pair")),
    "a pair": ('{"v":"\\ud83d\\ude00"}', {"v": "\N{GRINNING FACE}"}),
    "deep": ('{"v":' + "[" * DEEP + "]" * DEEP + "}", ("$.v[0][0]", "[0]: nested too deeply")),
    "twice": ('{"v":{"k":1,"k":2}}', ("$.v", "the name 'k' stands twice")),
    "envelope": ('{"__type__":"datetime","value":"x"}', {"__type__": "datetime", "value": "x"}),
    "long": ('{"v":"' + "x" * LONG + '"}', ("$.said.v", "more than a cell holds (1,048,576)")),
    "scalar": ("7", 7),
    "nothing": ("null", None),
}

# What a resolver returns.
MADE: dict[str, tuple[Any, Any]] = {
    "made nan": ({"v": [1.0, float("nan")]}, ("$.made.v[1]", "not a finite number")),
    "made infinity": (float("inf"), ("$.made", "not a finite number")),
    "made minus zero": (-0.0, -0.0),
    "made 2**70": ([2**70, -(2**63) - 1], [2**70, -(2**63) - 1]),
    "made 2**53+1": (9007199254740993, 9007199254740993),
    "made endless": (10**5_000, ("$.made", "more than 4,000 digits")),
    "made nul": ("a\x00b", ("$.made", "NUL")),
    "made half a pair": ({"\ud800": 1}, ("$.made", "half of a surrogate pair")),
    "made deep": (deep(DEEP), ("$.made[0][0]", "[0]: nested too deeply")),
    "made long": ({"a": 1, "b": ["x" * LONG]}, ("$.made.b[0]", "more than a cell holds")),
    "made integer keys": ({1: "a"}, ("$.made", "a key is int, not text")),
    "made aware": (
        [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)],
        ("$.made[0]", "datetime is not a JSON value: write value.isoformat()"),
    ),
    "made naive": (datetime.datetime(2026, 1, 1), ("$.made", "datetime is not a JSON value")),
    "made decimal": (decimal.Decimal("1.10"), ("$.made", "Decimal is not a JSON value")),
    "made bytes": ({"v": b"x"}, ("$.made.v", "bytes is not a JSON value")),
    "made set": ({1, 2}, ("$.made", "set is not a JSON value")),
    "made envelope": ({"__type__": "set", "items": [1]}, {"__type__": "set", "items": [1]}),
    "made tuple": ((1, (2,)), [1, [2]]),
    "made coroutine": (forgotten, ("$.made", "never awaited")),
}
NEIGHBOURS = tuple(f"neighbour {n}" for n in range(10))


async def said(row: Any, ctx: Any) -> Any:
    """What the provider says about the row's name."""
    return await ctx.tools.execute(id="said", tool="echo", input={"item": f"{row['tag']}/{row['name']}"})


def made(row: Any, ctx: Any) -> Any:
    value = MADE.get(row["name"], (row["name"],))[0]
    return [forgotten()] if value is forgotten else value


@play("hostile_values")
async def hostile_values(ctx: Any, input: Any) -> Any:
    """Rows that differ in what is said and made of them."""
    rows = [{"name": name, "tag": input["tag"]} for name in (*SAID, *MADE, *NEIGHBOURS)]
    return (
        await ctx.dataset("values", rows).with_column("said", said).with_column("made", made).run(key="name")
    )


@play("hostile_files")
async def hostile_files(ctx: Any, input: Any) -> Any:
    """One dataset a file; what is refused is told and no more."""
    told: dict[str, Any] = {}
    for name in input["files"]:
        try:
            rows = await ctx.csv(f"{input['folder']}/{name}")
        except CsvError as error:
            told[name] = {"refused": str(error)}
            continue
        first = rows.columns[0]
        done = await (
            ctx.dataset(name, rows)
            .with_column(
                "out",
                lambda row, ctx, first=first: ctx.tools.execute(
                    id="out", tool="echo", input={"item": f"{input['tag']}/{row[first][:100]}"}
                ),
            )
            .run(on_row_error="isolate")
        )
        told[name] = {
            "count": rows.count, "rows": done.rows + done.counts["duplicates"], "columns": list(rows.columns)
        }  # fmt: skip
    return told


@play("handles")
async def handles(ctx: Any, input: Any) -> Any:
    """A dataset that is read in the body, in another's rows, and as another's input."""
    rows = [{"name": f"{input['tag']}/{n}", "odd": n % 2 == 1, "=f": "=1+1"} for n in range(input["rows"])]

    async def found(row: Any, ctx: Any) -> Any:
        if row["name"].endswith("/3"):
            raise ValueError("not this one")
        return await ctx.tools.execute(id="found", tool="echo", input={"item": row["name"]})

    async def first_of(row: Any, ctx: Any) -> Any:
        return (await first.at(0))["name"]

    first = await ctx.dataset("first", rows).with_column("found", found).run(key="name")
    walked = [row["name"] async for row in first]
    second = await (
        ctx.dataset("second", first)
        .with_column("first", first_of)
        .with_column("kept", lambda row, ctx: {"table": first})
        .with_column("peeked", lambda row, ctx: row["kept"]["table"].peek(1))
        .run(key="name")
    )
    numbers = await ctx.tools.query(id="numbers", tool="query_numbers", input={"count": 2_100})
    doubled = await (
        ctx.dataset("doubled", numbers).with_column("twice", lambda row, ctx: row["n"] * 2).run(key="n")
    )
    kept = await (
        ctx.dataset("kept", [{"name": input["tag"]}])
        .with_column("numbers", lambda row, ctx: numbers)
        .with_column("last", lambda row, ctx: row["numbers"].at(-1))
        .run(key="name")
    )
    known = await kept.at(0)
    last = await second.at(-1)
    return {
        "rows": second,
        "walked": walked,
        "counts": [first.count, second.count],
        "last": [
            last["first"],
            len(await last["kept"]["table"].materialize()),
            last["peeked"][0]["found"]["value"],
        ],
        "numbers": [
            numbers.count,
            len(await numbers.peek()),
            (await numbers.at(-1))["n"],
            [row["n"] async for row in numbers] == list(range(2_100)),
        ],
        "of_query": [
            doubled.count,
            (await doubled.at(-1))["twice"],
            known["last"]["n"],
            len([row async for row in known["numbers"]]),
        ],
        "query": numbers,
        "table": await ctx.csv(content="a,b\n1,2\n3,4\n"),
    }
