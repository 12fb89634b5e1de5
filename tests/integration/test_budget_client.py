"""Budgets through the client: what can be raised, and what is said of what can't."""

import psycopg
import pytest

from runtime.client import PlayClient
from runtime.errors import BadInputError, UnknownRunError
from runtime.model.budget import Caps

OPENED = """
insert into runs (run_id, org_id, play, input, options, state)
select id, 'default', 'p', '{}', '{}', 'running' from unnest(array['capped', 'child', 'plain']) id;
insert into budgets (account, max_credits, credits_spent) values ('capped', 10, 4);
insert into budget_runs values ('capped', 'capped'), ('capped', 'child');
"""


@pytest.fixture
def client(database_url: str, redis_url: str):
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(OPENED)
    with PlayClient(redis_url=redis_url, database_url=database_url) as made:
        yield made


def test_a_raise_leaves_other_caps_as_they_are(client: PlayClient) -> None:
    client.change_budget("capped", Caps(credits=25, retries=3))
    found = client.budget("capped")
    assert found is not None and found.own is not None
    assert found.own.caps == Caps(credits=25, retries=3)
    assert found.own.credits_spent == 4


def test_a_child_shows_whose_budget_it_uses(client: PlayClient) -> None:
    found = client.budget("child")
    assert found is not None
    assert (found.own, [caller.account for caller in found.callers]) == (None, ["capped"])
    with pytest.raises(BadInputError, match="it counts against capped; raise those"):
        client.change_budget("child", Caps(credits=25))


def test_what_has_no_caps_or_is_unknown_is_named(client: PlayClient) -> None:
    assert client.budget("plain") is None
    with pytest.raises(BadInputError, match="run plain has no caps that could be raised"):
        client.change_budget("plain", Caps(credits=1))
    with pytest.raises(UnknownRunError, match="nobody"):
        client.budget("nobody")
