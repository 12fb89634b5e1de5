"""What an author writes is checked where it is written, in words that name the play."""

import asyncio
from typing import Any

import pytest

from runtime import play
from runtime.context.dataset import DatasetBuilder, DatasetHandle, DatasetSpec, namespace_of
from runtime.errors import PlayDefinitionError, UnknownPlayError
from runtime.play import PlayRegistry, define


class Runner:
    async def run_dataset(self, spec: DatasetSpec) -> DatasetHandle:
        self.spec = spec
        return DatasetHandle.of(spec, {})


def builder(rows: Any = (), key: Any = "table") -> DatasetBuilder:
    return DatasetBuilder(Runner(), play="it", key=key, rows=rows)


def value(row: Any, ctx: Any) -> Any:
    return 1


async def test_registered_and_left_as_it_is() -> None:
    registry = PlayRegistry()

    @play("airports", registry=registry)
    async def airports(ctx: Any, input: Any) -> Any:
        return input

    found = registry.find("airports")
    assert found.function is airports
    assert found.source_file == __file__
    assert len(found.source_hash) == 32
    assert await airports(None, 3) == 3
    assert registry.names() == ("airports",)


def test_doubles_are_refused() -> None:
    registry = PlayRegistry()

    async def it(ctx: Any, input: Any) -> Any: ...

    play("it", registry=registry)(it)
    with pytest.raises(PlayDefinitionError, match="defined twice"):
        play("it", registry=registry)(it)


def test_unknown_play_lists_the_known() -> None:
    with pytest.raises(UnknownPlayError, match="it has: none"):
        PlayRegistry().find("x")


@pytest.mark.parametrize("name", ["", "two words", "a/b", 3, None])
def test_names_are_checked(name: Any) -> None:
    with pytest.raises(PlayDefinitionError, match="named by text"):
        play(name)


def test_only_async_functions_of_two() -> None:
    def plain(ctx: Any, input: Any) -> Any: ...

    async def one(ctx: Any) -> Any: ...

    async def three(ctx: Any, input: Any, more: Any) -> Any: ...

    with pytest.raises(PlayDefinitionError, match='"it" must be an async function'):
        define("it", plain)
    for function in (one, three):
        with pytest.raises(PlayDefinitionError, match="must take exactly"):
            define("it", function)


def test_source_hash_follows_the_code_where_there_is_no_file() -> None:
    def made(text: str) -> str:
        names: dict[str, Any] = {"__name__": "no_such_module"}
        exec(f"async def it(ctx, input): return {text}", names)
        return define("it", names["it"]).source_hash

    assert made("1") == made("1") != made("2")


def test_column_names_are_checked() -> None:
    for name in ("", "  ", 3, "x" * 64, "a\x00", "__playlane_key"):
        with pytest.raises(PlayDefinitionError, match='dataset "table"'):
            builder().with_column(name, value)  # type: ignore[arg-type]
    with pytest.raises(PlayDefinitionError, match='"tz" is added twice'):
        builder().with_column("tz", value).with_column(" tz ", value)


async def test_run_options_are_checked() -> None:
    with pytest.raises(PlayDefinitionError, match="has no column"):
        await builder().run()
    with pytest.raises(PlayDefinitionError, match='on_row_error is "isolate"'):
        await builder().with_column("x", value).run(on_row_error="ignore")
    for key in (3, [], [""], [3], ""):
        with pytest.raises(PlayDefinitionError, match="key is a column name"):
            await builder().with_column("x", value).run(key=key)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", ["text", b"bytes", {"a": 1}, 3, None])
def test_rows_are_an_iterable_of_rows(rows: Any) -> None:
    with pytest.raises(PlayDefinitionError, match=r"rows are what ctx\.csv or ctx\.tools\.query returned"):
        builder(rows)


def test_async_rows_are_refused_with_the_reason() -> None:
    async def rows() -> Any:
        yield {}

    with pytest.raises(PlayDefinitionError, match="can't be replayed"):
        builder(rows())


def test_a_list_is_taken_as_it_was() -> None:
    rows = [{"a": 1}]
    runner = Runner()
    made = DatasetBuilder(runner, play="it", key="t", rows=rows).with_column("x", value)
    rows.append({"a": 2})
    asyncio.run(made.run())
    assert runner.spec.rows == ({"a": 1},)


@pytest.mark.parametrize(("key", "namespace"), [("Companies", "companies"), (" My-Table 2 ", "my_table_2")])
def test_namespaces(key: str, namespace: str) -> None:
    assert namespace_of(key, "it") == namespace


@pytest.mark.parametrize("key", ["", "--", "日本", "x" * 64])
def test_keys_without_a_namespace(key: str) -> None:
    with pytest.raises(PlayDefinitionError):
        builder(key=key)
