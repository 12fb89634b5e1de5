"""Calls in fixture mode reach no provider: what of its limits and slowness is imitated. Pure."""

import hashlib

from runtime.policy.limits import Limits


def response_delay_ms(request_key: str, limits: Limits) -> float:
    """How long an answer takes: between two bounds, the same for the same request."""
    shortest_ms, longest_ms = limits.fixture_delay_ms
    part = int.from_bytes(hashlib.sha256(request_key.encode()).digest()[:8]) / 2**64
    return shortest_ms + part * max(0.0, longest_ms - shortest_ms)
