"""What doctor makes of what it sees: each bad thing is named with its fix."""

from dataclasses import replace

import pytest

from runtime.errors import BadInputError
from runtime.model.health import DatabaseFacts, Finding, QueueFacts, RedisFacts, Verdict
from runtime.policy.diagnosis import of_database, of_queues, of_redis, worst
from runtime.policy.limits import Limits
from workers.cli.purge import age_s

LIMITS = Limits()
NOW_S = 1_000.0
DATABASE = DatabaseFacts(
    version=160_004,
    now_s=NOW_S,
    connections=10,
    max_connections=100,
    migration="0006",
    newest_migration="0006",
)
REDIS = RedisFacts(
    server="redis",
    version=(7, 4, 1),
    now_s=NOW_S,
    eviction="noeviction",
    is_cluster=False,
    used_bytes=2**20,
    max_bytes=0,
)


def bad(findings: list[Finding]) -> dict[str, Verdict]:
    return {one.what: one.verdict for one in findings if one.verdict is not Verdict.OK}


def test_a_healthy_deployment_has_nothing_to_fix() -> None:
    findings = [*of_database(DATABASE, NOW_S, LIMITS), *of_redis(REDIS, NOW_S, LIMITS)]
    assert bad(findings) == {}
    assert worst(findings) is Verdict.OK
    assert not any(one.fix for one in findings)


@pytest.mark.parametrize(
    ("facts", "what", "verdict"),
    [
        (replace(DATABASE, version=140_009), "Postgres version", Verdict.BAD),
        (replace(DATABASE, migration="0003"), "schema", Verdict.BAD),
        (replace(DATABASE, migration=None), "schema", Verdict.BAD),
        (replace(DATABASE, connections=81), "connections to Postgres", Verdict.WARN),
        (replace(DATABASE, now_s=NOW_S + 90), "clock of Postgres", Verdict.WARN),
        (replace(DATABASE, stuck_runs=("r-1",)), "runs that stand still", Verdict.BAD),
    ],
)
def test_what_is_wrong_with_postgres_is_named(facts: DatabaseFacts, what: str, verdict: Verdict) -> None:
    findings = of_database(facts, NOW_S, LIMITS)
    assert bad(findings) == {what: verdict}
    assert next(one.fix for one in findings if one.what == what)


@pytest.mark.parametrize(
    ("facts", "what", "verdict"),
    [
        (replace(REDIS, version=(6, 2, 1)), "Redis version", Verdict.BAD),
        (replace(REDIS, server="valkey", version=(7, 1, 0)), "Redis version", Verdict.BAD),
        (replace(REDIS, eviction="allkeys-lru"), "Redis eviction", Verdict.BAD),
        (replace(REDIS, eviction=None), "Redis eviction", Verdict.WARN),
        (replace(REDIS, is_cluster=True), "Redis cluster", Verdict.BAD),
        (replace(REDIS, max_bytes=2**20 + 1), "Redis memory", Verdict.WARN),
        (replace(REDIS, now_s=NOW_S - 6), "clock of Redis", Verdict.WARN),
    ],
)
def test_what_is_wrong_with_redis_is_named(facts: RedisFacts, what: str, verdict: Verdict) -> None:
    assert bad(of_redis(facts, NOW_S, LIMITS)) == {what: verdict}


def test_a_queue_that_nobody_reads_is_bad_once_something_waits() -> None:
    facts = QueueFacts(waiting={"rows": 0, "lane.acme": 7, "control": 3}, readers={"control": 1})
    findings = of_queues(facts)
    assert bad(findings) == {"queue rows": Verdict.WARN, "queue lane.acme": Verdict.BAD}
    assert "playlane worker lanes --lanes acme" in next(one.fix for one in findings if "acme" in one.what)


def test_silence_of_all_workers_is_said() -> None:
    assert [one.verdict for one in of_queues(QueueFacts(waiting={"rows": 1}))] == [Verdict.WARN]


def test_an_age_is_a_number_and_a_unit() -> None:
    assert age_s("12h", "--older-than") == 43_200
    assert age_s("30d", "--older-than") == 2_592_000
    for text in ("30", "0d", "-1d", "1 month", "d"):
        with pytest.raises(BadInputError, match="--older-than"):
            age_s(text, "--older-than")
