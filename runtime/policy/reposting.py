"""When a waiting caller looks, and when it posts its call again."""

from enum import Enum, auto

from runtime.policy.limits import Limits


class Waiting(Enum):
    """What to do with a call that has neither answer nor receipt."""

    HOLD = auto()
    POST_AGAIN = auto()


def poll_delay_ms(polls: int, limits: Limits) -> float:
    """Bulk polls back off by doubling, to at most `poll_max_ms`."""
    return min(limits.poll_first_ms * 2.0 ** min(polls, 16), limits.poll_max_ms)


def repost_delay_ms(posts: int, limits: Limits) -> float:
    """How long after the `posts`-th post (from 1) the next may follow: doubling, bounded."""
    return min(limits.repost_after_ms * 2.0 ** min(max(posts, 1) - 1, 16), limits.repost_max_ms)


def decide(*, posts: int, posted_ms: float, leased: bool, now_ms: float, limits: Limits) -> Waiting:
    """Post again only without a live lease and after the delay; a live owner will answer."""
    if leased or now_ms - posted_ms < repost_delay_ms(posts, limits):
        return Waiting.HOLD
    return Waiting.POST_AGAIN
