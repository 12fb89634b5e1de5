"""`playlane budget RUN`: what a run may use, what is used, who waits for it; and more of it."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.model.budget import CAPS, MOST, Account, Caps, RunBudget
from workers.cli.connection import connect
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import say_json

Credits = Annotated[float | None, typer.Option("--credits", min=0, help="New total of credits.")]
ToolCalls = Annotated[
    int | None, typer.Option("--tool-calls", min=0, max=MOST, help="New total of tool calls.")
]
Retries = Annotated[
    int | None, typer.Option("--retries", min=0, max=MOST, help="New total of repeated requests.")
]
ChildPlays = Annotated[
    int | None, typer.Option("--child-plays", min=0, max=MOST, help="New total of child plays.")
]


def budget(
    run_id: RunId,
    credits: Credits = None,
    tool_calls: ToolCalls = None,
    retries: Retries = None,
    child_plays: ChildPlays = None,
    as_json: AsJson = False,
) -> None:
    """Show a run's caps and what is used; the options set new totals, and whoever waits for them goes on."""
    caps = Caps(credits=credits, tool_calls=tool_calls, retries=retries, child_plays=child_plays)
    with connect() as client:
        if caps.are_counted:
            client.change_budget(run_id, caps)
        found = client.budget(run_id)
    if as_json:
        say_json(budget_json(run_id, found))
    else:
        tell(Console(), run_id, found)


def budget_json(run_id: str, found: RunBudget | None) -> dict[str, Any]:
    """For machines; `accounts` is empty for a run without caps."""
    return {
        "run_id": run_id,
        "accounts": [] if found is None else [_account_json(one) for one in _accounts(found)],
        "waiting_rows": 0 if found is None else found.waiting_rows,
        "waiting_calls": 0 if found is None else found.waiting_calls,
    }


def tell(console: Console, run_id: str, found: RunBudget | None) -> None:
    """For people."""
    if found is None:
        console.print(Text(f"run {run_id} has no caps: nothing of it is counted against a budget"))
        return
    table = Table("budget of", "what", "cap", "used", "reserved", "left", box=None, header_style="bold")
    for account in _accounts(found):
        for row in _rows(account):
            table.add_row(*row)
    console.print(table)
    line = waiting_line(found)
    if line:
        console.print(Text(line, style="yellow"), soft_wrap=True)


def waiting_line(found: RunBudget) -> str:
    """Who waits for budget, and what to do; empty if nobody does."""
    parts = [
        f"{count} {what}{'s' * (count != 1)}"
        for count, what in ((found.waiting_rows, "row"), (found.waiting_calls, "call of the body"))
        if count
    ]
    if not parts:
        return ""
    short = [account for account in _accounts(found) if account.short_s is not None]
    account = (short or _accounts(found))[0]
    option = f"--{_used_up(account).replace('_', '-')} N"
    return (
        f"waits for budget: {' and '.join(parts)}; raise it with `playlane budget {account.account} {option}`"
    )


def _accounts(found: RunBudget) -> list[Account]:
    return [*([found.own] if found.own else []), *found.callers]


def _used_up(account: Account) -> str:
    most = account.caps.tool_calls
    return "tool_calls" if most is not None and account.tool_calls >= most else "credits"


def _rows(account: Account) -> Iterator[tuple[str, ...]]:
    name = account.account
    for what in CAPS:
        most, used, held = _figures(account, what)
        cap = "none" if most is None else f"{most:g}"
        left = "" if most is None else f"{max(0, most - used - held):g}"
        yield name, what.replace("_", " "), cap, f"{used:g}", f"{held:g}" if held else "", left
        name = ""


def _figures(account: Account, what: str) -> tuple[float | None, float, float]:
    if what == "credits":
        return account.caps.credits, account.credits_spent, account.credits_held
    return getattr(account.caps, what), getattr(account, what), 0


def _account_json(account: Account) -> dict[str, Any]:
    figures = {what: _figures(account, what) for what in CAPS}
    counted = {
        what: {"cap": most, "used": used, "reserved": held} for what, (most, used, held) in figures.items()
    }
    return {"account": account.account, **counted, "short_s": account.short_s}
