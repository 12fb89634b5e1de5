"""The demo as a user starts it: a process with a stack of its own that leaves nothing behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.acceptance
@pytest.mark.timeout(180)
def test_the_demo_completes_and_a_second_run_is_free(tmp_path: Path):
    command = [sys.executable, "-m", "examples.demo", "--rows", "300", "--again"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["status"], result["rows"], result["failed"]) == ("completed", 300, 0)
    assert result["calls"] >= 300
    assert result["agree"] > 0.9
    assert result["again_calls"] == 0
    assert "Flower: workers control 1, plays 1, rows 1, lanes 1" in done.stdout
    assert (tmp_path / ".playlane" / "logs" / "rows.log").exists()
