"""A whole stack of the demo's own: servers, workers, reference API and Flower, all stopped at the end."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from rich.console import Console as Screen

from examples import killing
from runtime.client import PlayClient
from runtime.context.workspace import WORKSPACE_VARIABLE
from runtime.errors import StackError
from runtime.model.status import RunStatus
from workers.cli.views import View
from workers.cli.watch import view_for, watched
from workers.stack.console import Console
from workers.stack.folders import temporary_state
from workers.stack.servers import Servers, running_servers
from workers.stack.stack import Counts, StackPorts, start_stack
from workers.stack.supervisor import Supervisor

STATE = Path(".playlane")
TABLES = STATE / "demo"
LONGEST_S = 3600.0

Look = Callable[[RunStatus], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoStack:
    """A running stack; `supervisor` tells when it can't go on."""

    servers: Servers
    ports: StackPorts
    supervisor: Supervisor

    @property
    def flower_url(self) -> str:
        return self.ports.flower_url or ""

    @property
    def api_url(self) -> str:
        return self.ports.api_url or ""

    def client(self) -> PlayClient:
        # An org of its own: receipts of an earlier demo in named servers don't make this one free.
        return PlayClient(
            redis_url=self.servers.redis_url,
            database_url=self.servers.database_url,
            org_id=f"demo-{token_hex(4)}",
        )

    def run(
        self,
        client: PlayClient,
        play: str,
        input: Mapping[str, Any],
        *,
        kill_of: int = 0,
        meanwhile: Callable[[Callable[[str], None]], Look] | None = None,
    ) -> RunStatus:
        """Enqueue the play and watch it to its end; of `kill_of` rows, kill workers on the way."""
        view = view_for(Screen(), as_json=False)
        looks: list[Look] = [meanwhile(view.note)] if meanwhile else []
        if kill_of:
            looks.append(killing.Killings(total=kill_of, pids=self.supervisor.pids, say=view.note).look)
        return self.watch(client, client.enqueue(play, dict(input)), view, looks)

    def watch(
        self, client: PlayClient, run_id: str, view: View | None = None, looks: list[Look] | None = None
    ) -> RunStatus:
        """A run to its end; each look at it is shown to `looks`."""
        deadline = time.monotonic() + LONGEST_S

        def look(run_id: str) -> RunStatus:
            if self.supervisor.failure:
                raise StackError(self.supervisor.failure)
            if time.monotonic() > deadline:
                raise StackError(f"the demo took longer than {LONGEST_S:g} s and is given up")
            status = client.status(run_id)
            for one in looks or ():
                one(status)
            return status

        return watched(look, run_id, view or view_for(Screen(), as_json=False))


def _workspace() -> str:
    """Where the demo was started; and its tables, which lie in a hidden folder that plays read nothing of else."""
    return os.pathsep.join(str(folder.absolute()) for folder in (Path(), TABLES))


@contextmanager
def demo_stack(counts: Counts | None = None, env: Mapping[str, str] | None = None) -> Iterator[DemoStack]:
    """Servers and workers of its own, quiet, with logs in `.playlane/logs`; all stopped on leaving."""
    logs = (STATE / "logs").absolute()
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as opened:
        # Restarts are told in a file of their own: on the terminal they would tear the bars.
        told = opened.enter_context((logs / "system.log").open("w", encoding="utf-8"))
        supervisor = Supervisor(Console(told))
        state = opened.enter_context(temporary_state())
        servers = opened.enter_context(running_servers(state, fast=True, supervisor=supervisor, logs=logs))
        for note in servers.notes:
            print(note)
        ports = start_stack(
            supervisor,
            servers,
            counts=counts,
            quiet=True,
            logs=logs,
            # Flower listens on this machine only, for as long as the demo runs.
            env={WORKSPACE_VARIABLE: _workspace(), **(env or {})},
        )
        supervisor.start_watching()
        print(f"Flower on {ports.flower_url}, logs in {logs}")
        yield DemoStack(servers=servers, ports=ports, supervisor=supervisor)
