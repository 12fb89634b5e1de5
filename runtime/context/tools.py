"""`ctx.tools`: provider tools, in a body, a row or a child play."""

from typing import Any

from runtime.context.asking_body import AskingBody
from runtime.context.authoring import ID_CHARS, is_text_id, text_id
from runtime.context.query_rows import QueryRows, query_rows
from runtime.context.tool_asking import ask_tool
from runtime.errors import JsonValueError, PlayDefinitionError, ToolRejectedError
from runtime.model.call_options import NO_OPTIONS, CallOptions, checked
from runtime.model.json_value import check
from runtime.model.kept_value import plain

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
        if not is_text_id(id) or not is_text_id(tool):
            raise PlayDefinitionError(
                f'play "{self._body.play.name}": tools.execute needs id="..." and tool="...", printable text of '
                f"at most {ID_CHARS} characters, got id={id!r:.80}, tool={tool!r:.80}"
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
        return await ask_tool(self._body, id, tool, given, options)

    async def query(self, *, id: str, tool: str, input: Any, timeout_ms: float | None = None) -> QueryRows:
        """Call a tool that answers with many rows; those beyond its answer are asked for as they are read.

        The answer is no stored result of another run. What is given can be a dataset's rows, and be kept in a cell or
        a result; whoever reads a page of it is answered by the same receipt.
        """
        given = _as_json(input, id, tool)
        result = await self._ask_private(id, tool, given, timeout_ms)
        return query_rows(
            result, id=id, tool=tool, input=given, timeout_ms=timeout_ms, limits=self._body.limits
        )

    async def execute_private(self, *, id: str, tool: str, input: Any, timeout_ms: float | None) -> Any:
        """A call whose result answers nobody but its own replays."""
        return await self._ask_private(id, tool, _as_json(input, id, tool), timeout_ms)

    async def _ask_private(self, id: str, tool: str, given: Any, timeout_ms: float | None) -> Any:
        where = f'play "{self._body.play.name}": {tool}'
        options = checked(CallOptions(is_private=True, timeout_ms=timeout_ms), where)
        return await ask_tool(self._body, text_id(id, where), tool, given, options)


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
