"""Stand-ins for the stack's processes: a worker that only gets ready, a web server that only answers."""

import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class AlwaysOk(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main(arguments: list[str]) -> None:
    if arguments[0] == "worker":
        sys.stdout.write(f"playlane ready role={arguments[1]}\n")
        sys.stdout.flush()
        time.sleep(600)
    else:
        HTTPServer(("127.0.0.1", int(arguments[arguments.index("--port") + 1])), AlwaysOk).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
