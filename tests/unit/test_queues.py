"""A process consumes lane queues or task queues, never both: full slices would stop the lanes that they wait for."""

import pytest

from broker_config.lanes import LANES, lane_of
from broker_config.queues import ROLES, MixedQueuesError, queues_of_role, refuse_mixed


@pytest.mark.parametrize("role", ROLES)
def test_every_role_passes_its_own_check(role: str) -> None:
    refuse_mixed(queues_of_role(role))


@pytest.mark.parametrize("queues", [("rows", "lane.default"), ("lane.a", "plays"), ("control", "rows")])
def test_mixes_are_refused(queues: tuple[str, ...]) -> None:
    with pytest.raises(MixedQueuesError):
        refuse_mixed(queues)


def test_play_and_row_may_share_a_process() -> None:
    refuse_mixed(("plays", "rows"))


def test_lane_workers_take_all_lanes_unless_told() -> None:
    assert set(queues_of_role("lanes")) == {f"lane.{lane.provider}" for lane in LANES}
    assert queues_of_role("lanes", ("fakeprov",)) == ("lane.fakeprov",)


def test_an_undeclared_provider_goes_to_the_default_lane() -> None:
    assert lane_of("nobody-knows-it").provider == "default"


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(ValueError, match="unknown role 'cooks'"):
        queues_of_role("cooks")
