"""What an author may say of one tool call."""

import math
from dataclasses import dataclass
from typing import Any

from runtime.errors import PlayDefinitionError
from runtime.model.query_page import QueryPage


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """`force`: make the call although a result is stored. Waits are hard ends; without them a call waits on.

    `is_private`: neither is a stored result taken nor does this one answer anybody else.
    """

    force: bool = False
    is_private: bool = False
    stale_after_seconds: float | None = None  # older results, seen from the run's beginning, don't answer
    receipt_wait_ms: float | None = None  # while nobody works on the call
    max_wait_ms: float | None = None  # altogether
    timeout_ms: float | None = None  # of the request
    page: QueryPage | None = None  # of the tool's result, where it is one of many rows
    query: str = ""  # the receipt key of the query whose page it is: whoever reads that page gets the same

    def described(self) -> dict[str, Any]:
        """What a replay must ask for again: what decides which result is given, not how long one waits."""
        described: dict[str, Any] = {"force": True} if self.force else {}
        if self.stale_after_seconds is not None:
            described["stale_after_seconds"] = self.stale_after_seconds
        if self.page is not None:
            described["page"] = self.page.to_json()
        return described


NO_OPTIONS = CallOptions()


def checked(options: CallOptions, where: str) -> CallOptions:
    """The options if they make sense; raises PlayDefinitionError that names the wrong one."""
    if options is NO_OPTIONS:
        return options
    if not isinstance(options.force, bool):
        raise PlayDefinitionError(f"{where}: force is True or False, not {options.force!r:.80}")
    stale = options.stale_after_seconds
    if stale is not None and not (_is_finite(stale) and stale >= 0):
        raise PlayDefinitionError(
            f"{where}: stale_after_seconds is None (a result of any age answers), 0 (only one made since the run "
            f"began) or a number of seconds, not {stale!r:.80}"
        )
    for name in ("receipt_wait_ms", "max_wait_ms", "timeout_ms"):
        value = getattr(options, name)
        if value is not None and not (_is_finite(value) and value > 0):
            raise PlayDefinitionError(
                f"{where}: {name} is a number of milliseconds above 0, not {value!r:.80}"
            )
    return options


def is_seconds(value: Any) -> bool:
    """Whether it is a number of seconds, 0 or more."""
    return _is_finite(value) and value >= 0


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
