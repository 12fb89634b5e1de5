"""From what was seen of a deployment to findings, each with its fix."""

from runtime.model.health import DatabaseFacts, Finding, QueueFacts, RedisFacts, Verdict
from runtime.policy.limits import Limits

POSTGRES_LEAST = 150_000
REDIS_LEAST = {"redis": (7, 0), "valkey": (7, 2)}


def of_database(facts: DatabaseFacts, here_s: float, limits: Limits) -> list[Finding]:
    """Version, schema, connections, clock and runs that stand still."""
    return [
        _finding(
            "Postgres version",
            f"{facts.version // 10_000}.{facts.version % 10_000}",
            facts.version >= POSTGRES_LEAST,
            "use Postgres 15 or newer",
        ),
        _finding(
            "schema",
            facts.migration or "none",
            facts.migration == facts.newest_migration,
            f"run `playlane migrate` (the newest is {facts.newest_migration}); workers may go on meanwhile",
        ),
        _connections(facts, limits),
        _clock("clock of Postgres", facts.now_s, here_s, limits),
        _finding(
            "runs that stand still",
            ", ".join(facts.stuck_runs) or "none",
            not facts.stuck_runs,
            "nobody takes them: start control and play workers, and look at their logs (`playlane status RUN`)",
        ),
    ]


def of_redis(facts: RedisFacts, here_s: float, limits: Limits) -> list[Finding]:
    """Version, eviction, cluster, memory and clock."""
    least = REDIS_LEAST.get(facts.server, (7, 0))
    return [
        _finding(
            "Redis version",
            f"{facts.server} {'.'.join(map(str, facts.version))}",
            facts.version[:2] >= least,
            "use Redis 7 or Valkey 7.2, or newer",
        ),
        _eviction(facts),
        _finding(
            "Redis cluster",
            "yes" if facts.is_cluster else "no",
            not facts.is_cluster,
            "use one Redis server (with a replica, if you like): scripts touch keys of several slots",
        ),
        _memory(facts, limits),
        _clock("clock of Redis", facts.now_s, here_s, limits),
    ]


def of_queues(facts: QueueFacts) -> list[Finding]:
    """A queue without a reader, named with what waits in it."""
    if facts.readers is None:
        return [
            Finding(
                what="queues",
                verdict=Verdict.WARN,
                found="no worker answered within the time",
                fix="start workers (`playlane up`, or `playlane worker ROLE`), or look whether they reach the broker",
            )
        ]
    return [_queue(name, waiting, facts.readers.get(name, 0)) for name, waiting in facts.waiting.items()]


def worst(findings: list[Finding]) -> Verdict:
    """The gravest verdict among them."""
    verdicts = {finding.verdict for finding in findings}
    return next((one for one in (Verdict.BAD, Verdict.WARN) if one in verdicts), Verdict.OK)


def _queue(name: str, waiting: int, readers: int) -> Finding:
    role = f"lanes --lanes {name.removeprefix('lane.')}" if name.startswith("lane.") else name
    return _finding(
        f"queue {name}",
        f"{readers} reading, {waiting:,} waiting",
        readers > 0,
        f"nobody reads it: start `playlane worker {role}`",
        Verdict.BAD if waiting else Verdict.WARN,
    )


def _connections(facts: DatabaseFacts, limits: Limits) -> Finding:
    share = facts.connections / max(1, facts.max_connections)
    return _finding(
        "connections to Postgres",
        f"{facts.connections} of {facts.max_connections}",
        share < limits.doctor_connections_share,
        f"raise max_connections or run fewer processes (each keeps up to {limits.database_pool + 1})",
        Verdict.WARN,
    )


def _eviction(facts: RedisFacts) -> Finding:
    if facts.eviction is None:
        return Finding(
            what="Redis eviction",
            verdict=Verdict.WARN,
            found="the server doesn't say",
            fix="make sure that its maxmemory-policy is noeviction: a forgotten lease may be paid twice",
        )
    return _finding(
        "Redis eviction",
        facts.eviction,
        facts.eviction == "noeviction",
        "set maxmemory-policy noeviction: a forgotten lease may be paid twice, a forgotten message is work lost",
    )


def _memory(facts: RedisFacts, limits: Limits) -> Finding:
    used = f"{facts.used_bytes / 2**20:,.0f} MiB"
    full = facts.max_bytes > 0 and facts.used_bytes >= limits.doctor_memory_share * facts.max_bytes
    return _finding(
        "Redis memory",
        used + (f" of {facts.max_bytes / 2**20:,.0f} MiB" if facts.max_bytes else ", no limit"),
        not full,
        "give it more memory: when it is full it refuses writes and all work stops",
        Verdict.WARN,
    )


def _clock(what: str, there_s: float, here_s: float, limits: Limits) -> Finding:
    skew_s = there_s - here_s
    return _finding(
        what,
        f"{skew_s:+.1f} s from this machine",
        abs(skew_s) <= limits.doctor_clock_skew_s,
        "set the clocks by NTP; leases and limits use the servers' clocks, but dates shown to people would be wrong",
        Verdict.WARN,
    )


def _finding(what: str, found: str, well: bool, fix: str, verdict: Verdict = Verdict.BAD) -> Finding:
    if well:
        return Finding(what=what, verdict=Verdict.OK, found=found)
    return Finding(what=what, verdict=verdict, found=found, fix=fix)
