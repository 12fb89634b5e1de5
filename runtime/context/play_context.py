"""`ctx`: one object for a play's body and its rows; a ContextVar says which of them asks."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset import DatasetBuilder, DatasetHandle, DatasetSpec
from runtime.context.log_line import log_fields, log_text
from runtime.context.scope import current_scope
from runtime.context.tool_result import ToolResult, journal_result
from runtime.errors import JsonValueError, PlayDefinitionError
from runtime.model.call_options import NO_OPTIONS, CallOptions, checked
from runtime.model.extracting import ResultParts, list_at
from runtime.model.json_value import check
from runtime.model.kept_value import plain
from runtime.model.operation import Op, OpKind
from runtime.play import PlayDefinition
from runtime.policy.identity import operation_digest
from runtime.policy.limits import Limits


class AskingBody(Protocol):
    """What a ctx needs of its body."""

    play: PlayDefinition
    limits: Limits
    datasets: dict[str, DatasetSpec]

    def ask(self, op: Op) -> "asyncio.Future[Any]": ...

    def nth(self, name: str) -> int: ...

    def log(self, text: str, fields: dict[str, Any]) -> None: ...


class PlayContext:
    """What an author holds."""

    def __init__(self, body: AskingBody) -> None:
        self._body = body
        self.tools = Tools(body)

    async def csv(self, path: str) -> CsvHandle:
        """Read a CSV file: columns, count, digest; iterate it for its rows."""
        self._body_only("ctx.csv", "read the file in the body and close over what you need")
        if not isinstance(path, str) or not path:
            raise PlayDefinitionError(f"ctx.csv takes the path of a file, not {path!r:.80}")
        n = self._body.nth(f"csv:{path}")
        found = await self._body.ask(_op(OpKind.CSV, f"csv:{path}:{n}", {"path": path}))
        return CsvHandle(
            path=found["path"],
            columns=tuple(found["columns"]),
            count=found["count"],
            digest=found["digest"],
            limits=self._body.limits,
        )

    def dataset(self, key: str, rows: Any) -> DatasetBuilder:
        """A table of rows to enrich: add columns, then run it."""
        self._body_only("ctx.dataset", "start it in the body, before or after this one")
        return DatasetBuilder(self, play=self._body.play.name, key=key, rows=rows)

    async def run_dataset(self, spec: DatasetSpec) -> DatasetHandle:
        """Ask for a dataset; a key names one dataset of a run."""
        self._body_only("ctx.dataset", "start it in the body, before or after this one")
        if spec.namespace in self._body.datasets:
            raise PlayDefinitionError(
                f'play "{self._body.play.name}" runs dataset "{spec.key}" twice (both are sheet '
                f'"{spec.namespace}"): give each ctx.dataset its own key'
            )
        op = Op(
            key=f"dataset:{spec.namespace}",
            kind=OpKind.DATASET,
            digest=operation_digest("dataset", spec.described()),
            args=spec,
        )
        asked = self._body.ask(op)
        self._body.datasets[spec.namespace] = spec
        return DatasetHandle.of(spec, await asked or {})

    def extract_list(self, result: Any, path: str, keys: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """The objects of the list at `path` of a tool result or of plain data, cut to `keys` if named."""
        if isinstance(result, ToolResult):
            return result.extract_list(path, keys)
        return list_at(ResultParts(data=plain(result)[0]), path, keys)

    def log(self, text: str, /, **fields: Any) -> None:
        """Keep a log line, once however often this code is replayed."""
        limits = self._body.limits
        line, kept = log_text(text, limits), log_fields(fields, limits)
        scope = current_scope.get()
        if scope is None:
            self._body.log(line, kept)
        else:
            scope.log(line, kept)

    def _body_only(self, name: str, instead: str) -> None:
        if current_scope.get() is not None:
            raise PlayDefinitionError(
                f'play "{self._body.play.name}": {name} can\'t be used inside a row: {instead}'
            )


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
        given = _as_json(input)
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
        scope = current_scope.get()
        if scope is not None:
            return await scope.tool(id=id, tool=tool, input=given, options=options)
        n = self._body.nth(f"tool:{id}")
        arguments = {"id": id, "tool": tool, "input": given, **options.described()}
        op = _op(OpKind.TOOL, f"tool:{id}:{n}", arguments)
        found = await self._body.ask(replace(op, args={**arguments, "options": options}))
        return journal_result(found)


def _as_json(input: Any) -> Any:
    """An input may hold earlier results as they are; JsonValueError names what else can't be sent."""
    try:
        return check(input)
    except JsonValueError:
        return check(plain(input)[0])


def _op(kind: OpKind, key: str, arguments: dict[str, Any]) -> Op:
    return Op(key=key, kind=kind, digest=operation_digest(kind.value, arguments), args=arguments)
