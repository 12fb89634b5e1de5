"""`playlane up`: the whole stack in the foreground."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from runtime.errors import PlaylaneError, StackStoppedError
from workers.stack.account import own_account
from workers.stack.binaries import Prefer
from workers.stack.console import Console
from workers.stack.folders import claimed_folder
from workers.stack.servers import DATABASE_VARIABLE, REDIS_VARIABLE, Servers, running_servers
from workers.stack.stack import (
    API_VARIABLE,
    DEFAULT_MODULES,
    MODULES_VARIABLE,
    Counts,
    StackPorts,
    start_stack,
)
from workers.stack.supervisor import Supervisor

FLOWER_PORT = 5555
API_PORT = 8765
ENQUEUE = (
    "python -m examples.airports_csv airports.csv && playlane enqueue airports --csv airports.csv --watch"
)
OWN_ENQUEUE = "playlane enqueue PLAY --csv FILE --watch"


def run_up(
    state: Path,
    counts: Counts | None = None,
    *,
    flower: bool = True,
    api: bool = True,
    fast: bool = False,
    prefer: Prefer = "auto",
    console: Console | None = None,
    enqueue: str | None = None,
) -> int:
    """Runs until Ctrl-C or SIGTERM (0), or until the stack can't go on (1)."""
    console = console or Console()
    enqueue = enqueue or (OWN_ENQUEUE if os.environ.get(MODULES_VARIABLE) else ENQUEUE)
    supervisor = Supervisor(console)
    state = state.resolve()
    with _stopping_on_signals(supervisor):
        try:
            with (
                claimed_folder(state, "up", own_account()) as folder,
                running_servers(
                    state, fast=fast, prefer=prefer, supervisor=supervisor, quiet=False
                ) as servers,
            ):
                for note in servers.notes:
                    console.say("system", note)
                ports = start_stack(
                    supervisor,
                    servers,
                    counts=counts,
                    flower=flower,
                    api=api,
                    flower_port=FLOWER_PORT,
                    api_port=API_PORT,
                )
                with _env_file(folder.path / "stack.env", servers, ports) as env_file:
                    _tell(console, ports, env_file, enqueue)
                    reason = supervisor.watch()
                if reason is not None:
                    console.say("system", reason)
                return 0 if reason is None else 1
        except StackStoppedError:
            return 0
        except PlaylaneError as error:
            console.say("system", str(error))
            return 1
        finally:
            supervisor.stop()
            console.say("system", "stopped; nothing is left running")


@contextmanager
def _stopping_on_signals(supervisor: Supervisor) -> Iterator[None]:
    def ask(_signal: int, _frame: FrameType | None) -> None:
        supervisor.ask_stop()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, ask) for number in signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _env_file(path: Path, servers: Servers, ports: StackPorts) -> Iterator[Path]:
    """The stack's addresses for another terminal; readable by its owner alone, for they hold passwords."""
    modules = os.environ.get(MODULES_VARIABLE) or DEFAULT_MODULES
    values = {
        DATABASE_VARIABLE: servers.database_url,
        REDIS_VARIABLE: servers.redis_url,
        MODULES_VARIABLE: modules,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }
    if ports.api_url is not None:
        values[API_VARIABLE] = ports.api_url
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in values.items())
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _tell(console: Console, ports: StackPorts, env_file: Path, enqueue: str) -> None:
    if ports.flower_url is not None:
        console.say("system", f"Flower          {ports.flower_url}")
    if ports.api_url is not None:
        console.say("system", f"execution API   {ports.api_url}")
    console.say("system", f"start a run     . {shlex.quote(str(env_file))} && {enqueue}")
    console.say("system", "stop            Ctrl-C")
