"""Bad input ends in one clear message and an exit code, never in a trace alone."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.errors import BadInputError
from runtime.model.messages import RunOptions
from workers.cli import flower, worker
from workers.cli.enqueue import Refresh, assemble_input, run_options
from workers.cli.main import run
from workers.cli.terminal import BAD_INPUT, FAILED, UNREACHABLE

COMMANDS = ("up", "enqueue", "watch", "status", "report", "rerun", "cancel", "worker", "flower", "migrate")
NOBODY = "127.0.0.1:1"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def playlane(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line with unreachable servers: (exit code, stdout, stderr)."""
    for name in [name for name in os.environ if name.startswith(("PLAYLANE_", "FLOWER_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAYLANE_DATABASE_URL", f"postgresql://u:s3cret@{NOBODY}/db")
    monkeypatch.setenv("PLAYLANE_REDIS_URL", f"redis://:s3cret@{NOBODY}/0")
    monkeypatch.setenv("PLAYLANE_PLAY_MODULES", "examples.plays.airports")
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_and_json(command: str, playlane: Run):
    code, out, _ = playlane(command, "--help")
    assert code == 0
    assert f"Example: playlane {command}" in out
    assert "--json" in out


def test_help_lists_the_commands(playlane: Run):
    code, out, _ = playlane("--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)


def test_an_unknown_play_lists_the_known_ones(playlane: Run):
    code, out, err = playlane("enqueue", "airprots")
    assert (code, out) == (BAD_INPUT, "")
    assert 'there is no play "airprots" (known: ' in err
    assert "airports" in err
    assert "Traceback" not in err


def test_without_play_modules_the_variable_is_named(playlane: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLAYLANE_PLAY_MODULES", "")
    _, _, err = playlane("enqueue", "nothing_like_it")
    assert "PLAYLANE_PLAY_MODULES names no modules at all" in err


def test_a_play_module_that_breaks_is_named(playlane: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "broken_plays.py").write_text("def play(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PLAYLANE_PLAY_MODULES", "broken_plays")
    code, _, err = playlane("enqueue", "airports")
    assert code == BAD_INPUT
    assert "play module broken_plays can't be imported (SyntaxError" in err


@pytest.mark.parametrize(
    ("path", "words"), [("missing.csv", "there is no file"), (".", "is not a file: --csv takes one CSV file")]
)
def test_a_csv_that_is_no_file_is_refused(path: str, words: str, playlane: Run):
    code, _, err = playlane("enqueue", "airports", "--csv", path)
    assert code == BAD_INPUT
    assert words in err


def test_a_csv_that_may_not_be_read_is_refused(
    playlane: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "closed.csv").write_text("a\n1\n")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(BadInputError, match="can't be read"):
        assemble_input(tmp_path / "closed.csv", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "--input is not JSON"),
        ('{"a": NaN}', "$.a: nan is not a finite number"),
        ('{"a": 1, "a": 2}', "$: the name 'a' stands twice in one object"),
        ('{"a": [{"b": 1, "b": 1}]}', "$.a[0]: the name 'b' stands twice in one object"),
        ('{"a": "\\ud800"}', "$.a: text holds half of a surrogate pair"),
        ("[1]", "needs --input to be a JSON object"),
    ],
)
def test_bad_input_json_is_refused(text: str, words: str, playlane: Run, tmp_path: Path):
    (tmp_path / "a.csv").write_text("icao\nEDDF\n")
    code, _, err = playlane("enqueue", "airports", "--csv", "a.csv", "--input", text)
    assert code == BAD_INPUT
    assert words in err


def test_csv_becomes_an_absolute_path_in_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("icao\nEDDF\n")
    assert assemble_input(Path("a.csv"), '{"n": 1}') == {"n": 1, "file": str(tmp_path / "a.csv")}
    assert assemble_input(None, None) == {}
    with pytest.raises(BadInputError, match="two files"):
        assemble_input(Path("a.csv"), '{"file": "b.csv"}')


@pytest.mark.parametrize(
    "command", [("status", "r1"), ("watch", "r1"), ("cancel", "r1"), ("enqueue", "airports"), ("migrate",)]
)
def test_an_unreachable_server_is_named_without_its_password(command: tuple[str, ...], playlane: Run):
    code, _, err = playlane(*command)
    assert code == UNREACHABLE
    assert "Postgres" in err
    assert "s3cret" not in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) <= 2


def test_lanes_say_which_server_is_away_and_what_to_do(playlane: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("workers.cli.lanes.queue_depths", lambda names: dict.fromkeys(names, 0))
    monkeypatch.setattr("workers.cli.lanes.queue_readers", lambda _timeout_s: None)
    code, out, err = playlane("lanes")
    assert (code, out) == (UNREACHABLE, "")
    assert f"Redis at {NOBODY} does not answer (" in err
    assert "start it, or name the right one in PLAYLANE_REDIS_URL" in err
    assert "tried again" not in err and "s3cret" not in err


def test_doctor_says_so_too_and_exits_with_1(playlane: Run):
    code, out, _ = playlane("doctor", "--json")
    found = {one["what"]: one for one in map(json.loads, out.splitlines())}
    assert code == FAILED
    for what, variable in (("Postgres", "PLAYLANE_DATABASE_URL"), ("Redis", "PLAYLANE_REDIS_URL")):
        assert found[what]["verdict"] == "bad"
        assert found[what]["found"].startswith(f"{NOBODY} does not answer (")
        assert found[what]["fix"] == f"start it, or name the right one in {variable}"
    assert "tried again" not in out and "s3cret" not in out


def test_errors_are_json_when_json_is_asked(playlane: Run):
    code, out, err = playlane("status", "r1", "--json")
    assert (code, out) == (UNREACHABLE, "")
    error = json.loads(err)["error"]
    assert error["code"] == "service_unreachable"
    assert NOBODY in error["message"]


def test_missing_settings_are_all_named(playlane: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PLAYLANE_DATABASE_URL")
    monkeypatch.delenv("PLAYLANE_REDIS_URL")
    code, _, err = playlane("status", "r1")
    assert code == BAD_INPUT
    assert "PLAYLANE_DATABASE_URL is not set" in err
    assert "PLAYLANE_REDIS_URL is not set" in err


def test_debug_adds_the_trace(playlane: Run, caplog: pytest.LogCaptureFixture):
    playlane("status", "r1", "--debug")
    assert caplog.records[-1].exc_info is not None


def test_an_unexpected_error_is_one_line(playlane: Run, monkeypatch: pytest.MonkeyPatch):
    def break_down() -> None:
        raise RuntimeError("odd")

    monkeypatch.setattr("workers.cli.status.connect", break_down)
    code, _, err = playlane("status", "r1")
    assert code == FAILED
    assert err.startswith("error: unexpected RuntimeError: odd")
    assert "--debug" in err


def test_usage_errors_exit_with_2(playlane: Run):
    assert playlane("watch")[0] == BAD_INPUT
    assert playlane("worker", "cooks")[0] == BAD_INPUT
    assert playlane("dance")[0] == BAD_INPUT


def test_worker_refuses_lanes_that_nobody_declared(playlane: Run):
    code, _, err = playlane("worker", "lanes", "--lanes", "default,nowhere")
    assert code == BAD_INPUT
    assert "no such lane: nowhere" in err
    with pytest.raises(BadInputError, match="takes no lanes"):
        worker.lane_names(worker.Role.ROWS, "default")
    assert worker.lane_names(worker.Role.LANES, " default, ") == ("default",)


def test_flower_without_a_login_stays_on_this_machine():
    flower.refuse_open_door("127.0.0.1", "", {})
    flower.refuse_open_door("0.0.0.0", "me:pw", {})
    flower.refuse_open_door("0.0.0.0", "", {"FLOWER_AUTH": ".*@example.com"})
    with pytest.raises(BadInputError, match="open to everyone"):
        flower.refuse_open_door("0.0.0.0", "", {})
    with pytest.raises(BadInputError, match="user:password"):
        flower.refuse_open_door("0.0.0.0", "me", {})


@pytest.mark.parametrize(
    ("refresh", "force", "options"),
    [
        ([], False, {}),
        ([Refresh.TOOLS], False, {"refresh_tools": True}),
        ([], True, {"refresh_failed": True, "refresh_steps": True}),
        (
            [Refresh.FAILED, Refresh.TOOLS],
            True,
            {"refresh_tools": True, "refresh_failed": True, "refresh_steps": True},
        ),
    ],
)
def test_refresh_and_force_become_options_of_the_run(
    refresh: list[Refresh], force: bool, options: dict[str, bool]
):
    assert run_options(refresh, force=force) == options
    assert RunOptions.model_validate(options)
