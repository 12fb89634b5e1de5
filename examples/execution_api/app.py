"""The reference execution API as an ASGI application."""

from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples.execution_api import public_web, replies
from examples.execution_api.execution import (
    ApiState,
    DroppedError,
    RefusedError,
    Server,
    execute,
    understand,
)
from examples.execution_api.later import event_boundary
from examples.execution_api.misbehaviour import Misbehaviour
from examples.execution_api.tools import ItemError, Tool
from runtime.errors import JsonValueError
from runtime.execution_api import wire
from runtime.model import json_value


def create_app(state: ApiState) -> Starlette:
    """The application over `state`; tests may look into the state from outside."""
    endpoints = _Endpoints(state)
    return Starlette(
        routes=[
            Route(wire.execute_path("X").replace("X", "{operation}"), endpoints.execute, methods=["POST"]),
            Route(
                wire.fenced_execute_path("X").replace("X", "{operation}"),
                endpoints.execute_fenced,
                methods=["POST"],
            ),
            Route(wire.metadata_path("X").replace("X", "{tool}"), endpoints.metadata),
            Route(wire.auth_scope_path("X").replace("X", "{tool}"), endpoints.auth_scope),
            Route(wire.event_wait_path("X").replace("X", "{tool}"), endpoints.event_wait, methods=["POST"]),
            Route("/_event-waits", endpoints.event_waits),
            Route(wire.HEALTH_PATH, endpoints.health),
            Route(wire.CONTROL_PATH, endpoints.act, methods=["POST"]),
            Route(public_web.CONNECTIONS_PATH, endpoints.connections),
            Route(
                public_web.ECHO_PATH,
                public_web.echo,
                methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            ),
            Route("/_ledger", endpoints.ledger, methods=["GET", "DELETE"]),
            Route("/_control", endpoints.control, methods=["GET", "POST", "DELETE"]),
        ]
    )


