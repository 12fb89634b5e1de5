"""A defect outside any row ends its run after a few tries; what may pass by itself is never counted."""

import pytest

from runtime.engine.defects import Defects
from runtime.errors import PlaylaneError, ServiceUnreachableError, SliceLostError, ValueRefusedError


@pytest.mark.parametrize("error", [TypeError("no"), RecursionError(), KeyError("a"), ValueRefusedError("no")])
def test_the_same_again_and_again_ends_the_run(error: Exception) -> None:
    defects = Defects(3)
    assert [defects.met("r", "it", error) for _ in range(2)] == [None, None]
    last = defects.met("r", "it", error)
    assert last is not None and type(error).__name__ in str(last) and "3 times" in str(last)
    assert defects.met("r", "it", error) is None  # counted anew


def test_what_goes_well_between_is_forgiven() -> None:
    defects = Defects(2)
    for _ in range(5):
        assert defects.met("r", "it", TypeError()) is None
        defects.passed("r")
    assert defects.met("other", "it", TypeError()) is None


@pytest.mark.parametrize(
    "error",
    [ServiceUnreachableError("away"), SliceLostError("lost"), TimeoutError(), OSError(), PlaylaneError("no")],
)
def test_what_may_pass_is_not_counted(error: Exception) -> None:
    assert Defects(1).met("r", "it", error) is None


def test_runs_are_forgotten_in_the_end() -> None:
    defects = Defects(2)
    for n in range(1_500):
        defects.met(str(n), "it", TypeError())
    assert defects.met("0", "it", TypeError()) is None
    assert defects.met("1499", "it", TypeError()) is not None
