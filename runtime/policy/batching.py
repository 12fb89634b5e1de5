"""Batch strategies: how calls become one request's payload and its reply becomes one outcome per call.

Pure. A recorded batch names its strategy and revision; payload and split never change under one revision.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from runtime.errors import JsonValueError, PlayDefinitionError
from runtime.model import json_value
from runtime.model.canonical_json import digest
from runtime.model.failure import QUOTA_CODES, FailureClass
from runtime.model.outcome import ItemCompleted, ItemFailed, ItemOutcome, ItemUnknown, Split, all_unknown
from runtime.model.tool import BatchRule, ToolMetadata
from runtime.policy import quota

T = TypeVar("T")
SINGLE = "single"


class BatchStrategy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def operation(self) -> str: ...

    @property
    def max_batch_size(self) -> int: ...

    def bucket(self, input: Any) -> str:
        """Calls with different buckets never share a batch."""
        ...

    def payload(self, inputs: Sequence[Any]) -> Any:
        """The request's payload, a pure function of the ordered inputs."""
        ...

    def split(self, reply: Any, inputs: Sequence[Any]) -> Split:
        """One outcome per call, in order."""
        ...


def strategy_for(metadata: ToolMetadata) -> BatchStrategy:
    """The strategy that a tool's metadata declares; one call per request where it declares none."""
    rule = metadata.batch
    if rule is None or rule.max_batch_size <= 1:
        return SingleCall(operation=metadata.tool)
    if rule.strategy == "keyed" and rule.input_key is not None:
        return KeyedBatch(rule=rule, key_field=rule.input_key)
    if rule.strategy == "positional" and rule.input_key is None:
        return PositionalBatch(rule=rule)
    raise PlayDefinitionError(
        f"tool {metadata.tool}: batch strategy {rule.strategy!r} with matching key {rule.input_key!r}"
        " is not known here; nothing was called. Upgrade playlane, or mend the tool's metadata."
    )


def halves(members: Sequence[T]) -> tuple[Sequence[T], Sequence[T]]:
    """Both halves of a batch that was refused as a whole, order kept; each is a new batch."""
    if len(members) < 2:
        raise ValueError(f"a batch of {len(members)} can't be halved")
    middle = (len(members) + 1) // 2
    return members[:middle], members[middle:]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleCall:
    """One call a request: the input is the payload, the reply is its output."""

    operation: str
    name: str = SINGLE
    revision: str = "1"
    max_batch_size: int = 1

    def bucket(self, input: Any) -> str:
        return ""

    def payload(self, inputs: Sequence[Any]) -> Any:
        (only,) = inputs
        return only

    def split(self, reply: Any, inputs: Sequence[Any]) -> Split:
        (_only,) = inputs
        return Split(outcomes=(_completed(reply, None),))


