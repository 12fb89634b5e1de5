"""Who blocks the loop: the line, and the column or step whose code it is."""

import asyncio
import sys
import traceback
from dataclasses import dataclass
from types import FrameType

from runtime.context.own_tasks import scope_of
from runtime.context.scope import Scope
from runtime.engine.local_steps import code_of_steps
from runtime.engine.row_run import code_of_rows

_KNOWN = (code_of_rows, code_of_steps)
"""Code whose local variable `scope` says for whom it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """`line`: file, line and function. `scope`: whose code it is, None if it is no play's."""

    line: str = "unknown"
    scope: Scope | None = None

    @property
    def name(self) -> str:
        return "nobody's play" if self.scope is None else self.scope.describe()


def blocker_of(loop: asyncio.AbstractEventLoop, thread_id: int) -> Blocker:
    """What runs on the loop's thread just now; asked from another thread."""
    frame = sys._current_frames().get(thread_id)
    if frame is None:
        return Blocker()
    last = traceback.extract_stack(frame, limit=None)[-1]
    return Blocker(
        line=f"{last.filename}:{last.lineno} in {last.name}", scope=_in_frames(frame) or _of_task(loop)
    )


def _in_frames(frame: FrameType | None) -> Scope | None:
    while frame is not None:
        if frame.f_code in _KNOWN:
            return frame.f_locals.get("scope")
        frame = frame.f_back
    return None


def _of_task(loop: asyncio.AbstractEventLoop) -> Scope | None:
    return scope_of(asyncio.current_task(loop))
