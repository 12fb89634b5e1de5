"""What happens in runs, told early to whoever watches. Nothing depends on it."""

from typing import Protocol

from runtime.model.events import Event


class EventSink(Protocol):
    def emit(self, run_id: str, event: Event) -> None:
        """Never waits, never raises; what can't be told is dropped. After a run's RunEnded nothing of it is told."""
        ...


class NoEvents:
    """Tells nobody."""

    def emit(self, run_id: str, event: Event) -> None:
        pass


no_events = NoEvents()
