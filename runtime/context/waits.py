"""`ctx.sleep` and `ctx.wait_for_event`: waits that no process holds, in a body or in a row."""

import math
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Literal, get_args

from runtime.context.asks import Ask
from runtime.errors import EventTimedOutError, PlayDefinitionError
from runtime.model.operation import OpKind
from runtime.model.row_wait import NewBoundary, WaitKind
from runtime.policy.limits import Limits

OnTimeout = Literal["error", "none"]
Duration = float | int | timedelta
NAME_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepAsk(Ask):
    """Go on `delay_ms` from now."""

    kind: ClassVar[OpKind] = OpKind.SLEEP
    call: ClassVar[str] = "ctx.sleep"
    suspends: ClassVar[bool] = True

    delay_ms: int

    def described(self) -> dict[str, Any]:
        return {"id": self.id, "delay_ms": self.delay_ms}

    def boundary(self, key: str) -> NewBoundary:
        return NewBoundary(key=key, kind=WaitKind.SLEEP, due_ms=self.delay_ms)

    def met(self, kept: Any) -> None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAsk(Ask):
    """Go on when an event with `key` comes, or after `timeout_ms`."""

    kind: ClassVar[OpKind] = OpKind.EVENT
    call: ClassVar[str] = "ctx.wait_for_event"
    suspends: ClassVar[bool] = True

    key: str
    timeout_ms: int
    on_timeout: OnTimeout

    def described(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "key": self.key,
            "timeout_ms": self.timeout_ms,
            "on_timeout": self.on_timeout,
        }

    def boundary(self, key: str) -> NewBoundary:
        return NewBoundary(
            key=key,
            kind=WaitKind.EVENT,
            due_ms=self.timeout_ms,
            event_key=self.key,
            timeout_outcome=timeout_outcome(self.id, self.key, self.timeout_ms, self.on_timeout),
        )


WaitAsk = SleepAsk | EventAsk


def sleep_ask(duration: Duration, id: str, limits: Limits) -> SleepAsk:
    """A checked sleep."""
    seconds = _seconds(duration, "ctx.sleep", "duration", limits.sleep_max_s)
    return SleepAsk(id=_name(id, "ctx.sleep", "id"), delay_ms=math.ceil(seconds * 1000))


def event_ask(
    id: str, key: str | None, timeout: Duration | None, on_timeout: OnTimeout, limits: Limits
) -> EventAsk:
    """A checked event wait."""
    call = "ctx.wait_for_event"
    name = _name(id, call, "id")
    if on_timeout not in get_args(OnTimeout):
        raise PlayDefinitionError(
            f'{call}("{name}"): on_timeout is "error" (raise EventTimedOutError) or "none" (give None), '
            f"not {on_timeout!r:.80}"
        )
    seconds = limits.event_wait_s
    if timeout is not None:
        seconds = _seconds(timeout, f'{call}("{name}")', "timeout", limits.event_wait_max_s)
    return EventAsk(
        id=name,
        key=name if key is None else _name(key, f'{call}("{name}")', "key"),
        timeout_ms=math.ceil(seconds * 1000),
        on_timeout=on_timeout,
    )


def timeout_outcome(id: str, key: str, timeout_ms: float, on_timeout: str) -> dict[str, Any]:
    """What an event wait gives when its time is up."""
    if on_timeout == "none":
        return {"ok": None}
    error = EventTimedOutError(
        f'no event "{key}" came within {timeout_ms / 1000:g} s (ctx.wait_for_event("{id}")); '
        'it is not waited for again. Catch EventTimedOutError, or say on_timeout="none"'
    )
    return {"error": {**error.to_payload(), "type": type(error).__name__}}


def _seconds(value: object, call: str, field: str, most_s: float) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= most_s:
        return float(seconds)
    raise PlayDefinitionError(
        f"{call}: {field} is a number of seconds or a timedelta, from 0 to {most_s / 86_400:g} days, "
        f"not {value!r:.80}"
    )


def _is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= one <= "\udfff" for one in text)


def _name(value: object, call: str, field: str) -> str:
    if not isinstance(value, str) or not value or len(value) > NAME_CHARS or not _is_storable(value):
        raise PlayDefinitionError(
            f"{call}: {field} is a text of 1 to {NAME_CHARS} characters, not {value!r:.80}"
        )
    return value
