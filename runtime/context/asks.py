"""What an author asks of `ctx` beyond tools, as values: performed in a row, a child play or for a body."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from runtime.context.kept_cells import alive
from runtime.errors import JsonValueError
from runtime.model.json_value import check
from runtime.model.kept_value import plain
from runtime.model.operation import OpKind
from runtime.play import PlayDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(ABC):
    """`id` is the author's name for it; equal ids of one place are told apart by their number."""

    kind: ClassVar[OpKind]
    call: ClassVar[str]  # as the author writes it
    suspends: ClassVar[bool] = False  # a durable wait, or a dataset: not inside a child play

    id: str

    @abstractmethod
    def described(self) -> dict[str, Any]:
        """What a replay must ask for again."""

    def kept(self, value: Any) -> Any:
        """The outcome as JSON, for a journal."""
        return value

    def met(self, kept: Any) -> Any:
        """The outcome as the author meets it, live and replayed."""
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAsk(Ask):
    """A function of the author's whose outcome is kept."""

    kind: ClassVar[OpKind] = OpKind.STEP
    call: ClassVar[str] = "ctx.step"

    run: Callable[[], Any] = field(repr=False, compare=False)
    semantic_key: str | None = None
    stale_after_seconds: float | None = None

    @property
    def is_shared(self) -> bool:
        """Whether other runs are served its outcome."""
        return self.semantic_key is not None or self.stale_after_seconds is not None

    def described(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "semantic_key": self.semantic_key,
            "stale_after_seconds": self.stale_after_seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildAsk(Ask):
    """A play run inside this one, on its queues."""

    kind: ClassVar[OpKind] = OpKind.CHILD
    call: ClassVar[str] = "ctx.run_play"

    play: PlayDefinition
    input: Any = field(repr=False)
    ctx: Any = field(repr=False, compare=False)

    def described(self) -> dict[str, Any]:
        return {"id": self.id, "play": self.play.name, "input": self.input}

    def kept(self, value: Any) -> Any:
        given, marks = plain(value)
        try:
            check(given)
        except JsonValueError as bad:
            raise JsonValueError(
                bad.path, f'what child play "{self.play.name}" returned can\'t be kept: {bad.reason}'
            ) from bad
        return {"value": given, "kept": marks} if marks else {"value": given}

    def met(self, kept: Any) -> Any:
        return alive(kept["value"], kept.get("kept") or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """A child run that goes on by itself."""

    run_id: str
    play: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueAsk(Ask):
    """A run of its own for another play."""

    kind: ClassVar[OpKind] = OpKind.ENQUEUE
    call: ClassVar[str] = "ctx.enqueue_play"

    play: str
    input: Any = field(repr=False)

    def described(self) -> dict[str, Any]:
        return {"id": self.id, "play": self.play, "input": self.input}

    def met(self, kept: Any) -> Any:
        return ChildRun(run_id=kept["run_id"], play=self.play)
