"""Where a server is, for people: host and port of a URL, never its password."""

from urllib.parse import urlsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from runtime.errors import BadInputError


def postgres_address(database_url: str) -> str:
    """`host:port` of a Postgres URL or connection string."""
    try:
        parts = conninfo_to_dict(database_url)
    except ProgrammingError:
        # The driver's own message may quote the password.
        raise BadInputError(
            "the database URL is not understood: write postgresql://user:password@host:port/name"
        ) from None
    return f"{parts.get('host') or 'localhost'}:{parts.get('port') or 5432}"


def broker_address(broker_url: str) -> str:
    """`host:port` of a broker's URL, Redis or RabbitMQ."""
    parts = urlsplit(broker_url)
    if not parts.scheme.startswith("amqp"):
        return redis_address(broker_url)
    try:
        return f"{parts.hostname or 'localhost'}:{parts.port or 5672}"
    except ValueError:
        raise BadInputError(
            "the broker's URL is not understood: write amqp://user:password@host/vhost"
        ) from None


def redis_address(redis_url: str) -> str:
    """`host:port` of a Redis URL."""
    try:
        parts = urlsplit(redis_url)
        address = f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError:
        raise BadInputError("the Redis URL is not understood: write redis://:password@host:port/0") from None
    if parts.scheme not in ("redis", "rediss"):
        raise BadInputError("the Redis URL must begin with redis:// or rediss://")
    return address
