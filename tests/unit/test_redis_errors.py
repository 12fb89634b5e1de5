"""What a Redis that can't serve us now answers, as the client makes errors of it."""

import pytest
from redis._parsers.base import BaseParser
from redis.exceptions import ResponseError

from runtime.errors import ServiceUnreachableError
from runtime.redis_store.scripts import reaching_redis

NOT_NOW = (
    "READONLY You can't write against a read only replica.",
    "READONLY You can't write against a read only replica. script: a2, on @user_script:12.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Errors writing to the AOF file: No space left on device",
    "NOREPLICAS Not enough good replicas to write.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script.",
)


def meet(line: str) -> None:
    error = BaseParser.parse_error(line)
    with reaching_redis("a test"):
        raise error


@pytest.mark.parametrize("line", NOT_NOW, ids=[line.partition(" ")[0] for line in NOT_NOW])
def test_a_server_that_fails_over_or_is_full_is_away_for_a_while(line: str) -> None:
    """A failover that met the renewal as an unknown error ended the process."""
    with pytest.raises(ServiceUnreachableError, match="a test"):
        meet(line)


def test_a_wrong_command_is_an_error_of_ours() -> None:
    with pytest.raises(ResponseError, match="wrong number"):
        meet("ERR wrong number of arguments for 'get' command")
