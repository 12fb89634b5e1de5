"""Child plays: how deep they may go, and that none calls one of its callers. Decided before any call is made."""

from collections.abc import Mapping
from typing import Any

from runtime.errors import ChildPlayError
from runtime.model.budget import BUDGET_OPTION
from runtime.model.lineage import Lineage
from runtime.policy.limits import Limits

LINEAGE_OPTION = "lineage"  # among the stored options of a detached child run


def lineage_of(run_id: str, play: str, options: Mapping[str, Any]) -> Lineage:
    """A run's lineage from its stored options; a run without one is the root of its own."""
    accounts = tuple(options.get(BUDGET_OPTION) or ())
    kept = options.get(LINEAGE_OPTION)
    if kept is None:
        return Lineage(
            root_run_id=run_id, plays=(play,), accounts=accounts, max_depth=options.get("max_depth")
        )
    known = Lineage.of_json(kept)
    return Lineage(
        root_run_id=known.root_run_id,
        plays=known.plays,
        accounts=tuple(dict.fromkeys((*known.accounts, *accounts))),
        max_depth=_least(known.max_depth, options.get("max_depth")),
    )


def child_of(parent: Lineage, play: str, limits: Limits) -> Lineage:
    """The lineage of a child of `parent`, inline or detached; raises ChildPlayError for a cycle or beyond the depth."""
    path = " -> ".join((*parent.plays, play))
    if play in parent.plays:
        raise ChildPlayError(
            f"plays call each other in a circle ({path}): nothing was called; let the inner one be a function, "
            "or give what repeats to a dataset's rows",
            code="child_play_cycle",
        )
    most = limits.child_depth if parent.max_depth is None else min(parent.max_depth, limits.child_depth)
    if parent.depth + 1 > most:
        raise ChildPlayError(
            f"child play {play!r} would be {parent.depth + 1} deep ({path}), and {most} is the most: nothing was "
            "called; call it from a play nearer to the root, or raise max_depth (at most "
            f"{limits.child_depth})",
            code="child_play_depth",
        )
    return Lineage(
        root_run_id=parent.root_run_id,
        plays=(*parent.plays, play),
        accounts=parent.accounts,
        max_depth=parent.max_depth,
    )


def child_options(child: Lineage, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a detached child run keeps: its own options, none of the parent's pinned ones, and where it stands."""
    own = {name: value for name, value in options.items() if name not in (BUDGET_OPTION, LINEAGE_OPTION)}
    return {**own, LINEAGE_OPTION: child.to_json()}


def _least(first: int | None, second: int | None) -> int | None:
    known = [depth for depth in (first, second) if depth is not None]
    return min(known, default=None)
