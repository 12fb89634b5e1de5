"""What is cut, and where: trees of operations, and lists of points with how often each is passed."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st


def cuts_at(points: Sequence[str], *, most: int) -> st.SearchStrategy[list[tuple[str, int]]]:
    """(point, at its n-th passing), at most so many."""
    return st.lists(st.tuples(st.sampled_from(points), st.integers(1, 4)), max_size=most)


def trees_of(kinds: Sequence[str], *, max_leaves: int) -> st.SearchStrategy[Any]:
    """A kind, or trees asked for together or one by one."""
    return st.recursive(
        st.sampled_from(kinds),
        lambda inner: st.tuples(
            st.sampled_from(["gather", "one by one"]), st.lists(inner, min_size=1, max_size=3)
        ),
        max_leaves=max_leaves,
    )
