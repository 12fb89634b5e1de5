"""One play body on its own loop: started, given outcomes one at a time, looked at when idle."""

import asyncio
import contextvars
import itertools
from asyncio import events
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Any

from structlog.contextvars import bind_contextvars, get_contextvars

from runtime.context.body_reader import BodyReader
from runtime.context.captured_output import Output, body_output
from runtime.context.dataset import DatasetSpec
from runtime.context.dataset_handle import current_reader
from runtime.context.returned import returned
from runtime.engine.body_loop import BodyLoop
from runtime.engine.outcomes import error_of
from runtime.errors import (
    NonDeterministicPlayError,
    PlayDeadlockError,
    PlayDefinitionError,
    PlaySpinsError,
    SecretUnavailableError,
)
from runtime.model.operation import JournalEntry, Op, OpKind
from runtime.play import PlayDefinition, PlayRegistry, plays
from runtime.policy.identity import operation_digest
from runtime.policy.limits import Limits

NAMES_SHOWN = 10


class SuspendingError(asyncio.CancelledError):
    """The run is giving up its slot: lets `finally` and retry loops of the body fall through."""


@dataclass(slots=True, kw_only=True)
class Asked:
    """An operation that the body waits for: through a future, or a timer of its loop."""

    op: Op
    future: asyncio.Future[Any] | None = None
    timer: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLog:
    n: int
    text: str
    fields: dict[str, Any]
    level: str = "info"


