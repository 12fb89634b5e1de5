"""What tests over a database of their own share."""

from collections.abc import AsyncIterator

import pytest

from runtime.policy.limits import DEFAULT_LIMITS
from runtime.postgres_store.pool import Pool, open_pool


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    opened = open_pool(database_url, DEFAULT_LIMITS)
    await opened.open()
    yield opened
    await opened.close()
