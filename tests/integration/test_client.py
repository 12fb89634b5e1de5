"""The client and the commands against real servers; a Celery consumer takes what they send."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from celery import Celery

from broker_config.celery_config import celery_settings
from broker_config.settings import Settings
from runtime.client import PlayClient
from runtime.errors import BadInputError, RunWaitExceededError, ServiceUnreachableError, UnknownRunError
from runtime.model.run import RunState
from runtime.policy.limits import Limits
from workers.cli.main import run
from workers.cli.terminal import BAD_INPUT, FAILED, OK

ANYWHERE = "http://127.0.0.1:1"


@pytest.fixture
def client(database_url: str, redis_url: str) -> Iterator[PlayClient]:
    with PlayClient(redis_url=redis_url, database_url=database_url, org_id="acme") as client:
        yield client


@pytest.fixture
def environment(database_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLAYLANE_DATABASE_URL", database_url)
    monkeypatch.setenv("PLAYLANE_REDIS_URL", redis_url)
    monkeypatch.setenv("PLAYLANE_PLAY_MODULES", "examples.plays.airports")
    monkeypatch.setenv("COLUMNS", "200")


def execute(database_url: str, statement: bytes, *values: Any) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(statement, values)


def end_run(database_url: str, run_id: str, state: str, error: dict[str, Any] | None = None) -> None:
    text = None if error is None else json.dumps(error)
    execute(
        database_url,
        b"update runs set state = %s, error = %s, ended_at = now() where run_id = %s",
        *(state, text, run_id),
    )


def messages(redis_url: str) -> list[dict[str, Any]]:
    with redis.Redis.from_url(redis_url) as broker:
        queued: Any = broker.lrange("control", 0, -1)
    return [json.loads(text) for text in reversed(queued)]


def kwargs_of(message: dict[str, Any]) -> dict[str, Any]:
    return json.loads(base64.b64decode(message["body"]))[1]


def test_the_row_is_written_and_the_message_sent(client: PlayClient, redis_url: str):
    run_id = client.enqueue("airports", {"file": "/data/a.csv", "none": None})
    status = client.status(run_id)
    assert (status.state, status.play, status.org_id) == (RunState.QUEUED, "airports", "acme")
    (message,) = messages(redis_url)
    assert message["headers"]["task"] == "plays.run"
    assert kwargs_of(message) == {
        "version": 1,
        "run_id": run_id,
        "org_id": "acme",
        "play": "airports",
        "input": {"file": "/data/a.csv", "none": None},
        "options": {},
    }


def test_the_wire_form_is_what_celery_puts_into_redis(client: PlayClient, redis_url: str):
    """Same headers, properties and body keys as a task sent by our own Celery configuration."""
    settings = Settings(database_url="postgresql://x/y", redis_url=redis_url, execution_api_url=ANYWHERE)  # type: ignore[arg-type]
    app = Celery("compare", set_as_current=False)
    app.conf.update(celery_settings(settings), task_send_sent_event=False)
    app.send_task("runs.cancel", kwargs={"version": 1, "run_id": "r1"}, ignore_result=True)
    client.cancel("r1")
    theirs, ours = messages(redis_url)
    app.close()
    assert ours.keys() == theirs.keys()
    assert ours["headers"].keys() == theirs["headers"].keys()
    assert ours["body"] == theirs["body"]
    for key in ("content-type", "content-encoding"):
        assert ours[key] == theirs[key]
    assert ours["properties"].keys() == theirs["properties"].keys()
    for key in ("delivery_info", "delivery_mode", "body_encoding", "priority"):
        assert ours["properties"][key] == theirs["properties"][key]


def test_sending_twice_starts_once(client: PlayClient, database_url: str):
    client.enqueue("airports", {"n": 1}, run_id="twice")
    end_run(database_url, "twice", "completed")
    assert client.enqueue("airports", {"n": 2}, run_id="twice") == "twice"
    assert client.status("twice").state is RunState.COMPLETED


def test_a_rerun_is_a_run_of_the_same_play_input_and_options(
    client: PlayClient, database_url: str, redis_url: str
):
    """In the org of the run, whoever asks; `only` waits until the run has ended."""
    client.enqueue("airports", {"n": 1}, run_id="r1", options={"refresh_failed": True})
    with pytest.raises(
        BadInputError, match="run r1 is queued: what of it failed or is missing is known when"
    ):
        client.rerun("r1", only="failed")
    end_run(database_url, "r1", "completed")
    with PlayClient(redis_url=redis_url, database_url=database_url, org_id="other") as other:
        assert other.rerun("r1", only="failed", as_run_id="r2") == "r2"
        end_run(database_url, "r2", "completed")
        again = other.rerun("r2", options={"refresh_tools": True})
    status = client.status("r2")
    assert (status.org_id, status.play, status.input) == ("acme", "airports", {"n": 1})
    assert status.options == {"refresh_failed": True, "only": "failed", "rerun_of": "r1"}
    assert client.status(again).options == {"refresh_failed": True, "refresh_tools": True, "rerun_of": "r2"}
    assert kwargs_of(messages(redis_url)[-1])["options"] == client.status(again).options
    with pytest.raises(BadInputError, match="only"):
        client.rerun("r1", only="broken")
    with pytest.raises(UnknownRunError):
        client.rerun("nobody")


def test_unknown_runs_are_errors(client: PlayClient):
    assert client.find("nobody") is None
    with pytest.raises(UnknownRunError, match='no run "nobody"'):
        client.status("nobody")


def test_wait_returns_the_end_or_says_that_the_run_goes_on(client: PlayClient, database_url: str):
    run_id = client.enqueue("airports")
    with pytest.raises(RunWaitExceededError, match=r"is queued after 0\.05 s; it goes on"):
        client.wait(run_id, timeout_s=0.05, poll_s=0.01)
    end_run(database_url, run_id, "completed")
    assert client.wait(run_id, timeout_s=5).state is RunState.COMPLETED


def test_a_message_that_redis_does_not_take_leaves_a_stored_run(database_url: str):
    with PlayClient(redis_url="redis://127.0.0.1:1/0", database_url=database_url) as client:
        with pytest.raises(ServiceUnreachableError, match="run r7 is stored and starts by itself"):
            client.enqueue("airports", run_id="r7")
        assert client.status("r7").state is RunState.QUEUED


def test_a_lost_database_connection_is_made_again(client: PlayClient, database_url: str):
    client.enqueue("airports", run_id="r1")
    execute(
        database_url,
        b"select pg_terminate_backend(pid) from pg_stat_activity"
        b" where application_name = 'playlane-client' and datname = current_database()",
    )
    assert client.status("r1").run_id == "r1"
    client.close()
    assert client.status("r1").run_id == "r1"


def test_lost_broker_connections_are_made_again(client: PlayClient, redis_url: str):
    client.cancel("r1")
    with redis.Redis.from_url(redis_url) as admin:
        admin.client_kill_filter(_type="normal", skipme=True)
    client.cancel("r2")
    assert [kwargs_of(message)["run_id"] for message in messages(redis_url)] == ["r1", "r2"]


def test_a_database_without_tables_says_what_to_run(servers: Any):
    client = PlayClient(redis_url=servers.redis_url, database_url=servers.database_url)
    with client, pytest.raises(BadInputError, match="playlane migrate"):
        client.status("r1")


def test_a_sheet_is_read_page_by_page(database_url: str, redis_url: str):
    execute(
        database_url,
        b"insert into sheet_rows (org_id, play, namespace, row_key, data, cell_meta, write_version, run_id)"
        b" select 'default', 'p', 'n', 'k' || n, jsonb_build_object('n', n), '{}', 1, 'r'"
        b" from generate_series(1, 25) n",
    )
    limits = Limits(client_sheet_rows=10)
    with PlayClient(redis_url=redis_url, database_url=database_url, limits=limits) as client:
        assert sorted(row.data["n"] for row in client.sheet("p", "n")) == list(range(1, 26))


@pytest.mark.usefixtures("environment")
class TestCommands:
    def test_enqueue_prints_the_id_and_what_to_do_next(
        self, redis_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ):
        (tmp_path / "a.csv").write_text("icao\nEDDF\n")
        code = run(["enqueue", "airports", "--csv", "a.csv", "--run-id", "r1", "--org", "acme"])
        out = capsys.readouterr().out
        assert code == OK
        assert out.splitlines()[0] == "r1 is queued"
        assert "playlane watch r1" in out
        sent = kwargs_of(messages(redis_url)[0])
        assert (sent["org_id"], sent["input"]) == ("acme", {"file": str(tmp_path / "a.csv")})

    def test_enqueue_again_says_that_nothing_new_started(self, capsys: pytest.CaptureFixture[str]):
        assert run(["enqueue", "airports", "--run-id", "r1", "--json"]) == OK
        assert run(["enqueue", "airports", "--run-id", "r1", "--json"]) == OK
        first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
        assert (first["new"], second["new"]) == (True, False)

    def test_status_of_an_unknown_run(self, capsys: pytest.CaptureFixture[str]):
        assert run(["status", "nobody"]) == BAD_INPUT
        assert 'error: there is no run "nobody"' in capsys.readouterr().err

    def test_status_for_machines_and_for_people(self, capsys: pytest.CaptureFixture[str]):
        run(["enqueue", "airports", "--run-id", "r1", "--json"])
        capsys.readouterr()
        assert run(["status", "r1", "--json"]) == OK
        assert json.loads(capsys.readouterr().out)["state"] == "queued"
        assert run(["status", "r1"]) == OK
        assert "run r1: play airports, queued" in capsys.readouterr().out

    def test_watch_tells_why_a_run_failed(self, database_url: str, capsys: pytest.CaptureFixture[str]):
        run(["enqueue", "airports", "--run-id", "r1", "--json"])
        reason = {"code": "play_definition", "message": 'column "zone": the resolver is not callable'}
        end_run(database_url, "r1", "failed", reason)
        capsys.readouterr()
        assert run(["watch", "r1"]) == FAILED
        assert 'error: column "zone": the resolver is not callable' in capsys.readouterr().out
        assert run(["watch", "r1", "--json"]) == FAILED
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["error"] == reason

    def test_cancel_tells_what_became_of_it(self, database_url: str, capsys: pytest.CaptureFixture[str]):
        run(["enqueue", "airports", "--run-id", "r1", "--json"])
        end_run(database_url, "r1", "completed")
        capsys.readouterr()
        assert run(["cancel", "r1"]) == FAILED
        assert "had ended already as completed" in capsys.readouterr().out
        end_run(database_url, "r1", "cancelled")
        assert run(["cancel", "r1", "--json"]) == OK

    def test_migrate_is_safe_to_repeat(self, capsys: pytest.CaptureFixture[str]):
        assert run(["migrate"]) == OK
        assert "has the newest schema" in capsys.readouterr().out