@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleBatch:
    """What a batch strategy takes from its tool's rule."""

    rule: BatchRule

    @property
    def name(self) -> str:
        return self.rule.strategy

    @property
    def revision(self) -> str:
        return self.rule.revision

    @property
    def operation(self) -> str:
        return self.rule.operation

    @property
    def max_batch_size(self) -> int:
        return self.rule.max_batch_size

    def bucket(self, input: Any) -> str:
        return _bucket(self.rule, input)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedBatch(_RuleBatch):
    """Items travel as {key: "<position>", "input": …} and are matched by that key alone."""

    key_field: str

    def payload(self, inputs: Sequence[Any]) -> Any:
        items = [{self.key_field: str(position), "input": item} for position, item in enumerate(inputs)]
        return {self.rule.items_field: items}

    def split(self, reply: Any, inputs: Sequence[Any]) -> Split:
        count = len(inputs)
        items = _reply_items(reply, self.rule)
        if items is None:
            return all_unknown(
                count, f"reply of {self.operation} has no list {self.rule.reply_items_field!r}"
            )
        found, doubled, strangers = self._match(items, count)
        outcomes = tuple(self._outcome(found, doubled, str(position)) for position in range(count))
        return Split(outcomes=outcomes, strangers=tuple(strangers), doubled=tuple(sorted(doubled, key=int)))

    def _match(self, items: list[Any], count: int) -> tuple[dict[str, Any], set[str], list[str]]:
        known = {str(position) for position in range(count)}
        found: dict[str, Any] = {}
        doubled: set[str] = set()
        strangers: list[str] = []
        for item in items:
            key = item.get(self.key_field) if isinstance(item, dict) else None
            if not isinstance(key, str) or key not in known:
                strangers.append(f"{key!r:.60}")
            elif key in found:
                doubled.add(key)
            else:
                found[key] = item
        return found, doubled, strangers

    def _outcome(self, found: dict[str, Any], doubled: set[str], key: str) -> ItemOutcome:
        if key in doubled:
            return ItemUnknown(reason=f"reply of {self.operation} answers item {key} more than once")
        item = found.get(key)
        if item is None:
            return ItemFailed(
                code="item_missing",
                message=f"reply of {self.operation} leaves out item {key}; a later run may ask again",
                retryable=True,
                terminal=False,
            )
        return _item_outcome(item, self.operation, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionalBatch(_RuleBatch):
    """Items travel bare; the reply is matched by position, and only when the counts agree."""

    def payload(self, inputs: Sequence[Any]) -> Any:
        return {self.rule.items_field: list(inputs)}

    def split(self, reply: Any, inputs: Sequence[Any]) -> Split:
        items = _reply_items(reply, self.rule)
        if items is None or len(items) != len(inputs):
            held = "no list" if items is None else f"{len(items)} items"
            return all_unknown(
                len(inputs),
                f"reply of {self.operation} holds {held} for {len(inputs)} calls, and no keys",
            )
        return Split(
            outcomes=tuple(_item_outcome(item, self.operation, str(n)) for n, item in enumerate(items))
        )


def _bucket(rule: BatchRule, input: Any) -> str:
    if not rule.bucket_fields:
        return ""
    fields = input if isinstance(input, dict) else {}
    return digest([fields.get(name) for name in rule.bucket_fields])[:16]


def _reply_items(reply: Any, rule: BatchRule) -> list[Any] | None:
    items = (
        reply.get(rule.reply_items_field) if type(reply) is dict else None
    )  # a Repeated can't be attributed
    return items if isinstance(items, list) else None


def _item_outcome(item: Any, operation: str, key: str) -> ItemOutcome:
    if isinstance(item, json_value.Repeated):
        return _completed(item, None)
    if not isinstance(item, dict) or ("result" not in item and "error" not in item):
        return ItemUnknown(reason=f"reply of {operation} gives item {key} neither a result nor an error")
    error = item.get("error")
    if error is not None:
        return _item_error(error, operation, _credits(item.get("credits")))
    return _completed(item.get("result"), _credits(item.get("credits")))


def _item_error(error: Any, operation: str, credits: float | None) -> ItemFailed:
    fields = error if isinstance(error, dict) else {"message": str(error)}
    code = _text(fields.get("code"), "item_failed")
    own = _credits(fields.get("credits"))
    cost = credits if own is None else own
    if code.lower() in QUOTA_CODES:
        return _exhausted(fields, operation, cost)
    retryable = fields.get("retryable") is True
    return ItemFailed(
        code=code,
        message=_text(fields.get("message"), f"{operation} refused this item without saying why"),
        retryable=retryable,
        terminal=not retryable,
        charged=None if cost is None else cost > 0,
        credits=cost,
    )


def _exhausted(fields: dict[str, Any], operation: str, cost: float | None) -> ItemFailed:
    """The provider's quota, told for one item: nothing that another run should not ask again."""
    asked = fields.get("retry_at", fields.get("retryAt"))
    until = quota.moment(asked)
    return ItemFailed(
        code=FailureClass.PROVIDER_EXHAUSTED,
        message=_text(fields.get("message"), f"the provider's quota for {operation} is used up"),
        retryable=True,
        terminal=False,
        charged=bool(cost),
        credits=cost,
        details={} if until is None else {"retry_at": quota.moment_text(until)},
    )


def _completed(value: Any, credits: float | None) -> ItemOutcome:
    """An output that can't be stored exactly is that call's own final failure; its neighbours go on."""
    try:
        output = json_value.dumps(json_value.check(value))
    except JsonValueError as error:
        return ItemFailed(
            code="bad_output", message=f"output can't be stored: {error}", charged=True, credits=credits
        )
    except RecursionError:
        return ItemFailed(
            code="bad_output",
            message="output can't be stored: $: nested too deeply",
            charged=True,
            credits=credits,
        )
    return ItemCompleted(output_json=output, credits=credits)


def _credits(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value < 1e15 else None


def _text(value: Any, otherwise: str) -> str:
    """Text of an error as it can be stored: no NUL, no half surrogate, bounded."""
    if not isinstance(value, str) or not value.strip():
        return otherwise
    return value.replace("\x00", " ").encode("utf-8", "replace").decode()[:2_000]
