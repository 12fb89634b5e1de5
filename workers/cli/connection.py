"""A client for the commands, from the environment; a sender needs no execution API."""

from collections.abc import Iterator
from contextlib import contextmanager

from broker_config.settings import Settings
from runtime.client import PlayClient
from runtime.errors import ServiceUnreachableError
from workers.app import NOT_USED, load_settings


def sender_settings() -> Settings:
    """Settings of a process that never calls the execution API, which then need not be named."""
    return load_settings(execution_api_url=NOT_USED)


@contextmanager
def reaching(name: str, address: str, variable: str) -> Iterator[None]:
    """A command asks once: says which server does not answer, and what to do."""
    try:
        yield
    except ServiceUnreachableError as error:
        raise ServiceUnreachableError(
            f"{name} at {address} does not answer ({reason(error)}): start it, or name the right one in {variable}"
        ) from error


def reason(error: ServiceUnreachableError) -> str:
    """What the driver said, without what workers do about it."""
    said = error if error.__cause__ is None else error.__cause__
    return str(said).partition("\n")[0]


def connect(org_id: str | None = None) -> PlayClient:
    """A client with Postgres and Redis as the environment names them; connects at its first use."""
    settings = sender_settings()
    return PlayClient(
        redis_url=settings.redis_url.get_secret_value(),
        broker_url=settings.broker_url,
        database_url=settings.database_url.get_secret_value(),
        org_id=org_id or settings.org_id,
    )
