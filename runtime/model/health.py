"""What an examination of a deployment sees, and what it makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at; `fix` says what to do where it isn't well."""

    what: str
    verdict: Verdict
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    version: int  # 150004 = 15.4
    now_s: float
    connections: int
    max_connections: int
    migration: str | None
    newest_migration: str
    stuck_runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisFacts:
    server: str  # redis or valkey
    version: tuple[int, ...]
    now_s: float
    eviction: str | None  # None = the server hides it
    is_cluster: bool
    used_bytes: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """Queues that there should be, what waits in them, and who reads them (None = nobody could be asked)."""

    waiting: Mapping[str, int]
    readers: Mapping[str, int] | None = field(default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveWorker:
    """A session that goes on, and what it holds."""

    session_id: str
    role: str
    hostname: str
    pid: int
    started_at: datetime
    renewed_s: float  # since its last renewal
    runs: int
    slices: int
