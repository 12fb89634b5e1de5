"""Answers the requests of the approvals demo, once all of them wait and nothing is held."""

from collections.abc import Callable
from dataclasses import dataclass

from examples.flower_report import active_tasks
from runtime.client import PlayClient
from runtime.model.run import RunState
from runtime.model.status import RunStatus, SheetRow


def answer_to(number: int) -> dict[str, object] | None:
    """What is said of the n-th request: every third is never answered, every fourth is declined."""
    if number % 3 == 0:
        return None
    return {"approved": number % 4 != 0, "by": "the demo"}


def is_as_answered(row: SheetRow) -> bool:
    """Whether the sheet tells what was said, and only what was approved was ordered."""
    said = answer_to(int(str(row.data["id"]).removeprefix("r")))
    if said is None:
        return row.data.get("outcome") == "expired" and row.data.get("order") is None
    ordered = f"v:order {row.data['id']}" if said["approved"] else None
    return row.data.get("decision") == said and row.data.get("order") == ordered


@dataclass(slots=True, kw_only=True)
class Approver:
    """Looks at the run; tells its events when the run waits and no worker has a task, and says so."""

    client: PlayClient
    rows: int
    flower_url: str
    say: Callable[[str], None]
    active: Callable[[str], int] = active_tasks
    has_answered: bool = False

    def look(self, status: RunStatus) -> None:
        """Answer, if it is time to."""
        if self.has_answered or status.state is not RunState.WAITING:
            return
        if self.active(self.flower_url) > 0:
            return
        self.has_answered = True
        answered = [n for n in range(1, self.rows + 1) if answer_to(n) is not None]
        self.say(
            f"the run waits, and no worker has a task (says Flower); now {len(answered):,} of {self.rows:,} "
            "requests are answered"
        )
        for number in answered:
            self.client.deliver(f"approval:r{number:05}", answer_to(number))
