"""The lane table: one lane a provider. A call of an undeclared provider goes to the default lane."""

from dataclasses import dataclass

DEFAULT_LANE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """A provider's lane. `groups`: batches of it on the wire at once, in one process."""

    provider: str
    groups: int = 8


LANES: tuple[Lane, ...] = (
    Lane(provider="timezones"),
    Lane(provider="countries"),
    Lane(provider="fakeprov"),
    Lane(provider=DEFAULT_LANE),
)


def lane_of(provider: str, lanes: tuple[Lane, ...] = LANES) -> Lane:
    """The provider's lane, else the default lane."""
    by_provider = {lane.provider: lane for lane in lanes}
    return by_provider.get(provider, by_provider[DEFAULT_LANE])
