"""Values, files and datasets on a whole stack: kept exactly or refused with their place, and nobody else suffers."""

import csv
import json
from pathlib import Path
from secrets import token_hex
from typing import Any

from runtime.model import json_value
from runtime.model.run import RunState
from runtime.policy.sheet_views import view_name
from tests.chaos import value_plays
from tests.chaos.ledger import Ledger
from tests.chaos.stack_under_test import StackUnderTest
from workers.cli.main import run

RUN_S = 60.0


def deaths(stack: StackUnderTest) -> int:
    return sum(len(stack.endings(role)) for role in ("control", "plays", "rows", "lanes"))


def sheet(stack: StackUnderTest, run_id: str) -> dict[str, tuple[dict[str, Any], dict[str, Any], str]]:
    rows = stack.sql(
        "select row_key, data::text, cell_meta::text, state from sheet_rows where run_id = %s", run_id
    )
    return {
        key: (json_value.loads(data.encode()), json_value.loads(meta.encode()), state)
        for key, data, meta, state in rows
    }


def test_hostile_values(stack: StackUnderTest) -> None:
    """B18: every value comes back exactly or fails its own cell with its path; the neighbours in its batch, slice and
    flush don't notice; a second run is answered by the receipts, byte for byte, and sends nothing."""
    tag = token_hex(3)
    stack.control({"item_text": {f"{tag}/{name}": text for name, (text, _) in value_plays.SAID.items()}})
    before = deaths(stack)
    sheets, outputs = [], []
    with stack.client(f"org-{tag}") as client:
        for _ in range(2):
            run_id = client.enqueue("hostile_values", {"tag": tag})
            status = client.wait(run_id, RUN_S)
            assert status.state is RunState.COMPLETED, status.error
            sheets.append(sheet(stack, run_id))
            outputs.append(
                stack.sql("select key, output from receipts where org_id = %s order by key", f"org-{tag}")
            )
            assert status.result["rows"]["rows"] == len(value_plays.SAID) + len(value_plays.MADE) + 10
            if len(sheets) == 2:
                assert Ledger.of_run(stack.api_url, run_id).entries == []
    assert deaths(stack) == before
    first = sheets[0]
    for name, (_, expected) in value_plays.SAID.items():
        assert_cell(first[name], "said", expected)
    for name, (_, expected) in value_plays.MADE.items():
        assert_cell(first[name], "made", expected)
    for name in value_plays.NEIGHBOURS:
        assert first[name][0] == {
            "name": name,
            "tag": tag,
            "said": {"value": f"v:{tag}/{name}"},
            "made": name,
        }
    assert {key: row[0] for key, row in sheets[1].items()} == {key: row[0] for key, row in first.items()}
    assert outputs[0] == outputs[1]
    spelled = {bytes(output) for _, output in outputs[0] if output is not None}
    assert b'{"v":-0.0}' in {output.partition(b"\n")[0] for output in spelled}


def assert_cell(row: tuple[dict[str, Any], dict[str, Any], str], column: str, expected: Any) -> None:
    data, meta, state = row
    if isinstance(expected, tuple):
        path, words = expected
        assert (meta[column]["state"], state) == ("failed", "failed"), row
        message = meta[column]["error"]["message"]
        assert path in message and words in message and len(message) < 400, message
        assert column not in data
    else:
        assert state == "completed", meta
        assert data[column] == expected
        assert type(data[column]) is type(expected) or isinstance(expected, float)


FILES: dict[str, tuple[bytes, Any]] = {
    "bom": (b"\xef\xbb\xbfitem\nbom-1\n", 1),
    "twice": (b"email,email\nx,y\n", "line 1, column 2"),
    "blanks and twins": (b" item , Item \ntwins-1,x\n", 1),
    "short": (b"item,b,c\nshort-1\nshort-2,x\n", 2),
    "long": (b"item,b\nlong-1,x\nlong-2,x,y\n", "line 3, column 3"),
    "quoted": (b'item,b\n"quo\nted","say ""hi"""\n', 1),
    "unclosed": (b'item\nunclosed-1\n"unclosed-2\n', "line 3, column 1"),
    "crlf": (b"item\r\ncrlf-1\r\ncrlf-2\r\n", 2),
    "cr": (b"item\rcr-1\rcr-2\r", 2),
    "windows": ("item\nZ\xfcrich\n".encode("cp1252"), "line 2, column 2"),
    "utf16": ("item\nutf16\n".encode("utf-16"), "line 1, column 1"),
    "utf16 bare": ("item\nutf16\n".encode("utf-16-le"), "line 1, column 2"),
    "nul": (b"item\nnul-1\nnu\x00l\n", "line 3, column 3"),
    "empty": (b"", "the file is empty"),
    "header": (b"item,b\n", 0),
    "blank lines": (b"\n\nitem\n\nblank-1\n\n\n", 1),
    "field": (b"item,b\nfield-1," + b"x" * (1024 * 1024) + b"\n", 1),
    "too long a field": (b"item,b\nfield-2," + b"x" * (1024 * 1024 + 1) + b"\n", "line 2, column 1"),
    "formula": (b"item\n=1+1\n", 1),
    "equal rows": (b"item\nequal-1\nequal-1\n", 2),
}