class Body:
    """A replayable activation: `start`, `deliver`*, then `done`, `asked`, `check_alive`."""

    def __init__(
        self,
        play: PlayDefinition,
        input: Any,
        *,
        make_ctx: Callable[["Body"], Any],
        limits: Limits,
        registry: PlayRegistry = plays,
        captures: bool = False,
        secret_of: Callable[[str], str] | None = None,
    ) -> None:
        self.play = play
        self.registry = registry  # of child plays
        self._secret_of = secret_of
        self.output: Output | None = None
        self.captures = captures  # provenance and observations
        self.limits = limits
        self.datasets: dict[str, DatasetSpec] = {}
        self.stopping = False
        self._unavailable: SecretUnavailableError | None = None
        self.refused = 0
        self.loop = BodyLoop(timers=self, max_turns=limits.body_turns, errors_kept=limits.body_loop_errors)
        self.ctx = make_ctx(self)
        self._input = input
        self._main: asyncio.Task[Any] | None = None
        self._asked: dict[str, Asked] = {}
        self._gone: set[str] = set()
        self._fresh: list[Op] = []
        self._abandoned: list[Op] = []
        self._logs: list[BodyLog] = []
        self._log_count = itertools.count()
        self._timer_keys: dict[int, str] = {}
        self._counts: dict[str, int] = {}

    # What ctx operations call, inside the body.

    def ask(self, op: Op) -> "asyncio.Future[Any]":
        """Wait for `op`; once the body is being stopped it is refused, then parked for ever."""
        future = self.loop.create_future()
        if self.stopping:
            self.refused += 1
            if self.refused <= self.limits.refused_operations:
                raise SuspendingError
            return future
        if events._get_running_loop() is not self.loop:
            raise PlayDefinitionError(
                f'play "{self.play.name}" used its ctx ({op.key}) outside its body and outside a row: '
                "await ctx operations in the body or in a column resolver"
            )
        if op.key in self._asked:
            raise PlayDefinitionError(f'play "{self.play.name}" already waits for {op.key}')
        self._asked[op.key] = Asked(op=op, future=future)
        self._fresh.append(op)
        future.add_done_callback(lambda done: self._give_up(op.key) if done.cancelled() else None)
        return future

    @property
    def input(self) -> Any:
        """The run's input."""
        return self._input

    def secret(self, name: str) -> str:
        """The value of a secret, live in every replay too: the body's thread waits, which changes no order.

        One that can't be had stops the body: nothing that it made of that would repeat itself.
        """
        if events._get_running_loop() is not self.loop:
            raise PlayDefinitionError(
                f'play "{self.play.name}" awaited ctx.secrets.get("{name}") outside its body and outside a row'
            )
        if self._secret_of is None:
            raise PlayDefinitionError("ctx.secrets can't be used here: this process has no source of secrets")
        if self.stopping:
            raise SuspendingError
        try:
            return self._secret_of(name)
        except SecretUnavailableError as error:
            self._unavailable, self.stopping = error, True
            raise SuspendingError from error

    def nth(self, name: str) -> int:
        """How often `name` was asked before in this body."""
        count = self._counts.get(name, 0)
        self._counts[name] = count + 1
        return count

    def log(self, text: str, fields: dict[str, Any], *, level: str = "info") -> None:
        """Collect a log line; its number makes it durable once."""
        n = next(self._log_count)
        if not self.stopping and n < self.limits.logs_per_scope:
            self._logs.append(BodyLog(n=n, text=text, fields=fields, level=level))

    # What the loop calls for its timers.

    def timer_set(self, handle: asyncio.TimerHandle, delay_s: float) -> None:
        if self.stopping:
            return
        key = f"timer:{self.nth('timer')}"
        delay_ms = round(delay_s * 1000)
        op = Op(
            key=key,
            kind=OpKind.TIMER,
            digest=operation_digest("timer", delay_ms),
            args={"delay_ms": delay_ms},
        )
        self._timer_keys[id(handle)] = key
        self._asked[key] = Asked(op=op, timer=handle)
        self._fresh.append(op)

    def timer_cancelled(self, handle: asyncio.TimerHandle) -> None:
        key = self._timer_keys.pop(id(handle), None)
        if key is not None:
            self._give_up(key)

    def _give_up(self, key: str) -> None:
        asked = self._asked.pop(key, None)
        if asked is not None and not self.stopping:
            self._gone.add(key)
            self._abandoned.append(asked.op)

    # What the driver calls.

    def start(self) -> None:
        coroutine = returned(self.ctx, self.play.function(self.ctx, self._input))
        context = contextvars.Context()
        context.run(bind_contextvars, **get_contextvars())  # log lines of the body say whose they are
        context.run(current_reader.set, BodyReader(self))
        self.output = Output(
            lambda text, level: self.log(text, {}, level=level), self.limits, most=self.limits.logs_per_scope
        )
        context.run(body_output.set, self.output)
        self._main = self.loop.create_task(coroutine, name=self.play.name, context=context)  # type: ignore[arg-type]
        self._run()

    def deliver(self, entry: JournalEntry) -> bool:
        """Hand over one outcome and run until idle; False if the body had given the operation up."""
        asked = self._asked.get(entry.op_key)
        if self.done and self.knows(entry.op_key):
            return False
        if asked is None:
            if entry.op_key in self._gone:
                return False
            raise self._contradiction(entry, f"the body asks for {self._names(self._asked)} instead")
        if (asked.op.kind, asked.op.digest) != (entry.kind, entry.digest):
            raise self._contradiction(
                entry, f"the body asks for {asked.op.key} as {asked.op.kind} with other arguments"
            )
        del self._asked[entry.op_key]
        self.loop.now_s = max(self.loop.now_s, entry.outcome.get("at_ms", 0) / 1000)
        self._hand_over(asked, entry.outcome)
        self._run()
        return True

    def _run(self) -> None:
        self.loop.run_until_idle()
        if self._unavailable is not None:
            raise self._unavailable

    def _hand_over(self, asked: Asked, outcome: dict[str, Any]) -> None:
        if asked.timer is not None:
            self._timer_keys.pop(id(asked.timer), None)
            self.loop.fire(asked.timer)
        elif asked.future is not None and "error" in outcome:
            asked.future.set_exception(error_of(outcome["error"]))
        elif asked.future is not None:
            asked.future.set_result(outcome.get("ok"))

    def _contradiction(self, entry: JournalEntry, now: str) -> NonDeterministicPlayError:
        return NonDeterministicPlayError(
            f'play "{self.play.name}" does not repeat itself: entry {entry.seq} of its journal is '
            f"{entry.op_key} ({entry.kind}), but {now}; nothing new was started. "
            "Take random values and clocks in ctx.step, keep set order and changed code out of what a body asks for, "
            "or start a new run"
        )

    @staticmethod
    def _names(keys: Iterable[str]) -> str:
        names = list(keys)
        more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
        return (", ".join(names[:NAMES_SHOWN]) or "nothing") + more

    def take_fresh(self) -> list[Op]:
        """Operations asked since the last look and still wanted."""
        fresh, self._fresh = self._fresh, []
        return [op for op in fresh if op.key in self._asked]

    def take_abandoned(self) -> list[Op]:
        """Operations that the body cancelled since the last look."""
        abandoned, self._abandoned = self._abandoned, []
        return abandoned

    def take_logs(self) -> list[BodyLog]:
        if self.done and self.output is not None:
            self.output.end()
        logs, self._logs = self._logs, []
        return logs

    def asks(self, key: str) -> bool:
        return key in self._asked

    def knows(self, key: str) -> bool:
        """Whether the body asks for `key`, or did and gave it up."""
        return key in self._asked or key in self._gone

    @property
    def done(self) -> bool:
        return self._main is not None and self._main.done()

    def error(self) -> BaseException | None:
        """How a done body failed, None if it returned."""
        if self._main is None or not self._main.done():
            return None
        return asyncio.CancelledError() if self._main.cancelled() else self._main.exception()

    def result(self) -> Any:
        assert self._main is not None
        return self._main.result()

    def op(self, key: str) -> Op:
        """The operation that the body asks for under `key`."""
        return self._asked[key].op

    def has_waits(self) -> bool:
        return any(asked.op.kind.is_wait for asked in self._asked.values())

    def only_waits(self, resting: Container[str] = ()) -> bool:
        """Whether all that the body asks for are durable waits, or `resting`."""
        return bool(self._asked) and all(
            asked.op.kind.is_wait or key in resting for key, asked in self._asked.items()
        )

    def check_alive(self) -> None:
        """Raise PlayDeadlockError if the idle body waits for nothing that can happen."""
        if self.done or self._asked:
            return
        places = [f"{task.get_name()} at {_line(task, self.play.source_file)}" for task in self.loop.tasks]
        raise PlayDeadlockError(
            f'play "{self.play.name}" waits for nothing that can ever happen: {self._names(places)}. '
            "Await a ctx operation, or set what it waits for"
        )

    def stop(self) -> int:
        """Cancel all tasks for good; the count of those that outlived it. They stay referenced."""
        self.stopping = True
        for _ in range(self.limits.cancel_rounds):
            live = [task for task in self.loop.tasks if not task.done()]
            if not live:
                break
            if not self._cancel_round(live):
                break
        return self._retire()

    def _cancel_round(self, live: list["asyncio.Task[Any]"]) -> bool:
        for task in live:
            task.cancel()
        try:
            self.loop.run_until_idle()
        except PlaySpinsError:
            return False
        return True

    def _retire(self) -> int:
        live = [task for task in self.loop.tasks if not task.done()]
        for task in live:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if self._main is not None and self._main.done() and not self._main.cancelled():
            self._main.exception()
        if live:
            outlived.append((self, len(live)))
        return len(live)

    def forgotten(self) -> list[str]:
        """Names of the tasks that a done body left running."""
        return [getattr(task.get_coro(), "__qualname__", task.get_name()) for task in self.loop.tasks]


outlived: list[tuple[Body, int]] = []
"""Bodies with tasks that outlived their cancellation: dropping one lets the collector run author code."""


def zombie_tasks() -> int:
    """Tasks in this process that outlived their cancellation."""
    return sum(count for _, count in outlived)


def _line(task: "asyncio.Task[Any]", source_file: str) -> str:
    """Where a suspended task stands: its innermost frame in the play, else its innermost frame."""
    place, awaited = "an unknown line", task.get_coro()
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            break
        if frame.f_code.co_filename == source_file or place == "an unknown line":
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return place
