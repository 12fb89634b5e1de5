"""Progress of a run from two looks at it."""

import pytest

from runtime.model.dataset import DatasetState
from runtime.model.run import RunState
from runtime.policy.progress import (
    Sample,
    datasets_progress,
    ending_line,
    error_line,
    fill,
    progress_lines,
    rate_window,
    spoken_time,
    usage_line,
)
from tests.unit.statuses import dataset_status, run_status, tool_usage


def sample(at_s: float, **dataset: object) -> Sample:
    return Sample(at_s=at_s, status=run_status(datasets=(dataset_status(**dataset),)))  # type: ignore[arg-type]


def test_rate_and_time_left_come_from_two_looks():
    one = datasets_progress([sample(10.0, completed=100), sample(12.0, completed=280, failed=20)])[0]
    assert (one.done, one.rows, one.failed) == (300, 1_000, 20)
    assert one.rows_per_s == pytest.approx(100.0)
    assert one.left_s == pytest.approx(7.0)
    assert one.detail == "300/1,000 rows, 20 failed, 100 rows/s, 7 s left"


def test_the_first_look_knows_no_rate():
    one = datasets_progress([sample(10.0, completed=100)])[0]
    assert (one.rows_per_s, one.left_s) == (None, None)


def test_while_seeding_nobody_knows_how_much_is_left():
    one = datasets_progress([sample(0.0), sample(1.0, completed=10, state=DatasetState.SEEDING)])[0]
    assert one.left_s is None
    assert one.detail.startswith("10/1,000+ rows")


def test_a_standstill_has_a_rate_of_zero_and_no_time_left():
    one = datasets_progress([sample(0.0, completed=5), sample(3.0, completed=5)])[0]
    assert (one.rows_per_s, one.left_s) == (0.0, None)


def test_a_dataset_that_is_new_since_the_last_look_has_no_rate():
    before = Sample(at_s=0.0, status=run_status())
    first = sample(1.0)
    assert datasets_progress([before, first])[0].rows_per_s is None
    assert datasets_progress([before, first, sample(2.0, completed=50)])[0].rows_per_s == 50.0


def test_the_window_keeps_one_sample_before_it():
    samples = [sample(float(second)) for second in range(6)]
    assert [kept.at_s for kept in rate_window(samples, 5.0, 2.0)] == [2.0, 3.0, 4.0, 5.0]
    assert [kept.at_s for kept in rate_window(samples, 50.0, 2.0)] == [5.0]
    assert rate_window([], 5.0, 2.0) == ()


def test_usage_is_summed_over_tools():
    usage = (tool_usage(), tool_usage("country_facts", items=10, capacity=100, cached=4_000))
    assert usage_line(usage) == "100 calls in 2 batches (50% full), 4,000 cached"
    assert usage_line(()) == ""


def test_fill_of_nothing_is_unknown():
    assert fill([tool_usage(items=0, batches=0, capacity=0)]) is None


def test_lines_name_run_and_datasets():
    assert progress_lines([sample(0.0)]) == ("r1 running", "  airports: 0/1,000 rows")


def test_the_end_in_plain_words():
    failed = run_status(
        RunState.FAILED,
        datasets=(dataset_status(completed=997, failed=3),),
        error={"code": "play_definition", "message": 'column "zone": the resolver is not callable'},
    )
    assert ending_line(failed) == "run r1 failed: 997 of 1,000 rows completed, 3 failed"
    assert error_line(failed) == 'column "zone": the resolver is not callable [play_definition]'
    assert error_line(run_status()) is None


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0 s"), (7.4, "7 s"), (200, "3 min 20 s"), (7_500, "2 h 5 min")]
)
def test_times_are_spoken(seconds: float, words: str):
    assert spoken_time(seconds) == words
