"""Data folders: each has one owner at a time, kept by a lock that its server holds too."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import StackError
from runtime.policy.limits import DEFAULT_LIMITS
from workers.stack.account import Account


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedFolder:
    """`lock_fd` is passed to the server, so the folder is taken until the last of its processes is gone."""

    path: Path
    lock_fd: int


@contextmanager
def claimed_folder(state: Path, name: str, account: Account) -> Iterator[ClaimedFolder]:
    """The folder of that name, or a spare one, emptied before and after, while another stack uses it."""
    prepare_state(state)
    for number in range(1, DEFAULT_LIMITS.data_folders + 1):
        path = state / (name if number == 1 else f"{name}.spare-{number}")
        lock_fd = _try_lock(path.with_name(path.name + ".lock"), account)
        if lock_fd is None:
            continue
        try:
            if number > 1:
                shutil.rmtree(path, ignore_errors=True)
            path.mkdir(mode=0o700, exist_ok=True)
            account.give(path)
            yield ClaimedFolder(path=path, lock_fd=lock_fd)
        finally:
            if number > 1:
                shutil.rmtree(path, ignore_errors=True)
            os.close(lock_fd)
        return
    raise StackError(
        f"all {DEFAULT_LIMITS.data_folders} folders {name} below {state} are in use: "
        "stop one of the stacks there"
    )


@contextmanager
def temporary_state() -> Iterator[Path]:
    """A private folder that another account may pass through, removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="playlane-"))
    path.chmod(0o711)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def prepare_state(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackError(f"the folder {state} can't be made: {error.strerror}; choose another") from error
    if not os.access(state, os.W_OK | os.X_OK):
        raise StackError(f"the folder {state} belongs to another account: remove it, or run as that account")


def _try_lock(path: Path, account: Account) -> int | None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    account.give(path)
    deadline = time.monotonic() + DEFAULT_LIMITS.data_folder_wait_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if _holder_lives(fd) or time.monotonic() > deadline:
                os.close(fd)
                return None
            # Its supervisor is gone and its server is just being stopped: soon the folder is free.
            time.sleep(DEFAULT_LIMITS.supervise_poll_s)
        else:
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
            return fd


def _holder_lives(fd: int) -> bool:
    holder = os.pread(fd, 32, 0).decode()
    if not holder.isdigit():
        return True
    try:
        os.kill(int(holder), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
