"""A worker's log lines, as a machine reads them."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.contextvars import bound_contextvars

from runtime.known_secrets import known_secrets
from workers.logs import configure_logs


@pytest.fixture
def restored() -> Iterator[None]:
    """Logging is the process's: as it was before."""
    root = logging.getLogger()
    handlers, level, config = list(root.handlers), root.level, structlog.get_config()
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    structlog.configure(**config)
    known_secrets.forget("logs")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_json_lines_carry_what_is_bound_and_no_secret(
    restored: None, capsys: pytest.CaptureFixture[str]
) -> None:
    known_secrets.add("logs", "KEY", "very-secret-word")
    configure_logs("INFO", as_json=True)
    with bound_contextvars(run_id="r-1", dataset="companies", row="acme", lane="prov"):
        structlog.get_logger().warning("sent", action="lane.send", url="https://x/?k=very-secret-word")
        logging.getLogger("somelib").error("failed: %s", "very-secret-word")
        structlog.get_logger().debug("too fine")
    ours, theirs = lines(capsys)
    place = {"run_id": "r-1", "dataset": "companies", "row": "acme", "lane": "prov"}
    assert ours | place == ours
    assert (ours["event"], ours["level"], ours["action"]) == ("sent", "warning", "lane.send")
    assert ours["url"] == "https://x/?k=[secret KEY]"
    assert theirs | place == theirs
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "failed: [secret KEY]",
        "error",
        "somelib",
    )
    assert {"timestamp"} <= ours.keys() & theirs.keys()


def test_a_traceback_is_one_json_line(restored: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO", as_json=True)
    try:
        raise ValueError("no such thing")
    except ValueError:
        structlog.get_logger().exception("broke", action="x")
        logging.getLogger("somelib").exception("broke too")
    ours, theirs = lines(capsys)
    assert "ValueError: no such thing" in ours["exception"]
    assert "ValueError: no such thing" in theirs["exception"]


def test_lines_for_people_are_plain(restored: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("INFO", as_json=False)
    structlog.get_logger().info("sent", lane="prov")
    logging.getLogger("celery").info("chatter")
    logging.getLogger("celery").warning("heard")
    said = capsys.readouterr().out
    assert "sent" in said
    assert "lane=prov" in said
    assert "chatter" not in said
    assert "WARNING celery heard" in said