def test_hostile_files(stack: StackUnderTest) -> None:
    """B19: a file is taken whole or refused with line and column before anything is called; no header is ever data."""
    tag = token_hex(3)
    folder = stack.files / tag
    folder.mkdir()
    for name, (data, _) in FILES.items():
        (folder / name).write_bytes(data)
    with stack.client(f"org-{tag}") as client:
        run_id = client.enqueue(
            "hostile_files", {"tag": tag, "folder": tag, "files": [*FILES, "absent", "../../x"]}
        )
        status = client.wait(run_id, RUN_S)
    assert status.state is RunState.COMPLETED, status.error
    told = status.result
    for name, (_, expected) in FILES.items():
        if isinstance(expected, str):
            assert expected in told[name]["refused"] and "no tool was called" in told[name]["refused"], told[
                name
            ]
        else:
            assert (told[name]["count"], told[name]["rows"]) == (expected, expected), name
    assert told["blanks and twins"]["columns"] == ["item", "Item"]
    assert "no file" in told["absent"]["refused"] and "outside the workspace" in told["../../x"]["refused"]
    asked = set(Ledger.of_run(stack.api_url, run_id).charged())
    assert asked == {
        f"{tag}/{item}"
        for item in (
            "bom-1", "twins-1", "short-1", "short-2", "quo\nted", "crlf-1", "crlf-2", "cr-1", "cr-2", "blank-1",
            "field-1", "=1+1", "equal-1",
        )
    }  # fmt: skip
    (short,) = stack.sql(
        "select data ->> 'c' from sheet_rows where run_id = %s and data ->> 'item' = 'short-1'", run_id
    )
    assert short == ("",)


def test_datasets_are_read_like_tables(stack: StackUnderTest, tmp_path: Path, monkeypatch: Any) -> None:
    """A handle in the body, in a cell, in a column and as another dataset's input; then as files and as a SQL view."""
    tag, org_id = token_hex(3), f"org{token_hex(3)}"
    with stack.client(org_id) as client:
        run_id = client.enqueue("handles", {"tag": tag, "rows": 45})
        status = client.wait(run_id, RUN_S)
    assert status.state is RunState.COMPLETED, status.error
    names = [f"{tag}/{n}" for n in range(45) if n != 3]
    result = status.result
    assert result["walked"] == names
    assert result["counts"] == [44, 44]
    assert result["last"] == [names[0], 44, f"v:{names[0]}"]
    assert [row["name"] for row in result["rows"]["preview"]] == names[:25]
    assert result["table"]["rows"] == 2
    assert result["numbers"] == [2_100, 25, 2_099, True]
    assert result["of_query"] == [2_100, 4_198, 2_099, 2_100]
    assert (result["query"]["count"], len(result["query"]["preview"])) == (2_100, 25)
    asked = [
        (page["offset"], page["page_size"])
        for entry in Ledger.of_run(stack.api_url, run_id).entries
        for item in entry["items"]
        if isinstance(item, dict) and "count" in item and (page := item.get("page"))
    ]
    assert sorted(asked) == [(25, 1_000), (1_025, 1_000), (2_025, 75), (2_099, 1)]
    assert stack.sql(
        "select data ->> 'a' from sheet_rows where run_id = %s and namespace = %s order by 1",
        run_id, result["table"]["namespace"],
    ) == [("1",), ("3",)]  # fmt: skip

    view = view_name(org_id, "handles", "first")
    stack.until(lambda: stack.sql("select to_regclass(%s) is not null", view) == [(True,)], "the view", 10)
    shown = stack.sql(
        f'select name, odd, "=f", found, _state from {view} where name in (%s, %s) order by 1',
        names[0],
        f"{tag}/3",
    )
    assert shown == [
        (names[0], "false", "=1+1", f'{{"value": "v:{names[0]}"}}', "completed"),
        (f"{tag}/3", "true", "=1+1", None, "failed"),
    ]

    monkeypatch.setenv("PLAYLANE_DATABASE_URL", stack.servers.database_url)
    monkeypatch.setenv("PLAYLANE_REDIS_URL", stack.servers.redis_url)
    monkeypatch.chdir(tmp_path)
    assert run(["export", run_id, "first"]) == 0
    with (tmp_path / f"{run_id}-first.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["name"] for row in found] == [f"{tag}/{n}" for n in range(45)]
    assert list(found[0]) == ["name", "odd", "'=f", "found"] and found[0]["'=f"] == "'=1+1"
    assert run(["export", run_id, "first", "--to", "jsonl", "--out", "x.jsonl", "--completed"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [line["name"] for line in lines] == names
    assert run(["rows", run_id, "--dataset", "second", "--limit", "2"]) == 0
