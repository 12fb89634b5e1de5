"""Row tasks: one slice. A header task never raises: it would kill its chord; the tables tell the truth."""

import structlog

from runtime.errors import PlaylaneError
from workers.app import app
from workers.slices import run_slice_once
from workers.wiring import process

log = structlog.get_logger()
DONE = 0


@app.task(name="rows.run_slice")
def run_slice(run_id: str, dataset_id: int, page: int, number: int) -> int:
    """Run the open rows of a slice; returns a constant, so that a doubled part can't change its chord."""
    try:
        run_slice_once(process(), run_id, dataset_id, page, number)
    except PlaylaneError as error:
        log.warning(
            "slice given back",
            action="slice.run",
            dataset=dataset_id,
            page=page,
            slice=number,
            error=str(error),
        )
    except BaseException:
        log.exception("slice given back", action="slice.run", dataset=dataset_id, page=page, slice=number)
    return DONE
