"""An embedded Valkey or Redis: memory only, evicts nothing, with a password of its own."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from runtime.errors import ChildNotReadyError
from runtime.policy.limits import DEFAULT_LIMITS
from workers.stack.account import own_account
from workers.stack.binaries import Binary
from workers.stack.child import Launch
from workers.stack.folders import ClaimedFolder, claimed_folder
from workers.stack.sockets import free_port
from workers.stack.supervisor import Supervisor


@contextmanager
def redis_running(
    supervisor: Supervisor, binary: Binary, state: Path, *, quiet: bool, log: Path | None
) -> Iterator[tuple[str, str]]:
    """Gives (Redis URL, note). The supervisor stops the server; the folder is freed on leaving."""
    account = own_account()
    with claimed_folder(state, f"redis-{account.uid}", account) as folder:
        try:
            url = _start(supervisor, binary, folder, quiet=quiet, log=log)
            yield url, f"{binary.title} from {binary.source}"
        finally:
            supervisor.stop()


def _start(
    supervisor: Supervisor, binary: Binary, folder: ClaimedFolder, *, quiet: bool, log: Path | None
) -> str:
    password = secrets.token_hex(16)
    for attempt in range(1, DEFAULT_LIMITS.port_attempts + 1):
        port = free_port()
        url = f"redis://:{password}@127.0.0.1:{port}/0"
        # A file and not an argument: the process list is public.
        config = _write_config(folder.path, port, password)
        child = supervisor.launch(
            Launch(
                name="redis",
                command=[binary.program, config],
                cwd=Path("/"),
                pass_fds=(folder.lock_fd,),
                quiet=quiet,
                log=log,
                ready=lambda url=url: _answers(url),
                tier=supervisor.next_tier(),
            ),
            wait=False,
        )
        try:
            supervisor.wait_ready(child)
        except ChildNotReadyError:
            if attempt == DEFAULT_LIMITS.port_attempts or "in use" not in child.last_lines():
                raise
            supervisor.drop(child)
        else:
            return url
        finally:
            config.unlink(missing_ok=True)
    raise AssertionError("the last attempt returns or raises")


def _write_config(folder: Path, port: int, password: str) -> Path:
    path = folder / "redis.conf"
    path.unlink(missing_ok=True)
    quoted = str(folder).replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        "bind 127.0.0.1",
        f"port {port}",
        f"requirepass {password}",
        f'dir "{quoted}"',
        'save ""',
        "appendonly no",
        "maxmemory-policy noeviction",
        f"databases {DEFAULT_LIMITS.server_redis_databases}",
        "loglevel warning",
    ]
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write("\n".join(lines) + "\n")
    return path


def _answers(url: str) -> bool:
    try:
        with redis.Redis.from_url(
            url, socket_timeout=DEFAULT_LIMITS.port_probe_s, retry=Retry(NoBackoff(), 0)
        ) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False
