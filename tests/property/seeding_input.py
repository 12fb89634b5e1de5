"""Inputs of datasets for property tests."""

from typing import Any

from runtime.context.dataset import DatasetSpec
from runtime.engine.seeding import CutPage, PageCutter
from runtime.model.dataset import OpenDataset
from runtime.play import Column
from runtime.policy.limits import Limits
from runtime.policy.rows_input import KeySpec

NEW = OpenDataset(
    dataset_id=1,
    pages_seeded=0,
    pages_total=None,
    next_position=0,
    rows_seeded=0,
    duplicates=0,
    input_digest="",
)


def spec_of(rows: list[dict[str, Any]]) -> DatasetSpec:
    return DatasetSpec(
        key="t",
        namespace="t",
        columns=(Column("x", lambda row, ctx: 1),),
        rows=tuple(rows),
        row_key=KeySpec(),
        on_row_error="isolate",
    )


def cut_all(spec: DatasetSpec, limits: Limits, opened: OpenDataset = NEW) -> list[CutPage]:
    cutter = PageCutter(spec, opened, limits)
    pages: list[CutPage] = []
    while (page := cutter.next_page()) is not None:
        pages.append(page)
    return pages
