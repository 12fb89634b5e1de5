"""`python -m examples.execution_api`: serve the reference execution API."""

import argparse
import os
from pathlib import Path

from examples.execution_api.execution import ApiState
from examples.execution_api.ledger import Ledger
from examples.execution_api.public_web import secrets_of
from examples.execution_api.server import ApiServer


def main() -> None:
    arguments = _arguments()
    state = ApiState(
        ledger=Ledger(arguments.ledger),
        start_latency_ms=arguments.latency_ms,
        token=os.environ.get("EXECUTION_API_TOKEN") or None,
        secrets=secrets_of(os.environ.get("EXECUTION_API_SECRETS", "")),
    )
    ApiServer(state, host=arguments.host, port=arguments.port).run()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m examples.execution_api", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--latency-ms", type=float, default=0.0, help="added to every execute request")
    parser.add_argument("--ledger", type=Path, default=None, help="JSON-lines file; read again on start")
    return parser.parse_args()


if __name__ == "__main__":
    main()
