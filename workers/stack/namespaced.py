"""Runs a command in a user namespace where our uid is called nobody. Run by path; imports no sibling."""

import ctypes
import os
import pwd
import sys
from pathlib import Path

CLONE_NEWUSER = 0x10000000


def main(command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid, nobody = os.geteuid(), os.getegid(), pwd.getpwnam("nobody")
    if libc.unshare(CLONE_NEWUSER) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWUSER) was refused")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{nobody.pw_uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{nobody.pw_gid} {gid} 1")
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
