"""`playlane budget`: how a run's budget is shown."""

from io import StringIO

from rich.console import Console

from runtime.model.budget import Account, Caps, RunBudget
from workers.cli.budget import budget_json, tell, waiting_line

OWN = Account(
    account="run-1",
    caps=Caps(credits=30, tool_calls=100),
    credits_spent=8.5,
    credits_held=1.5,
    tool_calls=10,
    short_s=60.0,
)


def shown(found: RunBudget | None) -> str:
    out = StringIO()
    tell(Console(file=out, width=120), "run-1", found)
    return out.getvalue()


def test_caps_use_and_who_waits() -> None:
    text = shown(RunBudget(run_id="run-1", own=OWN, waiting_rows=20, waiting_calls=1))
    lines = [line.split() for line in text.splitlines()]
    assert ["run-1", "credits", "30", "8.5", "1.5", "20"] in lines
    assert ["tool", "calls", "100", "10", "90"] in lines
    assert ["retries", "none", "0"] in lines
    assert "waits for budget: 20 rows and 1 call of the body" in text
    assert "`playlane budget run-1 --credits N`" in text


def test_it_names_the_account_that_is_short_and_of_what() -> None:
    caller = Account(account="root", caps=Caps(tool_calls=5), tool_calls=5, short_s=1.0)
    own = Account(account="run-1", caps=Caps(credits=30))
    line = waiting_line(RunBudget(run_id="run-1", own=own, callers=(caller,), waiting_rows=1))
    assert line == "waits for budget: 1 row; raise it with `playlane budget root --tool-calls N`"
    assert waiting_line(RunBudget(run_id="run-1", own=own)) == ""


def test_a_run_without_caps() -> None:
    assert "run run-1 has no caps" in shown(None)
    assert budget_json("run-1", None) == {
        "run_id": "run-1",
        "accounts": [],
        "waiting_rows": 0,
        "waiting_calls": 0,
    }


def test_the_same_for_machines() -> None:
    found = budget_json("run-1", RunBudget(run_id="run-1", own=OWN, waiting_rows=20))
    assert found["accounts"] == [
        {
            "account": "run-1",
            "credits": {"cap": 30, "used": 8.5, "reserved": 1.5},
            "tool_calls": {"cap": 100, "used": 10, "reserved": 0},
            "retries": {"cap": None, "used": 0, "reserved": 0},
            "child_plays": {"cap": None, "used": 0, "reserved": 0},
            "short_s": 60.0,
        }
    ]
    assert found["waiting_rows"] == 20
