"""Play tasks: run a body until it ends or waits."""

from workers.app import app
from workers.wiring import process


@app.task(name="plays.resume")
def resume_play(run_id: str) -> None:
    """Claim the run and run its body; harmless if another holds it or nothing is new."""
    process().bodies.drive(run_id)
