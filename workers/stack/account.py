"""The account that PostgreSQL runs as: it refuses root, so root hands it to somebody else."""

import os
import pwd
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import StackError
from runtime.policy.limits import DEFAULT_LIMITS

NAMESPACED = Path(__file__).with_name("namespaced.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """`uid` owns the files; a process switches to `user` and `group`; `prefix` goes before its command."""

    note: str
    uid: int
    gid: int
    user: int | None = None
    group: int | None = None
    prefix: tuple[str, ...] = ()

    def give(self, path: Path) -> None:
        """Makes a file or folder the account's own."""
        if self.user is not None:
            os.chown(path, self.uid, self.gid)


def own_account() -> Account:
    return Account(note="as you", uid=os.geteuid(), gid=os.getegid())


def choose_account(program: Path, state: Path) -> Account:
    """The first account that can run the program and reach the folder; probed, not guessed."""
    if os.geteuid() != 0:
        return own_account()
    tried: list[str] = []
    for account in (_ordinary_account(), _namespaced_account()):
        if account is not None:
            if _reaches(account, program, state):
                return account
            tried.append(account.note)
    raise StackError(
        f"PostgreSQL does not run as root, and it can't run here {' or '.join(tried) or 'as anyone else'} "
        f"(program {program}, data below {state}): run as an ordinary user, move both out of root's "
        "own folders, or name a server in PLAYLANE_DATABASE_URL"
    )


def _ordinary_account() -> Account | None:
    try:
        entry = pwd.getpwuid(int(os.environ.get("SUDO_UID") or 0) or pwd.getpwnam("nobody").pw_uid)
    except (KeyError, ValueError):
        return None
    return Account(
        note=f"as {entry.pw_name}",
        uid=entry.pw_uid,
        gid=entry.pw_gid,
        user=entry.pw_uid,
        group=entry.pw_gid,
    )


def _namespaced_account() -> Account | None:
    """Files stay root's: to the file system this is root still, so it comes second."""
    if sys.platform != "linux":
        return None
    return Account(
        note="in a user namespace", uid=0, gid=0, prefix=(sys.executable, "-I", "-S", str(NAMESPACED))
    )


def _reaches(account: Account, program: Path, state: Path) -> bool:
    try:
        probe = subprocess.run(
            [*account.prefix, "/bin/sh", "-c", 'cd "$1" && exec "$0" --version', str(program), str(state)],
            user=account.user,
            group=account.group,
            extra_groups=None if account.user is None else [],
            cwd="/",
            capture_output=True,
            timeout=DEFAULT_LIMITS.account_probe_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return probe.returncode == 0
