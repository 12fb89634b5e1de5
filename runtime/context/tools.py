"""`ctx.tools`: provider tools, in a body, a row or a child play."""

from dataclasses import replace
from typing import Any

from runtime.context.asking_body import AskingBody
from runtime.context.authoring import text_id
from runtime.context.query_rows import QueryRows
from runtime.context.scope import current_scope
from runtime.context.tool_result import ToolResult, journal_result
from runtime.errors import JsonValueError, PlayDefinitionError, ToolRejectedError
from runtime.model.call_options import NO_OPTIONS, CallOptions, checked
from runtime.model.json_value import check
from runtime.model.kept_value import plain
from runtime.model.operation import Op, OpKind
from runtime.model.query_page import QueryPage
from runtime.policy.identity import operation_digest

_NOTHING_SAID = (False, None, None, None, None)


class Tools:
    """`ctx.tools`: the provider tools of the execution API."""

    def __init__(self, body: AskingBody) -> None:
        self._body = body

    async def execute(
        self,
        *,
        id: str,
        tool: str,
        input: Any,
        force: bool = False,
        stale_after_seconds: float | None = None,
        receipt_wait_ms: float | None = None,
        max_wait_ms: float | None = None,
        timeout_ms: float | None = None,
    ) -> Any:
        """Call a tool: its ToolResult. Equal calls are paid once, and a replay gets the first result.

        `force` makes the call although a result is stored; `stale_after_seconds` does so for results older than that
        when the run began. Without `receipt_wait_ms` (nobody works on it) or `max_wait_ms` (altogether) a call waits
        as long as its run. `timeout_ms` bounds the request.
        """
        if not isinstance(id, str) or not id or not isinstance(tool, str) or not tool:
            raise PlayDefinitionError(
                f'play "{self._body.play.name}": tools.execute needs id="..." and tool="...", '
                f"got id={id!r:.80}, tool={tool!r:.80}"
            )
        given = _as_json(input, id, tool)
        options = NO_OPTIONS
        if (force, stale_after_seconds, receipt_wait_ms, max_wait_ms, timeout_ms) != _NOTHING_SAID:
            options = checked(
                CallOptions(
                    force=force,
                    stale_after_seconds=stale_after_seconds,
                    receipt_wait_ms=receipt_wait_ms,
                    max_wait_ms=max_wait_ms,
                    timeout_ms=timeout_ms,
                ),
                f'play "{self._body.play.name}": tools.execute(id="{id}")',
            )
        return await self._execute(id, tool, given, options)

    async def query(self, *, id: str, tool: str, input: Any, timeout_ms: float | None = None) -> QueryRows:
        """Call a tool that answers with many rows; those beyond its answer are asked for as they are read.

        Neither the answer nor a page is a stored result of another run; a replay gets what this run read.
        """

        async def page_of(page: QueryPage) -> ToolResult:
            options = CallOptions(is_private=True, timeout_ms=timeout_ms, page=page)
            asked = f"{id}:{page.offset}:{page.page_size}"
            return await self._execute(asked, tool, _as_json(input, id, tool), options)

        result = await self.execute_private(id=id, tool=tool, input=input, timeout_ms=timeout_ms)
        name = f'play "{self._body.play.name}": tools.query(id="{id}", tool="{tool}")'
        return QueryRows(result, page_of, name=name, limits=self._body.limits)

    async def execute_private(self, *, id: str, tool: str, input: Any, timeout_ms: float | None) -> Any:
        """A call whose result answers nobody but its own replays."""
        where = f'play "{self._body.play.name}": {tool}'
        options = checked(CallOptions(is_private=True, timeout_ms=timeout_ms), where)
        return await self._execute(text_id(id, where), tool, _as_json(input, id, tool), options)

    async def _execute(self, id: str, tool: str, given: Any, options: CallOptions) -> Any:
        scope = current_scope.get()
        if scope is not None:
            return await scope.tool(id=id, tool=tool, input=given, options=options)
        n = self._body.nth(f"tool:{id}")
        arguments = {"id": id, "tool": tool, "input": given, **options.described()}
        op = _op(OpKind.TOOL, f"tool:{id}:{n}", arguments)
        found = await self._body.ask(replace(op, args={**arguments, "options": options}))
        return journal_result(found)


def _as_json(input: Any, id: str, tool: str) -> Any:
    """An input may hold earlier results as they are; ToolRejectedError names what else can't be sent."""
    try:
        return check(input)
    except JsonValueError:
        try:
            return check(plain(input)[0])
        except JsonValueError as error:
            raise ToolRejectedError(
                f'tools.execute(id="{id}", tool="{tool}"): its input can\'t be sent, {error}; nothing was sent',
                tool=tool,
                code=error.code,
                details={"path": error.path},
            ) from error


def _op(kind: OpKind, key: str, arguments: dict[str, Any]) -> Op:
    return Op(key=key, kind=kind, digest=operation_digest(kind.value, arguments), args=arguments)
