"""What providers write where they say until when a quota is used up."""

from datetime import UTC, datetime
from typing import Any

import pytest

from runtime.policy.quota import moment

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "said",
    [
        "2030-01-02T03:04:05Z",
        "2030-01-02t03:04:05z",
        " 2030-01-02T03:04:05+00:00 ",
        "2030-01-02T04:04:05+01:00",
        "2030-01-02 03:04:05",
        "Wed, 02 Jan 2030 03:04:05 GMT",
        int(AT.timestamp()),
        str(int(AT.timestamp())),
        AT.timestamp() * 1000,
    ],
)
def test_a_moment_is_read_in_every_usual_form(said: Any) -> None:
    assert moment(said) == AT


@pytest.mark.parametrize(
    "said",
    [None, "", "soon", True, 60, -1, float("nan"), 1e300, "0001-01-01T00:00:00+14:00", [], "Wed, 99 Foo"],
)
def test_what_is_no_moment_is_none(said: Any) -> None:
    assert moment(said) is None
