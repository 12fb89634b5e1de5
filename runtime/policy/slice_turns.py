"""Which slice a free place goes to: runs take turns, so that large ones don't keep every place. Pure."""

from collections.abc import Mapping, Sequence

from runtime.model.slice import SliceOfRun


def fewest_held(waiting: Sequence[SliceOfRun], held: Mapping[str, int]) -> SliceOfRun:
    """The first of the waiting slices whose run holds the fewest here."""
    return min(waiting, key=lambda one: held.get(one.run_id, 0))


def next_slice(asked: SliceOfRun, waiting: Sequence[SliceOfRun], held: Mapping[str, int]) -> SliceOfRun:
    """The first waiting slice of the run that holds the fewest here, or `asked` where that is as good: one more or less
    is no reason to change places."""
    best = fewest_held([*waiting, asked], held)
    return best if held.get(best.run_id, 0) + 1 < held.get(asked.run_id, 0) else asked
