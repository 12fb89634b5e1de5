"""Every Python block of the README, run."""

from typing import Any

import pytest

from examples.execution_api.contacts import domain_of
from runtime.model.messages import parse_play_run
from runtime.play import plays
from runtime.testing.plays import run_play
from tests.readme import blocks, code_of

INTRO, STEPS, TESTED, STARTED, BUDGETS = (
    "playlane",
    "Steps, programs, waterfalls",
    "Test a play",
    "Start runs from another service",
    "Budgets",
)
COMPANIES = "name,website\nAcme,https://www.acme.com/about\nBorealis,https://shop.borealis.co.uk\n"


@pytest.fixture(autouse=True)
def no_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's plays are of their test alone."""
    monkeypatch.setattr(plays, "_plays", {})


def run(code: str, **given: Any) -> dict[str, Any]:
    names = dict(given)
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_each_block_is_run_by_a_test() -> None:
    """`Test a play` is run by test_readme_play.py, the client's block on a real stack by the acceptance tests."""
    assert [heading for heading, _ in blocks()] == [INTRO, STEPS, TESTED, TESTED, STARTED, STARTED, BUDGETS]
    for _, code in blocks():
        compile(code, "README.md", "exec")


def test_the_first_play() -> None:
    names = run(code_of(INTRO)[0])
    done = run_play(
        names["enrich_companies"], {"file": {"content": COMPANIES}}, tools={"domain_of": domain_of}
    )
    assert done.ok, done.error
    assert [(row["name"], row["site"]["domain"], row["is_com"]) for row in done.rows()] == [
        ("Acme", "acme.com", True),
        ("Borealis", "borealis.co.uk", False),
    ]


def test_the_program() -> None:
    contact = run(code_of(STEPS)[0])["contact"]

    async def by_itself(ctx: Any, input: Any) -> Any:
        rows = [{"name": "Acme", "website": "acme.com"}, {"name": "Nobody", "website": "nowhere"}]
        await ctx.dataset("a", rows).with_column("contact", contact).run(key="name")
        return await ctx.run_steps(contact, {"name": "Acme", "website": "acme.com"})

    from runtime import play

    play("by_itself")(by_itself)
    done = run_play("by_itself", tools={"domain_of": domain_of})
    assert done.ok, done.error
    assert done.result == {"mail": "hello@acme.com", "name": "Acme"}
    assert [row["contact"]["mail"] for row in done.rows()] == ["hello@acme.com", "-"]


def test_the_message_from_another_service() -> None:
    sent: dict[str, Any] = {}

    class App:
        def send_task(self, name: str, **options: Any) -> None:
            sent.update(options, name=name)

    run(code_of(STARTED)[1], app=App())
    assert (sent["name"], sent["queue"]) == ("plays.run", "control")
    message = parse_play_run(sent["kwargs"], input_bytes=1_000)
    assert (message.run_id, message.play) == ("r-1", "airports")


def test_the_play_with_caps() -> None:
    run(code_of(BUDGETS)[0])
    assert plays.find("enrich_companies").caps.credits == 500
