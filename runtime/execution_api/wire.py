"""Names and shapes on the execution API's wire; the one place that spells them."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from runtime.model.waiting_tool import FAILED, PENDING

# paths
HEALTH_PATH = "/healthz"
CONTROL_PATH = "/api/v2/plays/runtime"

# actions of the control path
RESOLVE_SECRET = "resolve_secret"  # noqa: S105 - an action

# request headers
AUTHORIZATION = "authorization"
REQUEST_ID = "x-deepline-request-id"
IDEMPOTENCY_KEY = "x-deepline-idempotency-key"
RESPONSE_CONTRACT = "x-deepline-execute-response-contract"
RESPONSE_INTENT = "x-deepline-execute-response-intent"
INCLUDE_TOOL_METADATA = "x-deepline-include-tool-metadata"
TEST_FAULT = "x-deepline-test-fault"
TOOL_ERROR_SCHEMA = "x-deepline-tool-error-schema"
OPERATION_ID = "x-deepline-operation-id"
OPERATION_ATTEMPT = "x-deepline-operation-attempt"

# metadata of an execute request's body, and the field beside it
PARENT_RUN_ID = "parent_run_id"
INVOCATION_ATTEMPT = "invocation_attempt"
INVOCATION_FENCE_FIELD = "invocation_fence_version"
DURABLE_CALL_RECEIPT_KEY = "durable_call_receipt_key"
EXECUTION_AUTH_SCOPE_DIGEST = "execution_auth_scope_digest"
PROVIDER_IDEMPOTENCY_KEY = "provider_idempotency_key"
ITEM_IDEMPOTENCY_KEYS = "item_idempotency_keys"
MEMBER_RUN_IDS = "member_run_ids"
QUERY_RESULT_DATASET = "query_result_dataset"
CUSTOMER_DB_DATASET = "customer_db_dataset"
PLAY_NODE_SCOPE = "play_node_scope"
NODE_TOOL = "tool_id"
NODE_FIELDS = ("call_key", "column", "table_namespace")
INTEGRATION_MODE = "integration_mode"

# reply headers
ERROR_CODE = "x-deepline-error-code"
INVOCATION_FENCE = "x-deepline-durable-invocation-fence"
RETRY_AFTER = "retry-after"
DATE = "date"

RAW_V2 = "raw-v2"
LEGACY = "legacy"
INTENT_DATASET = "dataset"
CUSTOMER_DB_TOOLS = frozenset({"query_customer_db"})
ERROR_SCHEMA_VERSION = "1"
FENCE_VERSION = "v1"
INVOCATION_FENCE_VERSION = 1

# error codes
IN_PROGRESS_CODES = frozenset({"invocation_in_progress", "gateway_invocation_in_progress"})
AUTH_SCOPE_CHANGED = "auth_scope_changed"
NO_AUTH_SCOPE = "no_auth_scope"
BODY_UNREADABLE_402 = "HTTP_402_BODY_UNREADABLE"
FAILED_STATUSES = frozenset({"failed", "error"})
COMPLETED_STATUSES = frozenset({"completed", "success", "succeeded", "ok"})


def execute_path(operation: str) -> str:
    return f"/api/v2/integrations/{quote(operation, safe='')}/execute"


def fenced_execute_path(operation: str) -> str:
    return f"{execute_path(operation)}-fenced-v1"


def metadata_path(tool: str) -> str:
    return f"/api/v2/plays/runtime-tools/{quote(tool, safe='')}"


def auth_scope_path(tool: str) -> str:
    return f"{metadata_path(tool)}/auth-scope"


def event_wait_path(tool: str) -> str:
    return f"{metadata_path(tool)}/event-wait"


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True)


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
Milliseconds = Annotated[float, Field(gt=0, le=86_400_000)]
ResultPath = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=300)]


def _bare_paths(declared: Any) -> Any:
    """An extractor declares a path, a list of them, or an object that holds them."""
    if isinstance(declared, dict):
        declared = declared.get("paths", declared.get("path", ()))
    return (declared,) if isinstance(declared, str) else declared


Paths = Annotated[tuple[ResultPath, ...], Field(max_length=50), BeforeValidator(_bare_paths)]
Targets = Annotated[dict[Name, Paths], Field(max_length=200)]


class ToolResponse(_Wire):
    raw: Any = None
    raw_v2: Any = Field(default=None, alias="rawV2")
    view: Literal["data", "rawV2"] = "rawV2"
    meta: dict[str, Any] = Field(default_factory=dict)
    response_meta: dict[str, Any] = Field(default_factory=dict)


class Billing(_Wire):
    credits: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class ExecuteEnvelope(_Wire):
    """Body of a 2xx execute reply."""

    status: Name
    job_id: str | None = None
    tool_response: ToolResponse | None = None
    result: Any = None
    meta: dict[str, Any] = Field(default_factory=dict)
    billing: Billing = Field(default_factory=Billing)
    error: Any = None


class QueueHint(_Wire):
    provider: Name | None = None
    limit: float = Field(gt=0, allow_inf_nan=False)
    per_ms: Milliseconds
    counts: Literal["requests", "items"] = "requests"
    burst: float = Field(default=0, ge=0, allow_inf_nan=False)
    max_concurrency: int | None = Field(default=None, ge=1, le=1_000_000)  # requests on the wire at once


class RetryHint(_Wire):
    retry_safe_transient_http: bool = False
    requires_execution_fence: bool = False
    retry_safe_event_wait_arm: bool = False


class BatchHint(_Wire):
    operation: Name
    max_batch_size: int = Field(ge=1, le=10_000)
    items_field: Name = "items"
    input_key: Name | None = "key"
    reply_items_field: Name = "items"
    bucket_fields: tuple[Name, ...] = ()
    strategy: Name = "keyed"
    revision: Name = "1"


class RateScope(_Wire):
    bucket_id: Name
    provider: Name
    token: Name | None = None


class AuthScope(_Wire):
    """Body of an auth scope reply. `digest` null: calls of this tool depend on no credentials."""

    digest: Name | None
    rate_scope: RateScope | None = None


class AsyncHint(_Wire):
    """A tool that starts something: which tool tells how it stands, and where things lie in their data."""

    poll_tool: Name
    job_path: ResultPath = "job_id"
    input_key: Name = "job_id"
    status_path: ResultPath = "status"
    result_path: ResultPath | None = None
    interval_ms: Milliseconds | None = None
    pending_statuses: tuple[Name, ...] = PENDING
    failed_statuses: tuple[Name, ...] = FAILED


class RuntimeTool(_Wire):
    """Body of a metadata reply."""

    provider: Name
    operation: Name | None = None
    action_cache_version: Name = "1"
    action_cache_read_versions: tuple[Name, ...] = ()
    response_revision: Name | None = None
    timeout_ms: Milliseconds | None = None
    credits_per_item: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    max_credits_per_item: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    queue_hints: tuple[QueueHint, ...] = ()
    retry: RetryHint = Field(default_factory=RetryHint)
    always_fresh: bool = False
    event_wait: bool = False
    async_operation: AsyncHint | None = None
    batch: BatchHint | None = None
    extractors: Targets = Field(default_factory=dict)
    target_getters: Targets = Field(default_factory=dict)
    list_extractor_paths: tuple[ResultPath, ...] = Field(default=(), max_length=200)
    list_identity_getters: Targets = Field(default_factory=dict)
    normalise: dict[str, tuple[Literal["trim", "lower", "strip_trailing_dot"], ...]] = Field(
        default_factory=dict
    )
