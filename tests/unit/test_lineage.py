"""Child plays: circles and depth are refused before anything is called."""

import pickle

import pytest

from runtime.errors import ChildPlayError
from runtime.model.lineage import Lineage
from runtime.policy.limits import Limits
from runtime.policy.lineage import child_of, child_options, lineage_of

LIMITS = Limits(child_depth=3)


def chain(*plays: str, root: Lineage | None = None, limits: Limits = LIMITS) -> Lineage:
    lineage = root or lineage_of("run-1", "root", {})
    for play in plays:
        lineage = child_of(lineage, play, limits)
    return lineage


def test_a_run_is_the_root_of_its_lineage() -> None:
    lineage = lineage_of("run-1", "root", {"budget": ["run-1"]})
    assert (lineage.root_run_id, lineage.depth, lineage.plays, lineage.accounts) == (
        "run-1",
        0,
        ("root",),
        ("run-1",),
    )


def test_children_keep_root_and_accounts() -> None:
    child = chain("a", "b", root=lineage_of("run-1", "root", {"budget": ["run-1"]}))
    assert (child.root_run_id, child.depth, child.plays, child.accounts) == (
        "run-1",
        2,
        ("root", "a", "b"),
        ("run-1",),
    )


def test_a_detached_child_stands_where_it_was_called() -> None:
    """Its own options don't include what its parent had pinned."""
    child = chain("a", root=lineage_of("run-1", "root", {"budget": ["run-1"], "max_depth": 2}))
    options = child_options(child, {"integration_mode": "fixture", "budget": ["run-1"]})
    assert "budget" not in options
    stands = lineage_of("run-2", "a", {**options, "budget": ["run-1", "run-2"]})
    assert (stands.root_run_id, stands.plays, stands.accounts, stands.max_depth) == (
        "run-1",
        ("root", "a"),
        ("run-1", "run-2"),
        2,
    )


@pytest.mark.parametrize("plays", [("root",), ("a", "root"), ("a", "b", "a")])
def test_a_circle_is_refused(plays: tuple[str, ...]) -> None:
    with pytest.raises(ChildPlayError, match="in a circle") as caught:
        chain(*plays)
    assert caught.value.code == "child_play_cycle"
    assert " -> ".join(("root", *plays)) in str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).code == "child_play_cycle"


def test_depth_has_an_end() -> None:
    with pytest.raises(ChildPlayError, match="4 deep") as caught:
        chain("a", "b", "c", "d")
    assert caught.value.code == "child_play_depth"


@pytest.mark.parametrize(("asked", "fits"), [(0, ()), (1, ("a",)), (9, ("a", "b", "c"))])
def test_a_run_may_ask_for_less_depth_not_for_more(asked: int, fits: tuple[str, ...]) -> None:
    root = lineage_of("run-1", "root", {"max_depth": asked})
    deepest = chain(*fits, root=root)
    with pytest.raises(ChildPlayError, match="deep"):
        child_of(deepest, "next", LIMITS)


def test_a_child_run_can_only_lower_its_callers_depth() -> None:
    parent = chain("a", root=lineage_of("run-1", "root", {"max_depth": 2}))
    for own, most in ((1, 1), (3, 2), (None, 2)):
        options = child_options(parent, {} if own is None else {"max_depth": own})
        assert lineage_of("run-2", "a", options).max_depth == most
