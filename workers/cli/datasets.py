"""A run's dataset as commands show it: chosen by its key, read in input order."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from runtime.client import PlayClient
from runtime.errors import BadInputError
from runtime.model import json_value
from runtime.model.run import ENDED_RUNS
from runtime.model.status import DatasetStatus, RunStatus
from runtime.model.stored_row import StoredRow


def choose(status: RunStatus, key: str | None) -> DatasetStatus:
    """The dataset of that key or namespace, or the only one; raises BadInputError that lists them."""
    known = {one.key: one for one in status.datasets}
    if key is None and len(known) == 1:
        return next(iter(known.values()))
    for one in status.datasets:
        if key is not None and key in (one.key, one.namespace):
            return one
    if not known:
        when = (
            "and has ended" if status.state in ENDED_RUNS else "yet: look again when its body has begun one"
        )
        raise BadInputError(f"run {status.run_id} has no dataset {when}")
    names = ", ".join(known)
    raise BadInputError(f"run {status.run_id} has these datasets: {names}; name one of them")


class DatasetTable:
    """Rows that no newer run has written: a sheet is shared by the runs of a play."""

    def __init__(self, client: PlayClient, dataset: DatasetStatus, *, failed: bool) -> None:
        self.dataset = dataset
        self._client = client
        self._failed = failed

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Of the input, then those that were computed."""
        return self._client.columns(self.dataset.dataset_id)

    def stored(self) -> Iterator[StoredRow]:
        return self._client.rows(self.dataset.dataset_id, failed=self._failed)

    def rows(self) -> Iterator[dict[str, Any]]:
        return (json_value.loads(row.data.encode()) for row in self.stored())
