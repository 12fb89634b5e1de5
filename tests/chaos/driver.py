"""`python -m tests.chaos.driver --seeds 3`: trouble at random for a while, then every run must be right.

One seed is one stack and one sequence of troubles. The last line is one JSON object.
"""

import argparse
import json
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.processes import continue_all, stop_all
from tests.chaos.runs import StartedRun
from tests.chaos.stack_under_test import LIMITS, StackUnderTest, stack_under_test
from workers.stack.stack import Counts

FIRST_SEED = 1_000
ROWS = 120
RUNS_AT_ONCE = 2
END_S = 150.0
LOGS = Path(".playlane/logs/chaos-driver")
SESSION_TTL_S = float(LIMITS["session_ttl_s"])


@dataclass(slots=True)
class Trouble:
    """Makes trouble by a seeded order; remembers what it did and when."""

    stack: StackUnderTest
    random: random.Random
    began: float = field(default_factory=time.monotonic)
    done: list[str] = field(default_factory=list)
    flushed: list[float] = field(default_factory=list)
    lanes_hurt: list[float] = field(default_factory=list)

    def once(self) -> None:
        """One trouble, of those that come often more often."""
        kinds: list[tuple[int, Callable[[], None]]] = [
            (6, self.kill),
            (3, self.freeze),
            (3, self.flush),
            (2, self.tell_to_stop),
            (2, self.slow_down),
            (1, self.read_only),
            (1, self.freeze_postgres),
        ]
        self.random.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]()

    def note(self, what: str) -> None:
        self.done.append(f"{time.monotonic() - self.began:.1f} {what}")

    def worker(self) -> str:
        return self.random.choice(self.stack.workers)

    def hurt(self, name: str, number: signal.Signals) -> bool:
        """Signal a worker that is up; lanes are noted, for what they hold is in Redis alone."""
        if not self.stack.child(name).alive():
            return False
        if name.startswith("lanes"):
            self.lanes_hurt.append(time.monotonic())
        self.note(f"{number.name} {name}")
        self.stack.signal(name, number)
        return True

    def kill(self) -> None:
        self.hurt(self.worker(), signal.SIGKILL)

    def tell_to_stop(self) -> None:
        self.hurt(self.worker(), signal.SIGTERM)

    def freeze(self) -> None:
        name, seconds = self.worker(), self.random.uniform(0.5, 2.5 * SESSION_TTL_S)
        pid = self.stack.pid(name)
        if self.hurt(name, signal.SIGSTOP):
            self.stack.pause_s(seconds)
            continue_all([pid])
            self.note(f"SIGCONT {name}")

    def flush(self) -> None:
        self.note("FLUSHALL")
        self.flushed.append(time.monotonic())
        self.stack.flush_all()

    def slow_down(self) -> None:
        latency_ms = self.random.choice([20, 100, 300, 1_000, 4_000])
        self.note(f"latency {latency_ms} ms")
        self.stack.latency_ms(latency_ms)

    def read_only(self) -> None:
        self.note("Redis read-only")
        with self.stack.redis(0) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            self.stack.pause_s(self.random.uniform(0.5, 5))
            client.execute_command("REPLICAOF", "NO", "ONE")

    def freeze_postgres(self) -> None:
        self.note("Postgres frozen")
        pids = self.stack.postgres_pids()
        stop_all(pids)
        self.stack.pause_s(self.random.uniform(0.5, 5))
        continue_all(pids)

    def named_exception(self) -> bool:
        """Redis' data and a lane worker were lost within one TTL (and its grace): only item keys protect then."""
        near_s = 2 * SESSION_TTL_S + 2
        return any(abs(flush - hurt) < near_s for flush in self.flushed for hurt in self.lanes_hurt)


def main() -> int:
    options = _options()
    verdicts: dict[int, str] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        verdicts[seed] = one_seed(seed, options.seconds)
        say(f"seed {seed}: {verdicts[seed]}")
    right = sum(verdict.startswith("right") for verdict in verdicts.values())
    say(json.dumps({"seeds": len(verdicts), "right": right, "verdicts": verdicts}))
    return 0 if right == len(verdicts) else 1


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def one_seed(seed: int, seconds: float) -> str:
    """`right …` or what was wrong."""
    logs = (LOGS / str(seed)).absolute()
    with stack_under_test(logs=logs, counts=Counts(rows=2, lanes=2)) as stack:
        trouble = Trouble(stack=stack, random=random.Random(seed))
        runs: list[StartedRun] = []
        try:
            _make_trouble(trouble, runs, seconds)
            _heal(stack)
            kinds = Counter(step.split()[1] for step in trouble.done)
            two_keys = 0
            for run in runs:
                stack.check(run, one_key=not trouble.named_exception(), timeout_s=END_S)
                two_keys += len(stack.ledger(run).sent_under_two_keys())
        except Exception:
            steps = "\n".join(trouble.done)
            return f"WRONG, logs in {logs}\n{steps}\n{traceback.format_exc(limit=-3)}"
        return f"right: {len(runs)} runs, {dict(kinds)}, {two_keys} items saved by their own keys alone"


def _make_trouble(trouble: Trouble, runs: list[StartedRun], seconds: float) -> None:
    stack, live = trouble.stack, []
    while time.monotonic() - trouble.began < seconds:
        states = dict(stack.sql("select run_id, state from runs"))
        live = [run for run in live if states[run.run_id] in ("queued", "running", "waiting")]
        while len(live) < RUNS_AT_ONCE:
            live.append(stack.start(ROWS))
            runs.append(live[-1])
            trouble.note(f"run {live[-1].run_id}")
        trouble.once()
        stack.pause_s(trouble.random.uniform(0.1, 2.5))


def _heal(stack: StackUnderTest) -> None:
    stack.latency_ms(30)
    stack.until_ready()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.driver", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--seconds", type=float, default=60.0, help="of trouble, per seed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
