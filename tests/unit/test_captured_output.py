"""What a play prints and logs, line by line, within bounds; everybody else's streams stay as they were."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from runtime.context.captured_output import Output, body_output, capture, release
from runtime.policy.limits import Limits

LIMITS = Limits(captured_lines=3, log_chars=20)


@contextmanager
def capturing() -> Iterator[list[tuple[str, str]]]:
    """The lines of a place that prints here."""
    lines: list[tuple[str, str]] = []
    output = Output(lambda text, level: lines.append((level, text)), LIMITS)
    capture()
    token = body_output.set(output)
    try:
        yield lines
    finally:
        body_output.reset(token)
        release()


def test_lines_are_kept_whole() -> None:
    with capturing() as kept:
        print("one", end="")
        print(" two\nthree")
        print("oh", file=sys.stderr)
    assert kept == [("info", "one two"), ("info", "three"), ("error", "oh")]


def test_so_many_of_them_and_no_longer_than_that() -> None:
    lines: list[str] = []
    output = Output(lambda text, level: lines.append(text), LIMITS)
    output.write("x" * 50 + "\n\n \nb\nc\nd\ne\nno end", "info")
    output.end()
    assert lines == ["x" * 20 + "…", "b", "c", "3 more printed lines were dropped"]


def test_logging_by_level_and_without_what_carries_the_play() -> None:
    with capturing() as kept:
        logging.getLogger("shop.orders").info("sold %d", 3)
        logging.getLogger("httpx").error("not the author's")
        try:
            raise ValueError("why")
        except ValueError:
            logging.getLogger("shop").exception("broke")
    assert kept[0] == ("info", "sold 3")
    assert kept[1][0] == "error"
    assert len(kept) == 2


async def test_each_place_has_its_own() -> None:
    others: list[str] = []

    async def elsewhere() -> None:
        body_output.set(Output(lambda text, level: others.append(text), LIMITS))
        await asyncio.to_thread(print, "in a thread")

    with capturing() as kept:
        await asyncio.create_task(elsewhere())
        print("here")
    assert others == ["in a thread"]
    assert kept == [("info", "here")]


def test_outside_of_plays_nothing_changes(capsys: pytest.CaptureFixture[str]) -> None:
    before, level = sys.stdout, logging.getLogger().level
    capture()
    capture()
    print("as ever")
    assert sys.stdout.isatty() == before.isatty()
    release()
    assert sys.stdout is before
    assert logging.getLogger().level == level
    assert capsys.readouterr().out == "as ever\n"
