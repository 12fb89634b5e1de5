"""One stack for all kill tests, whole again before each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.errors import ServersMissingError
from tests.chaos.processes import ROLES, continue_all
from tests.chaos.stack_under_test import CALM_LATENCY_MS, StackUnderTest, stack_under_test

ONE_TEST_S = 150
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.chaos)
            item.add_marker(pytest.mark.timeout(ONE_TEST_S))


@pytest.fixture(scope="package")
def shared_stack() -> Iterator[StackUnderTest]:
    try:
        with stack_under_test(logs=Path(".playlane/logs/chaos").absolute()) as stack:
            yield stack
    except ServersMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def stack(shared_stack: StackUnderTest) -> Iterator[StackUnderTest]:
    """All roles ready, the provider calm."""
    stack = shared_stack
    stack.forgive()
    stack.latency_ms(CALM_LATENCY_MS)
    for role in ROLES:
        stack.faults_for_next_life(role, "")
    stack.until_ready()
    yield stack
    continue_all([stack.child(role).pid for role in ROLES] + stack.postgres_pids())