class _Endpoints:
    def __init__(self, state: ApiState) -> None:
        self._state = state

    async def execute(self, request: Request) -> Response:
        return await self._execute(request, is_fenced=False)

    async def execute_fenced(self, request: Request) -> Response:
        return await self._execute(request, is_fenced=True)

    async def _execute(self, request: Request, *, is_fenced: bool) -> Response:
        state = self._state
        operation = request.path_params["operation"]
        try:
            self._authorise(request)
            work = understand(
                state,
                operation,
                await _json(request),
                request.headers.get(wire.IDEMPOTENCY_KEY, ""),
                is_fenced=is_fenced,
                misbehaviour=_asked(state.misbehaviour, request, operation),
            )
            try:
                done = await execute(state, work)
            except DroppedError:
                return self._drop(request)
        except RefusedError as refused:
            return replies.refusal(refused, request)
        return replies.success(state, work, done, request)

    async def metadata(self, request: Request) -> Response:
        try:
            tool = self._known_tool(request)
        except RefusedError as refused:
            return replies.refusal(refused, request)
        changes = self._state.misbehaviour.metadata.get(tool.name, {})
        return replies.json_reply(tool.metadata(changes))

    async def auth_scope(self, request: Request) -> Response:
        """The digest of the credentials behind a tool: null unless the control endpoint gives it one."""
        try:
            tool = self._known_tool(request)
        except RefusedError as refused:
            return replies.refusal(refused, request)
        digest = self._state.misbehaviour.auth_scopes.get(tool.name)
        bucket = {"bucketId": f"{tool.provider}:{digest or 'none'}", "provider": tool.provider}
        return replies.json_reply({"digest": digest, "rateScope": {**bucket, "token": digest}})

    async def act(self, request: Request) -> Response:
        """Control actions; `resolve_secret` gives a secret of `state.secrets`."""
        try:
            self._authorise(request)
            asked = await _json(request)
            if not isinstance(asked, dict) or asked.get("action") != wire.RESOLVE_SECRET:
                raise RefusedError(400, "unknown_action", "action must be resolve_secret")
        except RefusedError as refused:
            return replies.refusal(refused, request)
        return public_web.secret_reply(self._state.secrets, asked.get("name"), request)

    async def event_wait(self, request: Request) -> Response:
        """Prepare, arm or time out; only `ask_person` waits for events."""
        try:
            tool = self._known_tool(request)
            if not tool.declares.get("eventWait"):
                raise RefusedError(404, "no_event_wait", f"{tool.name} waits for no event")
            body = await _json(request)
            boundary = event_boundary(tool.name, body)
        except ItemError as bad:
            return replies.json_reply({"error": bad.to_json()}, 422)
        except RefusedError as refused:
            return replies.refusal(refused, request)
        self._state.event_waits.append({"tool": tool.name, "phase": body.get("phase"), **boundary})
        return replies.json_reply(boundary)

    async def event_waits(self, request: Request) -> Response:
        """Every phase that was asked, in order."""
        return replies.json_reply({"event_waits": self._state.event_waits})

    async def connections(self, request: Request) -> Response:
        """How many connections are open, that of this request among them."""
        return replies.json_reply({"open": self._served().connections_open()})

    async def health(self, request: Request) -> Response:
        return replies.json_reply({"status": "ok"}, headers=replies.fence_headers(self._state.misbehaviour))

    async def ledger(self, request: Request) -> Response:
        """`?since=` a time; `?summary=1` leaves the entries out."""
        ledger = self._state.ledger
        if request.method == "DELETE":
            ledger.clear()
            return Response(status_code=204)
        try:
            entries = ledger.since(float(request.query_params.get("since", "-1")))
        except ValueError:
            return replies.json_reply(
                {"error": {"code": "bad_since", "message": "since must be a number"}}, 400
            )
        totals = {
            "requests": len(entries),
            "items": sum(len(entry["items"]) for entry in entries),
            "charged": sum(entry["charged"] for entry in entries),
            "credits": sum(entry["credits"] for entry in entries),
        }
        return replies.json_reply(
            {"entries": [] if "summary" in request.query_params else entries, "totals": totals}
        )

    async def control(self, request: Request) -> Response:
        state = self._state
        if request.method == "DELETE":
            state.reset()
        elif request.method == "POST":
            try:
                state.misbehaviour = state.misbehaviour.merged(await _json(request))
                self._refuse_connections()
            except (ValidationError, TypeError, RefusedError) as error:
                return replies.json_reply({"error": {"code": "bad_control", "message": str(error)}}, 400)
        return replies.json_reply(state.misbehaviour.model_dump())

    def _known_tool(self, request: Request) -> Tool:
        name = request.path_params["tool"]
        self._authorise(request)
        status = self._state.misbehaviour.take_metadata_status()
        if status is not None:
            raise RefusedError(status, f"http_{status}", "forced by the control endpoint")
        tool = self._state.tools.get(name)
        if tool is None:
            raise RefusedError(404, "unknown_tool", f"there is no tool {name!r:.80}")
        return tool

    def _refuse_connections(self) -> None:
        for_ms, self._state.misbehaviour.refuse_ms = self._state.misbehaviour.refuse_ms, 0
        if for_ms:
            self._served().refuse(for_ms)

    def _drop(self, request: Request) -> Response:
        """What is returned here reaches nobody."""
        assert request.client is not None
        self._served().cut((request.client.host, request.client.port))
        return Response(status_code=500)

    def _served(self) -> Server:
        if self._state.server is None:
            raise RefusedError(400, "not_served", "only a served API can refuse or drop connections")
        return self._state.server

    def _authorise(self, request: Request) -> None:
        scheme, _, token = request.headers.get(wire.AUTHORIZATION, "").partition(" ")
        wanted = self._state.token
        if scheme.lower() != "bearer" or not token or (wanted is not None and token != wanted):
            raise RefusedError(401, "unauthorised", "a valid bearer token is required")


def _asked(misbehaviour: Misbehaviour, request: Request, operation: str) -> Misbehaviour:
    try:
        return misbehaviour.for_request(request.headers.get(wire.TEST_FAULT), operation)
    except (ValidationError, TypeError, JsonValueError) as error:
        raise RefusedError(400, "bad_fault_header", str(error)) from error


async def _json(request: Request) -> Any:
    try:
        return json_value.loads(await request.body())
    except JsonValueError as error:
        raise RefusedError(400, "bad_json", str(error)) from error
