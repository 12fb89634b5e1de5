"""One physical request to the execution API and its reply, as the lane sees them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runtime.model.query_page import QueryPage
from runtime.model.tool_output import ResponseEnvelope


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalRequest:
    """A batch ready to send. `payload` is JSON text, made once and the same for every send."""

    org_id: str
    operation: str
    payload: bytes = field(repr=False)
    idempotency_key: str
    item_idempotency_keys: tuple[str, ...]
    run_ids: tuple[str, ...]  # of the members, in order, each once; the first is charged
    receipt_key: str | None  # of the only member of a single call
    integration_mode: str | None
    timeout_ms: float
    attempt: int = 0
    tool: str = ""
    auth_scope: str | None = None
    page: QueryPage | None = None
    node: tuple[str, ...] = ()  # where the play of the first member asks
    is_fenced: bool = False  # the tool's effect must not happen twice: sent by the fenced path


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalReply:
    """`credits`: charged for the whole request, if the reply says; `replied_at`: by the reply's own clock."""

    result: Any = field(repr=False)
    credits: float | None = None
    fence_attested: bool = False
    replied_at: datetime | None = None
    envelope: ResponseEnvelope = field(default_factory=ResponseEnvelope, repr=False)
