"""The lane table: one lane a provider. A call of an undeclared provider goes to the default lane."""

from dataclasses import dataclass

DEFAULT_LANE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """At most `limit` in any `per_s`, plus `burst` saved up, of `counts` ("requests" or "items")."""

    limit: float
    per_s: float = 1.0
    counts: str = "requests"
    burst: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A provider's lane. `groups`: its batches in line or on the wire in one process, where no rate says it.

    `pacing` fills in for what its tools don't declare; `concurrency`: requests on the wire at once, fleet wide.
    Both are per organisation and provider.
    """

    provider: str
    groups: int = 8
    pacing: tuple[Pace, ...] = ()
    concurrency: int | None = None


LANES: tuple[Lane, ...] = (
    Lane(provider="timezones"),
    Lane(provider="countries"),
    Lane(provider="fakeprov"),
    # Plain HTTP: what plays fetch themselves, and tools of this provider; `pacing` here bounds both.
    Lane(provider="generic_http", groups=64),
    Lane(provider=DEFAULT_LANE),
)


def lane_of(provider: str, lanes: tuple[Lane, ...] = LANES) -> Lane:
    """The provider's lane, else the default lane."""
    by_provider = {lane.provider: lane for lane in lanes}
    return by_provider.get(provider, by_provider[DEFAULT_LANE])
