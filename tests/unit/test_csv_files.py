"""Which CSV a play may read, and from where: the workspace, the network, or what it was given."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.context.csv_projection import WHOLE
from runtime.context.csv_rows import CsvHandle
from runtime.context.workspace import Workspace
from runtime.engine.csv_files import CsvFiles
from runtime.engine.row_sources import RowSources
from runtime.errors import CsvError
from runtime.execution_api.egress import PublicEgress
from runtime.model import json_value
from runtime.model.run import RunState
from runtime.policy.egress import allowed_hosts
from runtime.policy.limits import DEFAULT_LIMITS
from tests.unit.body_world import World, returned_by, run_to_end
from tests.unit.raw_server import RawServer, raw_server, reply

ROWS = b"icao,name\nEDDF,Frankfurt\nKJFK,New York\n"
LIMITS = replace(DEFAULT_LIMITS, csv_url_bytes=1_000, fetch_body_ms=150.0, csv_url_s=2.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    (made / "a.csv").write_bytes(ROWS)
    return made


# ---- files


@pytest.mark.parametrize("asked", ["a.csv", "./a.csv", "deep/../a.csv"])
def test_files_of_the_workspace(folder: Path, asked: str) -> None:
    (folder / "deep").mkdir()
    workspace = Workspace.of((str(folder),))
    assert workspace.locate(asked) == workspace.locate(str(folder / "a.csv")) == folder / "a.csv"


def test_a_second_folder_is_named_by_whole_paths(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "b.csv").write_bytes(ROWS)
    workspace = Workspace.of((str(folder), str(tmp_path / "other")))
    assert workspace.locate(str(tmp_path / "other" / "b.csv")).name == "b.csv"
    with pytest.raises(CsvError, match="no file"):
        workspace.locate("b.csv")


def test_what_lies_outside_is_not_read_however_it_is_written(folder: Path, tmp_path: Path) -> None:
    beside = tmp_path / "workshop"  # begins like the workspace, and is another folder
    beside.mkdir()
    (beside / "a.csv").write_bytes(ROWS)
    (folder / "link.csv").symlink_to(beside / "a.csv")
    workspace = Workspace.of((str(folder),))
    for asked in (
        "../workshop/a.csv",
        str(beside / "a.csv"),
        "link.csv",
        "/etc/passwd",
        "~/x.csv",
        "..",
        "/",
    ):
        with pytest.raises(CsvError, match="outside the workspace"):
            workspace.locate(asked)


@pytest.mark.parametrize(
    "asked", [".env", "stack.env", ".hidden.csv", ".git/config", ".playlane/downloads/other-run/a.csv"]
)
def test_settings_are_no_tables(folder: Path, asked: str) -> None:
    (folder / asked).parent.mkdir(parents=True, exist_ok=True)
    (folder / asked).write_bytes(b"PASSWORD=x\n")
    with pytest.raises(CsvError, match="hidden or settings") as refused:
        Workspace.of((str(folder),)).locate(asked)
    assert "PASSWORD" not in str(refused.value)


def test_a_workspace_may_lie_in_a_hidden_folder(tmp_path: Path) -> None:
    (tmp_path / ".home").mkdir()
    (tmp_path / ".home" / "a.csv").write_bytes(ROWS)
    assert Workspace.of((str(tmp_path / ".home"),)).locate("a.csv").name == "a.csv"


def test_an_unknown_file_lists_the_known_ones(folder: Path) -> None:
    (folder / "b.csv").write_bytes(ROWS)
    (folder / "notes.txt").write_bytes(b"")
    with pytest.raises(CsvError, match=r"no file c\.csv .*: a\.csv, b\.csv$"):
        Workspace.of((str(folder),)).locate("c.csv")
    with pytest.raises(CsvError, match="no file"):
        Workspace.of((str(folder),)).locate(".")


def test_without_a_setting_it_is_where_the_process_was_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    assert Workspace.of(()).locate("a.csv") == folder / "a.csv"


# ---- URLs


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as served:
        yield served


@pytest.fixture
async def files(server: RawServer, folder: Path) -> AsyncIterator[CsvFiles]:
    egress = PublicEgress(allowed_hosts((f"127.0.0.1:{server.port}",)), LIMITS)
    yield CsvFiles(Workspace.of((str(folder),)), LIMITS, open_url=egress.stream)
    await egress.close()


def asked(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "shown": path.partition("?")[0], "content": None, "projection": WHOLE, **more}


async def test_a_url_is_fetched_once_a_run(server: RawServer, files: CsvFiles, folder: Path) -> None:
    server.answers["/a"] = reply(200, ROWS)
    url = f"{server.url}/a?token=canary"
    first = await files.scan("r1", asked(url))
    assert await files.scan("r1", asked(url)) == first
    assert (first["count"], first["columns"], len(server.asked)) == (2, ["icao", "name"], 1)
    assert "canary" not in str(first)
    await files.scan("r2", asked(url))
    assert len(server.asked) == 2
    kept = [path for path in (folder / ".playlane" / "downloads").rglob("*") if path.is_file()]
    assert [path.suffix for path in kept] == [".csv", ".csv"]


async def test_a_machine_that_has_not_the_file_fetches_it_again(server: RawServer, files: CsvFiles) -> None:
    server.answers["/a"] = reply(200, ROWS)
    url = f"{server.url}/a"
    found = await files.scan("r1", asked(url))
    Path(found["file"]).unlink()
    handle = CsvHandle(
        path=found["path"],
        columns=("icao", "name"),
        count=2,
        digest=found["digest"],
        url=url,
        file="/not/here.csv",
    )
    ready = await RowSources(files).ready("r1", handle)
    assert [row["icao"] for row in ready] == ["EDDF", "KJFK"]


async def test_a_redirect_is_followed_and_checked_anew(server: RawServer, files: CsvFiles) -> None:
    server.answers["/a"] = reply(302, location="/b")
    server.answers["/b"] = reply(200, ROWS)
    assert (await files.scan("r1", asked(f"{server.url}/a")))["count"] == 2
    server.answers["/in"] = reply(302, location="http://169.254.169.254/latest")
    with pytest.raises(CsvError, match="not public"):
        await files.scan("r1", asked(f"{server.url}/in"))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (reply(404, b"no"), "answered HTTP 404"),
        (reply(200, b"a\n" + b"x\n" * 600), "larger than 1,000 bytes"),
        (reply(200, b""), "the file is empty"),
        (reply(200, b"a\n1\n1,2\n"), "line 3, column 2"),
    ],
)
async def test_what_a_url_may_not_answer(
    server: RawServer, files: CsvFiles, folder: Path, answer: Any, words: str
) -> None:
    server.answers["/a"] = answer
    with pytest.raises(CsvError, match="no tool was called") as refused:
        await files.scan("r1", asked(f"{server.url}/a"))
    assert words in str(refused.value)
    assert not list(folder.rglob("*.part"))


async def test_an_answer_that_stops_coming(server: RawServer, files: CsvFiles) -> None:
    server.answers["/a"] = server.stall
    files = CsvFiles(files._workspace, replace(LIMITS, csv_url_s=0.2), open_url=files._open_url)
    with pytest.raises(CsvError, match=r"not there within|no headers"):
        await files.scan("r1", asked(f"{server.url}/a"))


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/a", "http://[::1]/a", "file:///etc/passwd", "gopher://x/a", "s3://b/a"]
)
async def test_what_is_never_fetched(folder: Path, url: str) -> None:
    files = CsvFiles(Workspace.of((str(folder),)), LIMITS, open_url=PublicEgress((), LIMITS).stream)
    with pytest.raises(CsvError, match=r"can't be fetched.*no tool was called"):
        await files.scan("r1", asked(url))


# ---- in a body


def played(input: Any, **how: Any) -> Any:
    async def it(ctx: Any, given: Any) -> Any:
        rows = await ctx.csv(**how)
        table = await ctx.dataset("t", rows).with_column("x", lambda row, ctx: 1).run()
        return [rows.count, list(rows.columns), [dict(row) for row in rows], table.rows]

    world = run_to_end(it, World(input=input), crash_at=("body.after_journal", 1))
    assert world.state is RunState.COMPLETED, world.error
    return returned_by(world)


NAMES = [{"icao": "EDDF", "name": "Frankfurt"}, {"icao": "KJFK", "name": "New York"}]


def test_the_input_file_needs_no_name(folder: Path) -> None:
    assert played({"file": str(folder / "a.csv")}) == [2, ["icao", "name"], NAMES, 2]


@pytest.mark.parametrize("content", [ROWS, ROWS.decode()])
def test_inline_content(content: Any) -> None:
    assert played({}, content=content) == [2, ["icao", "name"], NAMES, 2]


def test_an_input_file_may_be_inline() -> None:
    assert played({"file": {"name": "a.csv", "content": ROWS.decode()}}) == [2, ["icao", "name"], NAMES, 2]


def test_a_projection(folder: Path) -> None:
    how = {"rename": {"icao": "code"}, "columns": ["name", "code"], "required": ["name"]}
    rows = [{"name": "Frankfurt", "code": "EDDF"}, {"name": "New York", "code": "KJFK"}]
    assert played({"file": str(folder / "a.csv")}, **how) == [2, ["name", "code"], rows, 2]


@pytest.mark.parametrize(
    ("input", "how", "words"),
    [
        ({}, {}, 'no field "file"'),
        ([], {}, 'no field "file"'),
        ({"file": ""}, {}, "path or URL"),
        ({"file": 3}, {}, "path or URL"),
        ({"file": "a\x00b"}, {}, "path or URL"),
        ({"file": "x"}, {"path": "a.csv", "content": "a\n"}, "leave one out"),
        ({}, {"content": 3}, "text or bytes"),
        ({}, {"content": "a\n\ud800\n"}, "inline CSV, line 2, column 1: byte 0xed, which is not UTF-8"),
        ({}, {"content": "a\n1\n", "columns": "a"}, "list of column names"),
        ({}, {"content": "a\n1\n", "columns": ["a", "a"]}, "twice"),
        ({}, {"content": "a\n1\n", "columns": []}, "list of column names"),
        ({}, {"content": "a\n1\n", "rename": ["a"]}, "rename is a dict"),
        ({}, {"content": "a;b\n1;2\n"}, "ctx.csv(..., delimiter=';')"),
        ({}, {"content": "a\n1\n", "delimiter": ";;"}, "delimiter is one character"),
        ({}, {"content": "a\n1\n", "delimiter": ""}, "delimiter is one character"),
        ({}, {"content": "a\n1\n", "delimiter": '"'}, "delimiter is one character"),
        ({}, {"content": "a\n1\n", "delimiter": 3}, "delimiter is one character"),
        ({}, {"content": "a\n1\n", "rename": {"a": ""}}, "non-empty text"),
        (
            {},
            {"content": "a\n1\n", "columns": ["b"]},
            'inline CSV, line 1: there is no column "b", which columns names',
        ),
        ({}, {"content": "a\n1\n", "required": ["b"]}, "which required names; it has: a"),
        ({}, {"content": "a\n1\n", "rename": {"b": "c"}}, "which rename names"),
        ({}, {"content": "a,b\n1,2\n", "rename": {"a": "b"}}, 'would both be called "b"'),
    ],
)
def test_what_is_refused_before_anything_is_called(input: Any, how: dict[str, Any], words: str) -> None:
    async def it(ctx: Any, given: Any) -> Any:
        await ctx.csv(**how)

    world = run_to_end(it, World(input=input))
    assert world.error is not None and words in world.error["message"]


def test_a_projection_does_not_change_which_row_is_which() -> None:
    content = "id,name,extra\n1,a,x\n2,a,y\n"

    async def it(ctx: Any, input: Any) -> Any:
        whole = await ctx.csv(content=content)
        part = await ctx.csv(content=content, rename={"name": "called"}, columns=["called"])
        await ctx.dataset("whole", whole).with_column("x", lambda row, ctx: 1).run()
        await ctx.dataset("part", part).with_column("x", lambda row, ctx: 1).run()
        await ctx.dataset("keyed", part).with_column("x", lambda row, ctx: 1).run(key="id")

    world = run_to_end(it)
    assert world.error is None
    whole, part, keyed = ([row.row_key for row in page.rows] for page in world.pages)
    assert whole == part and len(set(part)) == 2
    assert keyed == ["1", "2"]
    assert [json_value.loads(row.input) for row in world.pages[1].rows] == [{"called": "a"}, {"called": "a"}]
    assert world.pages[1].input_columns == ("called",)


def test_another_projection_in_a_replay_is_named() -> None:
    seen: list[int] = []

    async def it(ctx: Any, input: Any) -> Any:
        seen.append(1)
        await ctx.csv(content="a,b\n1,2\n", columns=["a"] if len(seen) == 1 else ["b"])

    world = run_to_end(it, crash_at=("body.after_journal", 1))
    assert world.error is not None and world.error["code"] == "non_deterministic_play"
    assert "csv:inline CSV:0" in world.error["message"]


def test_one_file_read_with_two_delimiters_is_two_sheets() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        content = "a;b,c\n1;2,3\n"
        return {
            "commas": await ctx.csv(content=content),
            "semicolons": await ctx.csv(content=content, delimiter=";"),
        }

    world = run_to_end(it, crash_at=("body.after_seed_page", 1))
    assert world.error is None
    assert [json_value.loads(page.rows[0].input) for page in world.pages] == [
        {"a;b": "1;2", "c": "3"},
        {"a": "1", "b,c": "2,3"},
    ]
