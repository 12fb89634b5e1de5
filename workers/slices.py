"""One slice from message to publish: take, recover the columns, run, settle."""

import structlog
from structlog.contextvars import bound_contextvars

from runtime.engine.row_writer import SliceEnd
from runtime.errors import PlayVersionUnavailableError, RunFatalError, SecretUnavailableError
from runtime.model.slice import SliceId, TakenSlice
from workers.wiring import WorkerProcess

log = structlog.get_logger()


def run_slice_once(process: WorkerProcess, run_id: str, dataset_id: int, page: int, number: int) -> None:
    """Run the slice, or one whose turn it is. Errors give it back; a fatal one ends its run first."""
    slice_id = SliceId(dataset_id=dataset_id, page=page, slice=number)
    if slice_id.is_suspect:
        process.suspects.run(lambda: _take_and_run(process, run_id, slice_id))
    else:
        _take_and_run(process, run_id, slice_id)


def _take_and_run(process: WorkerProcess, run_id: str, slice_id: SliceId) -> None:
    taken = process.call(process.slice_turns.take(run_id, slice_id))
    if taken is not None:
        with bound_contextvars(run_id=taken.facts.run_id, page=taken.id.page, slice=taken.id.slice):
            _run_once(process, taken)


def _run_once(process: WorkerProcess, taken: TakenSlice) -> None:
    slices, run_id = process.slices, taken.facts.run_id
    try:
        program = process.recover(taken)
    except (PlayVersionUnavailableError, SecretUnavailableError) as error:
        delay_s = process.call(process.versions.slice_delay_s(run_id, error))
        process.call(slices.give_back(taken, delay_s or 0.0))
        raise
    except BaseException as error:
        process.call(slices.give_back(taken))
        _end_if_hopeless(process, taken, error)
        raise
    try:
        end = process.call(slices.run(taken, program), process.limits.slice_run_s)
    except BaseException as error:
        _end_if_hopeless(process, taken, error)
        raise
    slices.defects.passed(str(taken.id))
    process.call(process.settling.settle(run_id, taken.id.dataset_id, taken.id.page))
    if end == SliceEnd.WAITS:
        process.call(process.settling.wake())


def _end_if_hopeless(process: WorkerProcess, taken: TakenSlice, error: BaseException) -> None:
    """A run that can't go on anywhere fails."""
    if not isinstance(error, RunFatalError):
        error = process.slices.defects.met(str(taken.id), f"slice {taken.id}", error) or error
    if isinstance(error, RunFatalError):
        log.error("run ended by a row", action="run.fail", run_id=taken.facts.run_id, error=str(error))
        process.call(process.runs.fail(taken.facts.run_id, error.to_payload()))
