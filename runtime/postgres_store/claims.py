"""Claims whose answer was lost: the row may be ours without our knowing, so it is given back by its token."""

import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg import AsyncConnection

from runtime.errors import ServiceUnreachableError
from runtime.postgres_store.pool import Database


class DoubtfulClaims:
    """Bounded list of claim tokens without an answer; given back before the next claim and by `give_back`."""

    def __init__(self, database: Database, release_sql: bytes, bound: int) -> None:
        self._database = database
        self._release_sql = release_sql
        self._tokens: deque[str] = deque(maxlen=bound)

    @contextmanager
    def claiming(self) -> Iterator[str]:
        """A new claim's token; leaving by an error or a cancellation puts the claim in doubt."""
        token = uuid.uuid4().hex
        answered = False
        try:
            yield token
            answered = True
        finally:
            if not answered:
                self._tokens.append(token)

    async def give_back(self) -> None:
        """Free what the doubtful claims may hold."""
        if not self._tokens:
            return
        tokens = list(self._tokens)

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(self._release_sql, {"claims": tokens})

        try:
            await self._database.run("giving doubtful claims back", work)
        except ServiceUnreachableError:
            return  # kept for the next time
        for token in tokens:
            if token in self._tokens:
                self._tokens.remove(token)
