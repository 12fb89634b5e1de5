"""The reference execution API as an ASGI application."""

from typing import Any

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from examples.execution_api import replies
from examples.execution_api.execution import ApiState, RefusedError, execute, understand
from runtime.errors import JsonValueError
from runtime.execution_api import wire
from runtime.model import json_value


def create_app(state: ApiState) -> Starlette:
    """The application over `state`; tests may look into the state from outside."""
    endpoints = _Endpoints(state)
    return Starlette(
        routes=[
            Route(wire.execute_path("X").replace("X", "{operation}"), endpoints.execute, methods=["POST"]),
            Route(wire.metadata_path("X").replace("X", "{tool}"), endpoints.metadata),
            Route(wire.HEALTH_PATH, endpoints.health),
            Route("/_ledger", endpoints.ledger, methods=["GET", "DELETE"]),
            Route("/_control", endpoints.control, methods=["GET", "POST", "DELETE"]),
        ]
    )


class _Endpoints:
    def __init__(self, state: ApiState) -> None:
        self._state = state

    async def execute(self, request: Request) -> Response:
        state = self._state
        try:
            self._authorise(request)
            work = understand(
                state,
                request.path_params["operation"],
                await _json(request),
                request.headers.get(wire.IDEMPOTENCY_KEY, ""),
            )
            done = await execute(state, work)
        except RefusedError as refused:
            return replies.refusal(refused, request)
        return replies.success(state, work, done, request)

    async def metadata(self, request: Request) -> Response:
        name = request.path_params["tool"]
        try:
            self._authorise(request)
            status = self._state.misbehaviour.take_metadata_status()
            if status is not None:
                raise RefusedError(status, f"http_{status}", "forced by the control endpoint")
            tool = self._state.tools.get(name)
            if tool is None:
                raise RefusedError(404, "unknown_tool", f"there is no tool {name!r:.80}")
        except RefusedError as refused:
            return replies.refusal(refused, request)
        return replies.json_reply(tool.metadata(self._state.misbehaviour.metadata.get(name, {})))

    async def health(self, request: Request) -> Response:
        return replies.json_reply({"status": "ok"})

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
            except (ValidationError, TypeError, RefusedError) as error:
                return replies.json_reply({"error": {"code": "bad_control", "message": str(error)}}, 400)
        return replies.json_reply(state.misbehaviour.model_dump())

    def _authorise(self, request: Request) -> None:
        scheme, _, token = request.headers.get(wire.AUTHORIZATION, "").partition(" ")
        wanted = self._state.token
        if scheme.lower() != "bearer" or not token or (wanted is not None and token != wanted):
            raise RefusedError(401, "unauthorised", "a valid bearer token is required")


async def _json(request: Request) -> Any:
    try:
        return json_value.loads(await request.body())
    except JsonValueError as error:
        raise RefusedError(400, "bad_json", str(error)) from error
