"""kombu's Redis transport, which survives what isn't even a message: its own ends the process over each such item."""

from queue import Empty
from typing import Any

import structlog
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, Transport

log = structlog.get_logger()
SCHEMES = ("redis", "rediss")
_NO_MESSAGE = (ValueError, TypeError, LookupError, AttributeError)  # of an item that can't be read as one


class GuardedChannel(Channel):
    """Reads queues; an item that can't be read is gone from its queue by then, and is told in the log."""

    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except _NO_MESSAGE as error:
            log.exception(
                "item dropped: it is no message",
                action="message.drop",
                error=f"{type(error).__name__}: {error}"[:300],
                exc_info=False,
            )
            raise Empty from None  # as if nothing had come: the next read goes on


class GuardedTransport(Transport):
    Channel = GuardedChannel


def use_guarded_transport() -> None:
    """From now on connections to Redis read with it."""
    for scheme in SCHEMES:
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{GuardedTransport.__name__}"
