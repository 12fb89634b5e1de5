"""One execute request, from its parsed body to its answers: dedupe by key, work, charge, record."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

from examples.execution_api.item_error import ItemError, RefusedError
from examples.execution_api.later_tools import LATER_TOOLS
from examples.execution_api.ledger import Entry, Ledger, Stored, digest_of
from examples.execution_api.mail_tools import MAIL_TOOLS
from examples.execution_api.misbehaviour import ForcedAnswer, Misbehaviour
from examples.execution_api.tools import MAX_BATCH_SIZE, TOOLS, Tool
from runtime.execution_api import wire

DROPPED = "connection_dropped"


class Server(Protocol):
    """What only the server behind the API can do."""

    def refuse(self, for_ms: float) -> None: ...

    def cut(self, client: tuple[str, int]) -> None: ...

    def connections_open(self) -> int: ...


class DroppedError(Exception):
    """The connection ends without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A request as understood. `keys` are the items' matching keys, None for a single call."""

    tool: Tool
    operation: str
    batch_key: str
    payload: Any
    inputs: list[Any]
    keys: list[str] | None
    item_keys: list[str]
    run_ids: list[str]
    auth_scope: str | None
    misbehaviour: Misbehaviour

    @property
    def forgets_keys(self) -> bool:
        """A fenced tool whose API attests no fence: a repeated key has a second effect."""
        return self.tool.requires_fence and not self.misbehaviour.attest_fence

    @property
    def labels(self) -> list[Any]:
        return [label(item) for item in self.inputs]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Answers in the items' order, each {"result", "credits"} or {"error"}; what was charged now."""

    answers: list[Any]
    credits: float


@dataclass(slots=True, kw_only=True)
class ApiState:
    """Everything the API remembers."""

    ledger: Ledger
    misbehaviour: Misbehaviour = field(init=False)
    start_latency_ms: float = 0.0  # what a reset of the misbehaviour goes back to
    token: str | None = None  # None: any token that is not empty
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    server: Server | None = None
    tools: dict[str, Tool] = field(
        default_factory=lambda: {tool.name: tool for tool in (*TOOLS, *LATER_TOOLS, *MAIL_TOOLS)}
    )
    event_waits: list[dict[str, Any]] = field(default_factory=list)  # phases asked, as they came
    batches_in_flight: set[str] = field(default_factory=set)
    items_in_flight: dict[str, asyncio.Future[None]] = field(default_factory=dict)
    released: asyncio.Event = field(default_factory=asyncio.Event)  # lets go of stalled bodies

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Behave again; bodies that stall now are let go, later ones stall anew."""
        self.misbehaviour = Misbehaviour(latency_ms=self.start_latency_ms)
        released, self.released = self.released, asyncio.Event()
        released.set()


def label(input: Any) -> Any:
    """How the ledger names an item."""
    return input["item"] if isinstance(input, dict) and set(input) == {"item"} else input


def understand(
    state: ApiState,
    operation: str,
    body: Any,
    batch_key: str,
    *,
    is_fenced: bool = False,
    misbehaviour: Misbehaviour | None = None,
) -> Work:
    """Read a request's body; RefusedError says what is wrong with it."""
    tool, is_batch = _tool_of(state, operation)
    if tool.requires_fence and not is_fenced:
        raise RefusedError(400, "fence_required", f"{tool.name} is executed by the fenced path only")
    if not isinstance(body, dict) or "payload" not in body:
        raise RefusedError(400, "bad_body", 'the body must be an object with "payload"')
    given = body.get("metadata")
    metadata: dict[str, Any] = given if isinstance(given, dict) else {}
    if is_fenced and metadata.get("invocation_fence_version") != wire.INVOCATION_FENCE_VERSION:
        raise RefusedError(400, "bad_fence", "a fenced request names invocation_fence_version 1")
    payload = body["payload"]
    keys, inputs = _items(payload) if is_batch else (None, [payload])
    page = metadata.get("query_result_dataset")
    if tool.is_paged and isinstance(page, dict) and isinstance(payload, dict):
        inputs = [{**payload, "page": page}]
    item_keys = [str(key) for key in metadata.get("item_idempotency_keys") or []]
    if item_keys and len(item_keys) != len(inputs):
        raise RefusedError(400, "bad_item_keys", f"{len(item_keys)} item keys for {len(inputs)} items")
    return Work(
        tool=tool,
        operation=operation,
        batch_key=batch_key or str(metadata.get("provider_idempotency_key") or ""),
        payload=payload,
        inputs=inputs,
        keys=keys,
        item_keys=item_keys,
        run_ids=[str(run) for run in metadata.get("member_run_ids") or [metadata.get("parent_run_id", "")]],
        auth_scope=metadata.get("execution_auth_scope_digest"),
        misbehaviour=misbehaviour or state.misbehaviour,
    )


