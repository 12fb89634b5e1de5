"""A client for the commands, from the environment; a sender needs no execution API."""

from broker_config.settings import Settings
from runtime.client import PlayClient
from workers.app import NOT_USED, load_settings


def sender_settings() -> Settings:
    """Settings of a process that never calls the execution API, which then need not be named."""
    return load_settings(execution_api_url=NOT_USED)


def connect(org_id: str | None = None) -> PlayClient:
    """A client with Postgres and Redis as the environment names them; connects at its first use."""
    settings = sender_settings()
    return PlayClient(
        redis_url=settings.redis_url.get_secret_value(),
        broker_url=settings.broker_url,
        database_url=settings.database_url.get_secret_value(),
        org_id=org_id or settings.org_id,
    )
