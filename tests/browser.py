"""Pages as a person sees them: headless Chromium, where it is installed."""

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
RUN_S = 60
SETTLE_MS = 8_000  # of the page's own clock, which runs ahead


def chromium() -> str:
    """The browser's program; the test is skipped without one."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs Chromium")
    return found


def dom_of(url: str, profile: Path) -> str:
    """The page's HTML after its scripts have run."""
    return _run(profile, "--dump-dom", url)


def screenshot(url: str, profile: Path, picture: Path, *, width: int = 1400, height: int = 900) -> Path:
    """The page as a PNG."""
    _run(profile, f"--screenshot={picture}", f"--window-size={width},{height}", url)
    return picture


def _run(profile: Path, *arguments: str) -> str:
    command = [
        chromium(),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        f"--virtual-time-budget={SETTLE_MS}",
        *arguments,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def different_lines(picture: Path) -> int:
    """How many lines of pixels of an 8-bit RGB or RGBA picture differ from all others: a blank page has one or two."""
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, kind = struct.unpack(">IIBB", data[16:26])
    assert depth == 8
    assert kind in (2, 6)
    pixel = 3 if kind == 2 else 4
    packed, at = b"", 8
    while at < len(data):
        length, name = struct.unpack(">I4s", data[at : at + 8])
        if name == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    raw = zlib.decompress(packed)
    row = width * pixel + 1
    return len({raw[y * row + 1 : (y + 1) * row] for y in range(height)})
