"""An embedded PostgreSQL in a claimed data folder."""

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from runtime.errors import ChildNotReadyError, StackError
from runtime.policy.limits import DEFAULT_LIMITS
from workers.stack.account import Account, choose_account
from workers.stack.binaries import Binary
from workers.stack.child import Launch
from workers.stack.folders import ClaimedFolder, claimed_folder, prepare_state
from workers.stack.sockets import free_port
from workers.stack.supervisor import Supervisor

DATABASE = "playlane"
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
STATUS_LINE = 7


@contextmanager
def postgres_running(
    supervisor: Supervisor, binary: Binary, state: Path, *, fast: bool, quiet: bool, log: Path | None
) -> Iterator[tuple[str, str]]:
    """Gives (database URL, note). The supervisor stops the server; the folder is freed on leaving."""
    prepare_state(state)
    account = choose_account(binary.program, state)
    with claimed_folder(state, f"pg{binary.version[0]}-{account.uid}", account) as folder:
        password = _password(folder.path / "password", account)
        _init_once(binary, folder, account)
        try:
            port = _start(supervisor, binary, folder, account, fast=fast, quiet=quiet, log=log)
            _create_database(port, password)
            url = f"postgresql://postgres:{password}@127.0.0.1:{port}/{DATABASE}"
            yield url, f"{binary.title} from {binary.source}, {account.note}"
        finally:
            supervisor.stop()


def _password(path: Path, account: Account) -> str:
    if not path.exists():
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_hex(16))
        account.give(path)
    return path.read_text()


def _clean_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return kept | {"LC_ALL": "C"}


def _init_once(binary: Binary, folder: ClaimedFolder, account: Account) -> None:
    """initdb beside the final name, then a rename: a cut initdb is never taken for a database."""
    data, unfinished = folder.path / "data", folder.path / "data.unfinished"
    if data.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    command = [
        *(*account.prefix, binary.program.with_name("initdb"), "-D", unfinished, "-U", "postgres"),
        *("-A", "scram-sha-256", f"--pwfile={folder.path / 'password'}", "-E", "UTF8"),
        *("--no-locale", "--no-instructions", "--no-sync"),
    ]
    done = subprocess.run(
        [str(part) for part in command],
        env=_clean_environment(),
        cwd="/",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEFAULT_LIMITS.initdb_s,
        check=False,
        start_new_session=True,
        pass_fds=(folder.lock_fd,),
        user=account.user,
        group=account.group,
        extra_groups=None if account.user is None else [],
    )
    if done.returncode != 0:
        raise StackError(f"initdb could not make a database in {data}:\n{done.stderr.strip()}")
    unfinished.rename(data)


def _start(
    supervisor: Supervisor,
    binary: Binary,
    folder: ClaimedFolder,
    account: Account,
    *,
    fast: bool,
    quiet: bool,
    log: Path | None,
) -> int:
    data = folder.path / "data"
    for attempt in range(1, DEFAULT_LIMITS.port_attempts + 1):
        # We hold the lock, and every server process would: whoever wrote this file is gone.
        (data / "postmaster.pid").unlink(missing_ok=True)
        port = free_port()
        child = supervisor.launch(
            Launch(
                name="postgres",
                command=[*account.prefix, binary.program, "-D", data, *_options(port, fast=fast)],
                env=_clean_environment(),
                cwd=Path("/"),
                user=account.user,
                group=account.group,
                pass_fds=(folder.lock_fd,),
                stop_signal=signal.SIGINT,
                orphan_stop_s=DEFAULT_LIMITS.orphan_server_stop_s,
                quiet=quiet,
                log=log,
                ready=lambda: _is_ready(data / "postmaster.pid"),
                tier=supervisor.next_tier(),
            ),
            wait=False,
        )
        try:
            supervisor.wait_ready(child)
        except ChildNotReadyError:
            if attempt == DEFAULT_LIMITS.port_attempts or "could not bind" not in child.last_lines():
                raise
            supervisor.drop(child)
        else:
            return port
    raise AssertionError("the last attempt returns or raises")


def _options(port: int, *, fast: bool) -> list[str]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": "",
        "max_connections": str(DEFAULT_LIMITS.server_connections),
        "log_min_messages": "warning",
        "log_checkpoints": "off",
        **(FAST if fast else {}),
    }
    return [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]


def _is_ready(pid_file: Path) -> bool:
    try:
        lines = pid_file.read_text().splitlines()
    except OSError:
        return False
    return len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready"


def _create_database(port: int, password: str) -> None:
    with psycopg.connect(
        host="127.0.0.1", port=port, user="postgres", password=password, dbname="postgres", autocommit=True
    ) as connection:
        known = connection.execute("select 1 from pg_database where datname = %s", (DATABASE,)).fetchone()
        if known is None:
            connection.execute(f"create database {DATABASE}")
