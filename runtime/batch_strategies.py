"""Batch strategies that a deployment registers for its tools; those of other tools follow from the API's metadata."""

from runtime.errors import PlayDefinitionError
from runtime.model.tool import ToolMetadata
from runtime.policy.batching import BatchStrategy, KeyedBatch, PositionalBatch, SingleCall, strategy_for


class BatchStrategies:
    """By tool. A play module registers while it is imported, so that every process of the fleet knows the same."""

    def __init__(self) -> None:
        self._by_tool: dict[str, BatchStrategy] = {}

    def register(self, tool: str, strategy: BatchStrategy) -> None:
        """Batch `tool` by `strategy`, whatever its metadata say. Raises PlayDefinitionError if it can't be used.

        Change `revision` with anything that changes payload or split: a batch of a dead worker is sent again as it was.
        """
        known = self._by_tool.get(tool)
        if known is not None and known != strategy:
            raise PlayDefinitionError(
                f"tool {tool} has two batch strategies, {known!r} and {strategy!r}; keep one"
            )
        size = strategy.max_batch_size
        if not isinstance(size, int) or size < 1 or not strategy.operation or not strategy.revision:
            raise PlayDefinitionError(
                f"batch strategy {strategy!r} of tool {tool} needs an operation, a revision and a max_batch_size of at"
                " least 1"
            )
        self._by_tool[tool] = strategy

    def of(self, metadata: ToolMetadata) -> BatchStrategy:
        """The tool's registered strategy, else the one that its metadata declare."""
        return self._by_tool.get(metadata.tool) or strategy_for(metadata)

    def forget(self, tool: str) -> None:
        self._by_tool.pop(tool, None)


batch_strategies = BatchStrategies()

__all__ = [
    "BatchStrategies",
    "BatchStrategy",
    "KeyedBatch",
    "PositionalBatch",
    "SingleCall",
    "batch_strategies",
]
