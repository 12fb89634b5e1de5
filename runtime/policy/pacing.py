"""Pacing arithmetic: rules -> meters, and from meters how wide a lane may work. Pure.

A meter spreads its rule evenly (a token bucket paced below the rate, which gives every ticket its moment) and
bounds what was really sent in two sliding windows: the rule's own, and a tenth of it against clumps.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from runtime.model.tool import Counts, PacingRule
from runtime.policy.limits import Limits

PARTS = 10  # a clump is judged in this part of a window
LOG_SLOTS = 256  # sends nearer together than this part of a window are remembered as one, at the later time


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """One rule as numbers. Times in microseconds, tokens in what the rule counts."""

    name: str
    interval_us: float  # between two tokens at the full rate
    unit: int  # most that one request takes
    burst: float  # saved up beyond one unit
    window_us: int
    window_limit: float
    part_us: int
    part_limit: float
    counts_items: bool
    described: str = ""

    @property
    def capacity(self) -> float:
        return self.unit + self.burst

    def cost(self, items: int) -> int:
        """Tokens of a request with so many items."""
        return min(items, self.unit) if self.counts_items else 1

    def encoded(self) -> str:
        """As the scripts read it."""
        fields = (
            self.name,
            repr(float(self.interval_us)),
            self.unit,
            repr(float(self.burst)),
            self.window_us,
            repr(float(self.window_limit)),
            self.part_us,
            repr(float(self.part_limit)),
            "1" if self.counts_items else "0",
        )
        return ":".join(str(field) for field in fields)


def merged(declared: Iterable[PacingRule], defaults: Iterable[PacingRule]) -> tuple[PacingRule, ...]:
    """The tool's rules, and the lane's for what the tool leaves open (a rule is known by what it counts, and when)."""
    rules = {(rule.counts, rule.per_ms): rule for rule in defaults}
    for rule in declared:
        rules[rule.counts, rule.per_ms] = rule
    return tuple(rules[key] for key in sorted(rules, key=lambda key: (key[1], key[0])))


def meters(rules: Iterable[PacingRule], max_batch_size: int, limits: Limits) -> tuple[Meter, ...]:
    """One meter a rule."""
    return tuple(_meter(rule, max_batch_size, limits) for rule in rules)


def _meter(rule: PacingRule, max_batch_size: int, limits: Limits) -> Meter:
    # Less than one in its time is one in a longer time.
    limit = max(1.0, rule.limit)
    window_us = math.ceil(rule.per_ms * 1000 * (limit / rule.limit))
    is_items = rule.counts is Counts.ITEMS
    unit = _even_batch(limit, max_batch_size) if is_items else 1
    # The last of a burst is left to the wire: requests may arrive nearer together than they left.
    burst = max(0.0, rule.burst - limits.pacing_wire_slack)
    return Meter(
        name=f"{rule.counts.value}-{rule.per_ms:g}",
        interval_us=window_us / (limit * limits.pacing_share),
        unit=unit,
        burst=burst,
        window_us=window_us,
        window_limit=limit + burst,
        part_us=window_us // PARTS,
        part_limit=max(float(unit), limit / PARTS) + max(unit, limits.pacing_wire_slack) + burst,
        counts_items=is_items,
        described=f"{rule.limit:g} {rule.counts.value}/{_span(rule.per_ms)}",
    )


def _span(per_ms: float) -> str:
    named = {1_000.0: "s", 60_000.0: "min", 3_600_000.0: "h", 86_400_000.0: "day"}
    return named.get(per_ms, f"{per_ms / 1000:g} s")


def _even_batch(limit: float, max_batch_size: int) -> int:
    """The largest batch of which whole ones fill a window: others would leave a part of every window unused."""
    batches = math.ceil(limit / max_batch_size)
    return max(1, min(max_batch_size, math.floor(limit / batches)))


def requests_per_s(metered: Sequence[Meter]) -> float | None:
    """The rate that the strictest meter allows when requests are full; None without meters."""
    rates = [1e6 / (meter.interval_us * meter.cost(meter.unit)) for meter in metered]
    return min(rates, default=None)


def parallelism(
    metered: Sequence[Meter], *, is_scalar: bool, latency_ms: float, groups: int, limits: Limits
) -> int:
    """Requests in line or on the wire per process: what the rate keeps busy at this latency, and half more.

    Without a rule: `groups` for batches (few permits fill them), more where every request carries one call.
    """
    rate = requests_per_s(metered)
    if rate is None:
        return max(groups, limits.scalar_groups_per_lane) if is_scalar else groups
    busy = math.ceil(rate * latency_ms / 1000 * limits.parallelism_share)
    return max(limits.groups_per_lane, min(busy, limits.groups_per_lane_max))


class GateMove(Enum):
    """What becomes of reading a lane's queue."""

    STAY = auto()
    PAUSE = auto()
    READ = auto()


def gate_move(*, held: int, is_paused: bool, limits: Limits) -> GateMove:
    """By the calls of the lane that a process holds."""
    if not is_paused and held >= limits.lane_high_water:
        return GateMove.PAUSE
    if is_paused and held <= limits.lane_low_water:
        return GateMove.READ
    return GateMove.STAY


def smoothed_ms(before_ms: float | None, seen_ms: float, weight: float = 0.2) -> float:
    """A running mean of latencies."""
    return seen_ms if before_ms is None else before_ms + weight * (seen_ms - before_ms)


def spacing_ms(meters: Iterable[Meter], items: int, factor: float = 1.0) -> float:
    """How far apart requests of so many items go at the slowest meter's rate; `factor`: what is left of the rate."""
    return max((meter.cost(items) * meter.interval_us for meter in meters), default=0.0) / 1000 / factor


def later_ms(
    *, due_ms: float, now_ms: float, last_ms: float | None, spacing_ms: float, limits: Limits
) -> float:
    """From now till calls whose ticket is `due_ms` away should be asked for again.

    They come back while there is still something in line, so that the lane never runs dry; each put off later than
    `last_ms`, the one before, as the lane's rate allows.
    """
    soonest_ms = now_ms + due_ms - limits.hold_ms / 2
    wanted_ms = soonest_ms if last_ms is None else max(soonest_ms, last_ms + spacing_ms)
    return min(wanted_ms - now_ms, limits.later_max_ms)


def tickets_ahead(spacing_ms: float, limits: Limits) -> int:
    """How many moments a process asks for before the first has come: what a round trip takes at the scope's rate."""
    return 1 + math.floor(limits.pacing_ahead_ms / spacing_ms) if spacing_ms else limits.groups
