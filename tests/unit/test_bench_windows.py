"""Windows over a ledger's times."""

from bench.windows import fullest_window, limit_use, windows_over

EVEN = [n / 50 for n in range(101)]


def test_an_even_stream_uses_its_limit_and_no_window_is_over() -> None:
    assert round(limit_use(EVEN, 50), 6) == 1
    assert fullest_window(EVEN, 1) <= 51 and windows_over(EVEN, 51, 1) == 0


def test_a_clump_is_seen_in_every_window_that_ends_in_it() -> None:
    assert windows_over([*EVEN, 1.501, 1.502], 51, 1) > 0
    assert limit_use([1.0], 50) == 0
