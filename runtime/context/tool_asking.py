"""A tool call asked where its author stands: in a body an operation of its journal, elsewhere done in place."""

from typing import Any, Protocol

from runtime.context.scope import current_scope
from runtime.context.tool_result import ToolResult, journal_result
from runtime.model.call_options import CallOptions
from runtime.model.operation import Op, OpKind
from runtime.model.query_page import Query, QueryPage
from runtime.policy.identity import operation_digest


class AsksOperations(Protocol):
    """What is needed of a body."""

    def ask(self, op: Op) -> Any: ...

    def nth(self, name: str) -> int: ...


async def ask_tool(
    body: AsksOperations | None, id: str, tool: str, given: Any, options: CallOptions
) -> ToolResult:
    """The tool's result; `given` is a checked JSON value, `body` the one that asks where no scope does."""
    scope = current_scope.get()
    if scope is not None:
        return await scope.tool(id=id, tool=tool, input=given, options=options)
    assert body is not None
    n = body.nth(f"tool:{id}")
    arguments = {"id": id, "tool": tool, "input": given, **options.described()}
    op = Op(
        key=f"tool:{id}:{n}",
        kind=OpKind.TOOL,
        digest=operation_digest(OpKind.TOOL.value, arguments),
        args={**arguments, "options": options},
    )
    return journal_result(await body.ask(op))


def page_options(query: Query, page: QueryPage) -> CallOptions:
    """How a page is asked for: whoever reads it, in whatever place or run, is answered by one receipt."""
    return CallOptions(is_private=True, timeout_ms=query.timeout_ms, page=page, query=query.call)


def page_id(query: Query, page: QueryPage) -> str:
    """What a page's call is named in its place."""
    return f"{query.id}:{page.offset}:{page.page_size}"
