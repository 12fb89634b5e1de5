"""The whole local stack as a list of processes: execution API, workers, Flower."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runtime.policy.limits import DEFAULT_LIMITS
from workers.stack.child import Child, Launch
from workers.stack.servers import DATABASE_VARIABLE, REDIS_VARIABLE, Servers
from workers.stack.sockets import answers_ok, free_port
from workers.stack.supervisor import Supervisor

API_VARIABLE = "PLAYLANE_EXECUTION_API_URL"
MODULES_VARIABLE = "PLAYLANE_PLAY_MODULES"
PROBE_VARIABLE = "PLAYLANE_PROBE_PORT"
DEFAULT_MODULES = ",".join(f"examples.plays.{name}" for name in ("airports", "leads", "approvals", "parent"))
PLAYLANE = (sys.executable, "-m", "workers.cli.main")
API = (sys.executable, "-m", "examples.execution_api")
LOCAL_HOSTS = "127.0.0.1,localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many processes of each role."""

    control: int = 1
    plays: int = 1
    rows: int = 1
    lanes: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StackPorts:
    """Where people find the stack; None for what was not asked for."""

    api_url: str | None
    flower_url: str | None
    probes: Mapping[str, int] = field(default_factory=dict)  # ports by worker


def start_stack(
    supervisor: Supervisor,
    servers: Servers,
    *,
    counts: Counts | None = None,
    flower: bool = True,
    api: bool = True,
    quiet: bool = False,
    logs: Path | None = None,
    env: Mapping[str, str] | None = None,
    api_args: Sequence[str] = (),
    api_port: int = 0,
    flower_port: int = 0,
    probes: bool = False,
) -> StackPorts:
    """Migrates the database, then starts all; returns when each is ready. `*_port`: taken if free."""
    from runtime.postgres_store import migrate

    migrate.upgrade(servers.database_url)
    environment = {**os.environ, **(env or {})}
    api_port = free_port(api_port) if api else 0
    flower_port = free_port(flower_port) if flower else 0
    api_url = f"http://127.0.0.1:{api_port}" if api else None
    children = stack_env(environment, servers, api_url)
    if api:
        supervisor.launch(_api(api_port, api_args, children, supervisor.next_tier(), quiet=quiet, logs=logs))
    tier = supervisor.next_tier()
    started: list[Child] = []
    ports: dict[str, int] = {}
    for name, role in worker_names(counts or Counts()):
        own = dict(children)
        if probes:
            ports[name] = free_port(0)
            own[PROBE_VARIABLE] = str(ports[name])
        started.append(supervisor.launch(_worker(name, role, own, tier, quiet=quiet, logs=logs), wait=False))
    if flower:
        started.append(
            supervisor.launch(_flower(flower_port, children, tier, quiet=quiet, logs=logs), wait=False)
        )
    for child in started:
        supervisor.wait_ready(child)
    flower_url = f"http://127.0.0.1:{flower_port}" if flower else None
    return StackPorts(api_url=api_url, flower_url=flower_url, probes=ports)


def worker_names(counts: Counts) -> list[tuple[str, str]]:
    """(name, role) of every worker: `rows`, or `rows-1`, `rows-2` where there are several."""
    roles = {"control": counts.control, "plays": counts.plays, "rows": counts.rows, "lanes": counts.lanes}
    return [
        (role if count == 1 else f"{role}-{number}", role)
        for role, count in roles.items()
        for number in range(1, count + 1)
    ]


def stack_env(environ: Mapping[str, str], servers: Servers, api_url: str | None) -> dict[str, str]:
    """What every process of the stack is told."""
    bypass = [hosts for hosts in (environ.get("NO_PROXY") or environ.get("no_proxy"), LOCAL_HOSTS) if hosts]
    env = {
        **environ,
        DATABASE_VARIABLE: servers.database_url,
        REDIS_VARIABLE: servers.redis_url,
        MODULES_VARIABLE: environ.get(MODULES_VARIABLE) or DEFAULT_MODULES,
        "FLOWER_UNAUTHENTICATED_API": "true",  # on loopback only; a Flower elsewhere demands a login
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": ",".join(bypass),
        "no_proxy": ",".join(bypass),
    }
    if api_url is not None:
        env[API_VARIABLE] = api_url
    return env


def _worker(
    name: str, role: str, env: Mapping[str, str], tier: int, *, quiet: bool, logs: Path | None
) -> Launch:
    return Launch(
        name=name,
        command=[*PLAYLANE, "worker", role, "--name", name],
        env=env,
        restart=True,
        stop_s=DEFAULT_LIMITS.worker_stop_s,
        quiet=quiet,
        log=_log(logs, name),
        ready_line=f"playlane ready role={role}",
        ready_timeout_s=DEFAULT_LIMITS.worker_ready_s,
        tier=tier,
    )


def _flower(port: int, env: Mapping[str, str], tier: int, *, quiet: bool, logs: Path | None) -> Launch:
    command = [*PLAYLANE, "flower", "--port", str(port)]
    return _web("flower", command, _answering(port, "/healthcheck"), env, tier, quiet=quiet, logs=logs)


def _api(
    port: int, args: Sequence[str], env: Mapping[str, str], tier: int, *, quiet: bool, logs: Path | None
) -> Launch:
    command = [*API, "--port", str(port), *args]
    return _web("api", command, _answering(port, "/healthz"), env, tier, quiet=quiet, logs=logs)


def _web(
    name: str,
    command: Sequence[str],
    ready: Callable[[], bool],
    env: Mapping[str, str],
    tier: int,
    *,
    quiet: bool,
    logs: Path | None,
) -> Launch:
    return Launch(
        name=name,
        command=command,
        env=env,
        restart=True,
        quiet=quiet,
        log=_log(logs, name),
        ready=ready,
        ready_timeout_s=DEFAULT_LIMITS.worker_ready_s,
        tier=tier,
    )


def _answering(port: int, path: str) -> Callable[[], bool]:
    return lambda: answers_ok(port, path)


def _log(logs: Path | None, name: str) -> Path | None:
    return logs / f"{name}.log" if logs else None
