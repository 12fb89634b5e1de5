"""Columns as they are declared: constants, options, what their functions take, and what is refused at once."""

from collections.abc import Iterable
from typing import Any

import pytest

from runtime.context.dataset import DatasetBuilder, DatasetHandle, DatasetSpec
from runtime.errors import PlayDefinitionError
from runtime.model.dataset import DatasetMode
from runtime.play import Column

HERE = 'play "it", dataset "table"'


class Runner:
    spec: DatasetSpec

    async def run_dataset(self, spec: DatasetSpec) -> DatasetHandle:
        self.spec = spec
        return DatasetHandle.of(spec, {})


def builder(runner: Runner | None = None) -> DatasetBuilder:
    return DatasetBuilder(runner or Runner(), play="it", key="table", rows=[{"a": 1}])


def value(row: Any, ctx: Any) -> int:
    return 1


async def columns_of(made: DatasetBuilder, runner: Runner) -> dict[str, Column]:
    await made.run()
    return {column.name: column for column in runner.spec.columns}


class Program:
    """Stands for a step program."""

    def as_columns(self) -> Iterable[Column]:
        return [Column("first", value), Column("second", 2)]

    def as_column(self, name: str) -> Column:
        return Column(name, value, run_if=lambda row: True, otherwise="no")


@pytest.mark.parametrize("constant", ["text", 3, None, {"a": [1]}, [], True])
async def test_a_constant_is_a_column(constant: Any) -> None:
    runner = Runner()
    made = await columns_of(builder(runner).with_column("c", constant), runner)
    assert (made["c"].resolver, made["c"].shape) == (constant, None)


@pytest.mark.parametrize("constant", [b"bytes", {1: 2}, {3}, float("nan"), object()])
def test_a_constant_is_a_json_value(constant: Any) -> None:
    with pytest.raises(PlayDefinitionError, match=f'{HERE}: column "c" is a resolver .* or a constant'):
        builder().with_column("c", constant)


async def test_several_columns_at_once_from_a_dict_or_a_program() -> None:
    runner = Runner()
    made = await columns_of(
        builder(runner).with_columns({"x": value, "y": 5}).with_columns(Program()), runner
    )
    assert list(made) == ["x", "y", "first", "second"]
    with pytest.raises(PlayDefinitionError, match=r"with_columns takes steps\(\) or a dict"):
        builder().with_columns([value])
    with pytest.raises(PlayDefinitionError, match='"x" is added twice'):
        builder().with_column("x", 1).with_columns({"x": value})


async def test_what_stands_for_a_resolver_brings_its_own_condition() -> None:
    runner = Runner()
    made = await columns_of(builder(runner).with_column("x", Program(), recompute=True), runner)
    assert (made["x"].otherwise, made["x"].recompute) == ("no", True)
    with pytest.raises(PlayDefinitionError, match="two conditions"):
        builder().with_column("x", Program(), run_if=lambda row: True)


def test_what_functions_take_is_looked_at_once() -> None:
    def all_of_it(row: Any, ctx: Any, *, index: int, previous_cell: Any) -> None: ...

    plain, full = Column("x", value), Column("x", all_of_it, run_if=lambda row, *, index: True)
    assert plain.shape is not None and plain.shape.is_plain and not plain.reads_stored
    assert full.shape is not None and full.shape.index and full.shape.previous_cell and full.reads_stored
    assert (full.condition.takes_ctx, full.condition.index) == (False, True)
    assert Column("x", value, run_if=lambda row, ctx: True).condition.takes_ctx
    assert Column("x", str).shape is not None


@pytest.mark.parametrize(
    "resolver", [lambda row: 1, lambda row, ctx, index: 1, lambda row, ctx, *, rank: 1, lambda: 1]
)
def test_a_resolver_that_can_t_be_called_is_refused_where_it_is_written(resolver: Any) -> None:
    with pytest.raises(PlayDefinitionError, match=rf'{HERE}: column "x": its resolver takes \(row, ctx\)'):
        builder().with_column("x", resolver)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"run_if": True}, "run_if is a function"),
        ({"run_if": lambda: True}, r"its run_if takes \(row\) or \(row, ctx\)"),
        ({"recompute": 1}, "recompute is True or False"),
        ({"recompute_on_error": "yes"}, "recompute_on_error is True or False"),
        ({"stale_after_seconds": -1}, "stale_after_seconds is a number"),
        ({"stale_after_seconds": True}, "stale_after_seconds is a number"),
        ({"stale_after_seconds": float("inf")}, "stale_after_seconds is a number"),
        ({"stale_after_seconds": "1h"}, "stale_after_seconds is a number"),
    ],
)
def test_options_are_checked(options: dict[str, Any], says: str) -> None:
    with pytest.raises(PlayDefinitionError, match=says):
        builder().with_column("x", value, **options)


def test_a_scratch_column_cannot_be_fresh() -> None:
    with pytest.raises(PlayDefinitionError, match="scratch, and no sheet keeps it"):
        builder().with_column("_x", value, stale_after_seconds=60)


async def test_the_modes() -> None:
    runner = Runner()
    await builder(runner).with_column("x", 1).run(mode="net_new", on_row_error="fail")
    assert (runner.spec.mode, runner.spec.on_row_error) == (DatasetMode.NET_NEW, "fail")
    assert runner.spec.described()["mode"] == "net_new"
    await builder(runner).with_column("x", 1).run()
    assert "mode" not in runner.spec.described()
    with pytest.raises(PlayDefinitionError, match="mode is "):
        await builder().with_column("x", 1).run(mode="upsert")


def test_the_old_name_of_with_column_says_what_to_write() -> None:
    with pytest.raises(PlayDefinitionError, match=r"is now \.with_column\(\)"):
        builder().step("x", value)
