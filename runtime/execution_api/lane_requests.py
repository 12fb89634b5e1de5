"""The lane's requests, sent through the execution API's client."""

from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.exchange import ExecuteRequest
from runtime.model.physical_request import PhysicalReply, PhysicalRequest


class LaneRequests:
    """The Requests port over an ExecutionApiClient."""

    def __init__(self, client: ExecutionApiClient) -> None:
        self._client = client

    async def send(self, request: PhysicalRequest) -> PhysicalReply:
        reply = await self._client.execute(
            ExecuteRequest(
                org_id=request.org_id,
                operation=request.operation,
                payload=request.payload,
                idempotency_key=request.idempotency_key,
                item_idempotency_keys=request.item_idempotency_keys,
                run_id=request.run_ids[0],
                member_run_ids=request.run_ids,
                durable_call_receipt_key=request.receipt_key,
                execution_auth_scope_digest=request.auth_scope,
                is_fenced=request.is_fenced,
                integration_mode=request.integration_mode,
                timeout_ms=request.timeout_ms,
                invocation_attempt=request.attempt,
                page=request.page,
                node=request.node,
            )
        )
        return PhysicalReply(
            result=reply.result,
            credits=reply.credits,
            fence_attested=reply.fence_attested,
            replied_at=reply.replied_at,
            envelope=reply.envelope,
        )

    async def attests_fence(self) -> bool:
        return await self._client.attests_fence()