async def execute(state: ApiState, work: Work) -> Done:
    """Do the work unless its keys are known; always leaves one ledger entry."""
    entry = Entry(
        time=time.time(),
        operation=work.operation,
        batch_key=work.batch_key,
        item_keys=work.item_keys,
        items=work.labels,
        run_ids=work.run_ids,
    )
    payload_digest = digest_of(work.payload)
    drop = work.misbehaviour.take_drop(work.operation)
    if drop is not None and not drop.work_done:
        entry.code = DROPPED
        state.ledger.note(entry)
        raise DroppedError
    try:
        stored = _check_keys(state, work, payload_digest)
        _force(work, work.misbehaviour.take_answer(work.operation, after_work=False))
        late = work.misbehaviour.take_answer(work.operation, after_work=True)
        entry.status, entry.code = _told(late, is_dropped=drop is not None)
        if stored is not None:
            await asyncio.sleep(work.misbehaviour.latency_ms / 1000)
            entry.replayed = True
            state.ledger.note(entry)
            done = Done(answers=stored.answer, credits=0.0)
        else:
            done = await _work(state, work, entry, payload_digest)
    except RefusedError as refused:
        entry.status, entry.code = refused.status, refused.code
        state.ledger.note(entry)
        raise
    if drop is not None:
        raise DroppedError
    _force(work, late)
    return done


async def _work(state: ApiState, work: Work, entry: Entry, payload_digest: str) -> Done:
    mine = asyncio.get_running_loop().create_future()
    owned = [key for key in dict.fromkeys(work.item_keys) if _is_free(state, key)]
    others = {state.items_in_flight[key] for key in work.item_keys if key in state.items_in_flight}
    state.batches_in_flight.add(work.batch_key)
    state.items_in_flight.update(dict.fromkeys(owned, mine))
    try:
        await asyncio.sleep(work.misbehaviour.latency_ms / 1000)
        if others:
            # Requests register in one step, so whoever came first waits for nobody that came later.
            await asyncio.wait(others)
        return _finish(state, work, entry, payload_digest)
    finally:
        state.batches_in_flight.discard(work.batch_key)
        for key in owned:
            del state.items_in_flight[key]
        mine.set_result(None)


def _finish(state: ApiState, work: Work, entry: Entry, payload_digest: str) -> Done:
    """Answer every item, charge the new ones and record it all; no await, so it is one step."""
    digests = [digest_of([work.tool.name, item]) for item in work.inputs]
    answers: list[Any] = []
    fresh: dict[str, Stored] = {}
    for position, item in enumerate(work.inputs):
        key = work.item_keys[position] if work.item_keys else ""
        known = state.ledger.items.get(key) or fresh.get(key) if key else None
        if work.forgets_keys:
            known = None
        if known is not None:
            answers.append(known.answer if known.digest == digests[position] else _reused(key))
            continue
        answer = _answer(work, item)
        answers.append(answer)
        if "error" not in answer:
            fresh[key] = Stored(digest=digests[position], answer=answer)
            entry.charged_items.append(entry.items[position])
    entry.charged = len(entry.charged_items)
    entry.credits = entry.charged * work.tool.credits_per_item
    state.ledger.add(entry, answers=answers, payload_digest=payload_digest, item_digests=digests)
    return Done(answers=answers, credits=entry.credits)


