"""The probe of a worker, asked as an orchestrator asks it."""

from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest

from runtime.policy.limits import Limits
from workers.cli.main import run
from workers.probe_server import ProbeServer
from workers.reading import is_reading
from workers.vitals import VitalSigns


@pytest.fixture
def signs(monkeypatch: pytest.MonkeyPatch) -> VitalSigns:
    fresh = VitalSigns()
    monkeypatch.setattr("workers.probe_server.vital_signs", fresh)
    return fresh


@pytest.fixture
def port(signs: VitalSigns) -> Iterator[int]:
    server = ProbeServer("127.0.0.1", 0, Limits(), lambda: {"role": "rows"})
    server.start()
    yield server.port
    server.stop()


def well(signs: VitalSigns) -> None:
    for mark in (signs.loop, signs.session, signs.redis, signs.reading):
        mark()


def test_it_is_red_until_everything_works_and_again_when_it_is_stopped(port: int, signs: VitalSigns) -> None:
    url = f"http://127.0.0.1:{port}"
    red = httpx.get(f"{url}/readyz", trust_env=False)
    assert (red.status_code, red.json()["role"]) == (503, "rows")
    assert len(red.json()["reasons"]) == 4
    well(signs)
    assert httpx.get(f"{url}/readyz", trust_env=False).json() == {
        "ready": True,
        "reasons": [],
        "role": "rows",
    }
    signs.disconnected()
    assert httpx.get(f"{url}/readyz", trust_env=False).json()["reasons"] == [
        "it lost its connection to the broker"
    ]
    signs.reading()
    assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 200
    signs.drain()
    assert httpx.get(f"{url}/readyz", trust_env=False).status_code == 503
    assert httpx.get(f"{url}/healthz", trust_env=False).json() == {"alive": True}
    assert "python_info" in httpx.get(f"{url}/metrics", trust_env=False).text
    assert httpx.get(f"{url}/else", trust_env=False).status_code == 404


def test_the_command_answers_by_its_exit_code(
    port: int, signs: VitalSigns, capsys: pytest.CaptureFixture
) -> None:
    assert run(["probe", "--port", str(port)]) == 1
    assert "it doesn't read its queues yet" in capsys.readouterr().out
    well(signs)
    assert run(["probe", "--port", str(port)]) == 0
    assert capsys.readouterr().out == "ready\n"


def test_a_port_without_a_worker_is_unreachable(capsys: pytest.CaptureFixture) -> None:
    assert run(["probe", "--port", "1"]) == 3
    assert "no worker answers on port 1" in capsys.readouterr().err


class Consumer(SimpleNamespace):
    def __init__(self, *, connected: bool = True, polls: object = True, can_consume: bool = True) -> None:
        qos = SimpleNamespace(can_consume=lambda: can_consume)
        channel = SimpleNamespace(_in_poll=polls, qos=qos)
        super().__init__(
            connection=SimpleNamespace(connected=connected), task_consumer=SimpleNamespace(channel=channel)
        )


@pytest.mark.parametrize(
    ("consumer", "reads"),
    [
        (Consumer(), True),
        (Consumer(connected=False), False),
        (Consumer(polls=False), False),
        (Consumer(polls=False, can_consume=False), True),  # all slots are busy: it holds back on purpose
        (SimpleNamespace(connection=None, task_consumer=None), False),
    ],
)
def test_a_consumer_reads_while_it_asks_for_messages(consumer: object, reads: bool) -> None:
    assert is_reading(consumer) is reads
