"""The files that deploy the product say what the code says: roles, commands, settings, and no secret."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from broker_config.queues import ROLES
from broker_config.settings import Settings
from runtime.policy.limits import Limits
from workers.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROCFILE = dict(
    line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines() if line and line[0] != "#"
)
SECRET = re.compile(r"PASSWORD|TOKEN|BASIC_AUTH")
WORKERS = {
    name: service
    for name, service in SERVICES.items()
    if service.get("build") and "entrypoint" not in service
}


def parsed(arguments: list[str]) -> None:
    """Raises a usage error for a command line that `playlane` would refuse."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("playlane", list(arguments))
    name, found, rest = command.resolve_command(context, list(arguments))
    found.make_context(name, rest, parent=context)


@pytest.mark.parametrize("name", WORKERS)
def test_a_service_of_ours_is_a_command_that_exists(name: str) -> None:
    parsed(list(WORKERS[name]["command"]))
    probe = WORKERS[name]["healthcheck"].get("test", [])
    if probe[1:2] == ["playlane"]:
        parsed(probe[2:])


@pytest.mark.parametrize("line", PROCFILE.values())
def test_a_process_of_the_procfile_is_a_command_that_exists(line: str) -> None:
    words = shlex.split(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", line))
    assert words[0] == "playlane"
    parsed(words[1:])


def test_every_role_has_a_service_and_a_process() -> None:
    for place in ({name: service["command"] for name, service in WORKERS.items()}, PROCFILE):
        text = "\n".join(line if isinstance(line, str) else " ".join(line) for line in place.values())
        assert all(re.search(rf"worker {role}\b", text) for role in ROLES)
        assert "migrate" in text
        assert "flower" in text


@pytest.mark.parametrize("name", WORKERS)
def test_only_settings_that_exist_are_set(name: str) -> None:
    known = {f"PLAYLANE_{field.upper()}" for field in Settings.model_fields}
    given = {key for key in WORKERS[name]["environment"] if key.startswith("PLAYLANE_")}
    assert given
    assert given <= known


@pytest.mark.parametrize("role", ROLES)
def test_workers_read_files_and_plays_where_the_host_puts_them(role: str) -> None:
    (mounted,) = (volume.rsplit(":", 2)[1] for volume in SERVICES[role]["volumes"])
    given = SERVICES[role]["environment"]
    assert given["PLAYLANE_WORKSPACE"] == given["PYTHONPATH"] == mounted


def test_no_secret_is_written_down_and_none_is_left_empty() -> None:
    for name, service in SERVICES.items():
        for key, value in service.get("environment", {}).items():
            asked = re.findall(r"\$\{(\w+)(:\?|:-)?", str(value))
            for variable, mark in asked:
                if SECRET.search(variable):
                    assert mark == ":?", f"{name}: {variable} must be asked for, without a default"
            if SECRET.search(key):
                assert asked, f"{name}: {key} is written in the file"


def test_redis_never_evicts_and_every_service_has_a_health_check() -> None:
    assert "--maxmemory-policy noeviction" in " ".join(SERVICES["redis"]["command"])
    assert all("healthcheck" in service for service in SERVICES.values())


def test_a_stop_waits_for_the_grace_of_a_worker() -> None:
    grace_s = Limits().sigterm_grace_s
    for role in ROLES:
        said = SERVICES[role]["stop_grace_period"]
        assert float(said.removesuffix("s")) > grace_s + 5


def test_services_that_scale_take_no_port_and_no_name_of_the_host() -> None:
    for role in ROLES:
        assert "ports" not in SERVICES[role]
        assert "container_name" not in SERVICES[role]


def test_the_image_runs_without_root_and_passes_signals_on() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert "USER playlane" in lines
    assert 'ENTRYPOINT ["playlane"]' in lines
    assert any("PYTHONHASHSEED=0" in line for line in lines)
