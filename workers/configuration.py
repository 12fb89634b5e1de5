"""From settings to what the engine takes: limits, play modules and the lane table."""

from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module

from broker_config.lanes import lane_of
from broker_config.settings import Settings
from runtime.errors import BadInputError
from runtime.model.rate_scope import LanePacing
from runtime.model.tool import Counts, PacingRule
from runtime.policy.limits import DEFAULT_LIMITS, Limits


def limits_of(settings: Settings) -> Limits:
    """The policy's limits with the deployment's overrides; unknown names and impossible values are refused."""
    kinds = {field.name: type(getattr(DEFAULT_LIMITS, field.name)) for field in fields(Limits)}
    for name, value in settings.limits.items():
        if name not in kinds:
            near = get_close_matches(name, kinds, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadInputError(f"PLAYLANE_LIMITS: there is no limit {name!r}{hint}")
        if kinds[name] in (int, float) and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0
        ):
            raise BadInputError(f"PLAYLANE_LIMITS: {name} must be a number above 0, not {value!r}")
        if kinds[name] is int and value != int(value):
            raise BadInputError(f"PLAYLANE_LIMITS: {name} must be a whole number, not {value!r}")
    return Limits(**settings.limits)


def load_plays(settings: Settings) -> None:
    """Import the modules that define plays; raises BadInputError that names the module and why."""
    for module in settings.play_modules:
        try:
            import_module(module)
        except ImportError as error:
            raise BadInputError(f"play module {module!r} can't be imported: {error}") from error


def lane_pacing(name: str) -> LanePacing:
    """The lane table's word on a lane."""
    lane = lane_of(name)
    return LanePacing(
        groups=lane.groups,
        rules=tuple(
            PacingRule(
                limit=pace.limit, per_ms=pace.per_s * 1000, counts=Counts(pace.counts), burst=pace.burst
            )
            for pace in lane.pacing
        ),
        concurrency=lane.concurrency,
    )
