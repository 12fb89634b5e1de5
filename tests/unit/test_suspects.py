"""One suspect at a time in a process."""

import threading

from tests.waiting import wait_until
from workers.suspects import SuspectLine


def test_one_at_a_time_and_nobody_waits() -> None:
    line, running, most, done = SuspectLine(1_000), [0], [0], []
    first_runs, go_on = threading.Event(), threading.Event()

    def work(n: int) -> None:
        running[0] += 1
        most[0] = max(most[0], running[0])
        if n == 0:
            first_runs.set()
            go_on.wait(5)
        running[0] -= 1
        done.append(n)

    first = threading.Thread(target=lambda: line.run(lambda: work(0)))
    first.start()
    assert first_runs.wait(5)
    for n in range(1, 50):
        line.run(lambda n=n: work(n))  # returns at once: the first thread does it
    assert done == []
    go_on.set()
    wait_until(lambda: len(done) == 50, 5, "all suspects")
    first.join()
    assert (done, most) == (list(range(50)), [1])


def test_one_that_raises_does_not_stop_the_line() -> None:
    line, done = SuspectLine(10), []

    def fails() -> None:
        line.run(lambda: done.append("later"))
        raise ValueError("no")

    line.run(fails)
    assert done == ["later"]
