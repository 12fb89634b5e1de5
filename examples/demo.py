"""`python -m examples.demo`: a play over a table of its own, with a whole stack of its own."""

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import orjson

from examples import killing
from examples.demo_plays import DEMOS, Demo
from examples.demo_result import again_line, agreement, calls_of, result_of, seconds_of
from examples.demo_stack import STATE, TABLES, DemoStack, demo_stack
from examples.flower_report import read_report
from runtime.client import PlayClient
from runtime.errors import PlaylaneError
from runtime.model.run import RunState
from runtime.model.status import RunStatus, SheetRow
from workers.cli.terminal import INTERRUPTED
from workers.stack.stack import DEFAULT_MODULES, MODULES_VARIABLE, Counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; 0 only if every run completed. The last line printed is one JSON object."""
    options = parse(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return run_demo(options)
    except KeyboardInterrupt:
        print("interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED
    except PlaylaneError as error:
        print(f"error: {error}\nlogs: {STATE / 'logs'}", file=sys.stderr)
        return 1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--play", choices=tuple(DEMOS), default="airports", help="which one; airports")
    parser.add_argument(
        "--rows", type=_positive, default=None, help="rows of its table; all airports if not given"
    )
    parser.add_argument("--again", action="store_true", help="run a second time over the same input")
    parser.add_argument("--kill", action="store_true", help="kill -9 workers while the run goes on")
    parser.add_argument("--rows-workers", type=_positive, default=1)
    parser.add_argument("--lanes-workers", type=_positive, default=1)
    return parser.parse_args(arguments)


def run_demo(options: argparse.Namespace) -> int:
    """The whole demo: table, stack, run, Flower, result."""
    demo = DEMOS[options.play]
    counts = Counts(rows=options.rows_workers, lanes=options.lanes_workers)
    limits = {"PLAYLANE_LIMITS": killing.LIMITS} if options.kill else {}
    with (
        demo_stack(counts, {MODULES_VARIABLE: DEFAULT_MODULES, **demo.env, **limits}) as stack,
        stack.client() as client,
    ):
        result = played(demo, stack, client, rows=options.rows, again=options.again, kill=options.kill)
        print("stopping the stack")
    print(orjson.dumps(result).decode(), flush=True)
    ends = [result[name] for name in ("status", "again", "report") if name in result]
    return 0 if all(end == RunState.COMPLETED.value for end in ends) else 1


def played(
    demo: Demo,
    stack: DemoStack,
    client: PlayClient,
    *,
    rows: int | None = None,
    again: bool = False,
    kill: bool = False,
) -> dict[str, Any]:
    """One demo on a running stack; its result."""
    table = (TABLES / f"{demo.play}-{rows or demo.rows or 'all'}.csv").absolute()
    count = demo.write(table, rows or demo.rows)
    print(f"{count:,} {demo.what} in {table}")
    status = _run(demo, stack, client, table, count, kill_of=count if kill else 0)
    print(read_report(stack.flower_url).line())
    result = result_of(status, agreement(sheet_of(client, status), demo.verdict), fill_of=demo.fill_of)
    result |= demo.afterwards(stack, client, status)
    if again:
        second = _run(demo, stack, client, table, count)
        print(again_line(second))
        result |= {
            "again": second.state.value,
            "again_calls": calls_of(second),
            "again_seconds": seconds_of(second),
        }
    return result


def sheet_of(client: PlayClient, status: RunStatus) -> Iterator[SheetRow]:
    """The stored rows of the run's first dataset."""
    if status.datasets:
        yield from client.sheet(status.play, status.datasets[0].namespace)


def _run(
    demo: Demo, stack: DemoStack, client: PlayClient, table: Path, count: int, *, kill_of: int = 0
) -> RunStatus:
    meanwhile = demo.meanwhile
    return stack.run(
        client,
        demo.play,
        {"file": str(table), **demo.input(stack)},
        kill_of=kill_of,
        meanwhile=None if meanwhile is None else lambda say: meanwhile(stack, client, count, say),
    )


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


if __name__ == "__main__":
    sys.exit(main())