def _answer(work: Work, item: Any) -> dict[str, Any]:
    misbehaviour = work.misbehaviour
    try:
        if misbehaviour.item_error is not None and misbehaviour.applies(work.operation):
            _fail_item(misbehaviour, label(item))
        if not isinstance(item, dict):
            raise ItemError("bad_input", "an item's input must be an object")
        return {"result": work.tool.answer(item), "credits": work.tool.credits_per_item}
    except ItemError as error:
        return {"error": error.to_json()}


def _fail_item(misbehaviour: Misbehaviour, item: Any) -> None:
    if item == misbehaviour.item_error:
        raise ItemError("item_refused", f"{item} is refused", retryable=misbehaviour.item_error_retryable)


def _reused(key: str) -> dict[str, Any]:
    error = ItemError("idempotency_key_reused", f"item key {key} was used for another input")
    return {"error": error.to_json()}


def _check_keys(state: ApiState, work: Work, payload_digest: str) -> Stored | None:
    """The stored answer of a repeated batch key, unless the key is busy or was used for something else."""
    scope = work.misbehaviour.auth_scopes.get(work.tool.name)
    if scope is not None and work.auth_scope != scope:
        raise RefusedError(
            409, wire.AUTH_SCOPE_CHANGED, f"the credentials behind {work.tool.name} are others now"
        )
    stored = state.ledger.batches.get(work.batch_key) if work.batch_key and not work.forgets_keys else None
    if stored is not None and stored.digest != payload_digest:
        raise RefusedError(409, "idempotency_key_reused", "this idempotency key was used for another payload")
    if work.batch_key and work.batch_key in state.batches_in_flight:
        raise RefusedError(
            409, "invocation_in_progress", "a request with this idempotency key is in progress"
        )
    bad = work.misbehaviour.bad_item
    if bad is not None and work.misbehaviour.applies(work.operation) and bad in work.labels:
        raise RefusedError(400, "bad_request", "the request holds an item that can't be processed")
    return stored


def _told(late: ForcedAnswer | None, *, is_dropped: bool) -> tuple[int, str | None]:
    """Status and code that a caller of finished work gets to see."""
    if is_dropped:
        return 0, DROPPED
    return (200, None) if late is None else (late.status, late.code or f"http_{late.status}")


def _force(work: Work, forced: ForcedAnswer | None) -> None:
    if forced is not None:
        raise RefusedError(
            forced.status, forced.code or f"http_{forced.status}", forced.message, forced=forced
        )


def _tool_of(state: ApiState, operation: str) -> tuple[Tool, bool]:
    for tool in state.tools.values():
        if operation == tool.name or (tool.is_batched and operation == tool.batch_operation):
            return tool, operation != tool.name
    raise RefusedError(404, "unknown_operation", f"there is no operation {operation!r:.80}")


def _items(payload: Any) -> tuple[list[str], list[Any]]:
    items = payload.get("items") if isinstance(payload, dict) else None
    if not isinstance(items, list) or not items:
        raise RefusedError(400, "bad_batch", 'a batch must be {"items": [{"key", "input"}, …]} and hold one')
    if len(items) > MAX_BATCH_SIZE:
        raise RefusedError(413, "batch_too_large", f"{len(items)} items; at most {MAX_BATCH_SIZE}")
    keys = [item.get("key") if isinstance(item, dict) else None for item in items]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise RefusedError(400, "bad_batch", "every item needs its own text key")
    return [str(key) for key in keys], [item.get("input") for item in items]


def _is_free(state: ApiState, key: str) -> bool:
    return key not in state.items_in_flight and key not in state.ledger.items
