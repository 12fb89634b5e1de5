"""`ctx`: one object for a play's body and its rows; a ContextVar says which of them asks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from runtime.context.asking_body import AskingBody
from runtime.context.asks import Ask, ChildAsk, ChildRun, EnqueueAsk
from runtime.context.authoring import json_input, play_named, row_of, step_ask, text_id
from runtime.context.csv_asking import ask_csv
from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset import DatasetBuilder, DatasetHandle, DatasetSpec
from runtime.context.fetch_ask import CustomerDb, FetchAsk
from runtime.context.fetching import FetchResponse, fetch_request
from runtime.context.log_line import log_fields, log_text
from runtime.context.node import Node
from runtime.context.program import StepProgram
from runtime.context.run_program import checked_program, run_program
from runtime.context.scope import current_scope
from runtime.context.secrets import SecretAuth, SecretHandle, Secrets
from runtime.context.tool_result import ToolResult
from runtime.context.tools import Tools
from runtime.context.waits import Duration, OnTimeout, event_ask, sleep_ask
from runtime.errors import PlayDefinitionError, SecretTaintError
from runtime.model.extracting import ResultParts, list_at
from runtime.model.kept_value import plain
from runtime.model.operation import Op, OpKind
from runtime.policy.identity import operation_digest
from runtime.policy.redacting import Redaction


class PlayContext:
    """What an author holds."""

    def __init__(self, body: AskingBody) -> None:
        self._body = body
        self.tools = Tools(body)
        self.secrets = Secrets(self._secret)
        self.customer_db = CustomerDb(self.tools)
        self._met: dict[str, str] = {}  # secrets that the body awaited, by value

    async def csv(
        self,
        path: str | Mapping[str, Any] | None = None,
        *,
        content: str | bytes | None = None,
        columns: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        required: Sequence[str] | None = None,
        delimiter: str | None = None,
    ) -> CsvHandle:
        """Read CSV: a file of the workspace, a URL, inline `content`, or (nothing named) the run's input file.

        `rename` (old name -> new) comes first, then `columns` keeps those; `required` must be there. `delimiter`
        parts the cells where it isn't a comma. A handle has columns, count and digest; iterate it for its rows.
        """
        self._body_only("ctx.csv", "read the file in the body and close over what you need")
        return await ask_csv(
            self._body,
            path,
            content=content,
            columns=columns,
            rename=rename,
            required=required,
            delimiter=delimiter,
        )

    async def sleep(self, duration: Duration, *, id: str = "sleep") -> None:
        """Go on after so many seconds, or a timedelta; nothing is held meanwhile, whoever is restarted."""
        await self._perform(sleep_ask(duration, id, self._body.limits))

    async def wait_for_event(
        self,
        id: str,
        *,
        key: str | None = None,
        timeout: Duration | None = None,
        on_timeout: OnTimeout = "error",
    ) -> Any:
        """The payload of the next event with `key` (else `id`) that is delivered to the run's org.

        An event that came earlier in the run's life counts, unless this body or row has met it already.
        """
        return await self._perform(event_ask(id, key, timeout, on_timeout, self._body.limits))

    def dataset(self, key: str, rows: Any, *fields: Any, **options: Any) -> DatasetBuilder:
        """A table of rows to enrich: add columns, then run it."""
        self._body_only("ctx.dataset", _NESTED)
        if fields or options:
            raise PlayDefinitionError(
                f"{self._where()}: ctx.dataset takes a key and rows; columns and options come after: "
                'ctx.dataset(key, rows).with_column("field", resolver).run(...)'
            )
        return DatasetBuilder(self, play=self._body.play.name, key=key, rows=rows)

    def map(self, *_: Any, **__: Any) -> NoReturn:
        """The old name of `dataset`."""
        raise PlayDefinitionError(
            f"{self._where()}: ctx.map() is now ctx.dataset(): write "
            'await ctx.dataset("rows", rows).with_column("field", resolver).run()'
        )

    async def run_dataset(self, spec: DatasetSpec) -> DatasetHandle:
        """Ask for a dataset; a key names one dataset of a run."""
        self._body_only("ctx.dataset", _NESTED)
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

    async def step(
        self,
        id: str,
        fn: Callable[[], Any],
        *,
        semantic_key: str | None = None,
        stale_after_seconds: float | None = None,
    ) -> Any:
        """What `fn()` gives, plainly or awaited, kept as JSON: done once however often this code is replayed.

        Of this run alone, unless `semantic_key` says what the work is or `stale_after_seconds` how old a result of
        another run may be when this one began.
        """
        ask = step_ask(self._where(), id, fn, semantic_key, stale_after_seconds)
        return await self._perform(ask)

    async def fetch(
        self,
        key: str,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str | int | float] | None = None,
        body: str | bytes | None = None,
        json: Any = None,
        auth: SecretAuth | Sequence[SecretAuth] | None = None,
        idempotency_key: str | None = None,
        timeout_ms: float | None = None,
        stale_after_seconds: float | None = None,
    ) -> FetchResponse:
        """An HTTP request to the public network, made once however often this is replayed; any status is an answer.

        What could do something twice needs `idempotency_key`. Secrets go by `auth`, made by `ctx.secrets`. Of this run
        alone, unless `stale_after_seconds` says how old an answer to another run may be.
        """
        name = text_id(key, f"{self._where()}: a ctx.fetch")
        request = fetch_request(
            f'{self._where()}: ctx.fetch("{name}")',
            url,
            method=method,
            headers=headers,
            params=params,
            body=body,
            json=json,
            auth=auth,
            idempotency_key=idempotency_key,
            timeout_ms=timeout_ms,
            stale_after_seconds=stale_after_seconds,
            limits=self._body.limits,
            blacken=Redaction(self._met).text if self._met else str,
        )
        return await self._perform(FetchAsk(id=name, request=request))

    async def _secret(self, name: str) -> str:
        scope = current_scope.get()
        if scope is not None:
            return await scope.secret(name)
        value = self._body.secret(name)
        self._met[value] = name
        return value

    async def run_steps(self, program: StepProgram, input: Mapping[str, Any]) -> Any:
        """Run a `steps()` program over one object; what it returns, or its steps' values by name."""
        return await run_program(checked_program(program, self._where()), row_of(input, self._where()), self)

    async def run_play(self, key: str, play: Any, input: Any = None) -> Any:
        """Run another play inside this one, on its queues; what it returns. Its steps have receipts of their own."""
        where = self._where()
        found = play_named(self._body.registry, play, f'{where}: ctx.run_play("{key}")')
        given = json_input(input, f'{where}: ctx.run_play("{key}")')
        ask = ChildAsk(id=text_id(key, f"{where}: ctx.run_play"), play=found, input=given, ctx=self)
        return await self._perform(ask)

    async def enqueue_play(self, key: str, play: Any, input: Any = None) -> ChildRun:
        """Start another play as a run of its own, once; it goes on by itself, the handle has its `run_id`."""
        where = self._where()
        found = play_named(self._body.registry, play, f'{where}: ctx.enqueue_play("{key}")')
        given = json_input(input, f'{where}: ctx.enqueue_play("{key}")')
        ask = EnqueueAsk(id=text_id(key, f"{where}: ctx.enqueue_play"), play=found.name, input=given)
        return await self._perform(ask)

    def node(self, id: str, inputs: Mapping[str, Any] | None = None) -> Node:
        """`async with ctx.node("score", inputs={...}) as node:` observes a piece of the play, if its run captures."""
        return Node(id, inputs, self)

    def observe(self, text: str, fields: dict[str, Any]) -> None:
        """Keep what a node saw."""
        scope = current_scope.get()
        if scope is not None:
            scope.log(text, fields, level="node")
        else:
            self._body.log(text, fields, level="node")

    @property
    def captures(self) -> bool:
        """Whether the run asked for provenance and observations."""
        scope = current_scope.get()
        return self._body.captures if scope is None else scope.captures

    async def _perform(self, ask: Ask) -> Any:
        """In the body an operation of its journal; elsewhere done in place."""
        scope = current_scope.get()
        if scope is not None:
            return await scope.perform(ask)
        n = self._body.nth(f"{ask.kind.value}:{ask.id}")
        op = Op(
            key=f"{ask.kind.value}:{ask.id}:{n}",
            kind=ask.kind,
            digest=operation_digest(ask.kind.value, ask.described()),
            args=ask,
        )
        return ask.met(await self._body.ask(op))

    def log(self, text: str, /, **fields: Any) -> None:
        """Keep a log line, once however often this code is replayed."""
        limits = self._body.limits
        for name, value in {"text": text, **fields}.items():
            if isinstance(value, (SecretHandle, SecretAuth)):
                raise SecretTaintError(f"ctx.log: {name} is a secret: leave it out of what is logged")
        line, kept = log_text(text, limits), log_fields(fields, limits)
        scope = current_scope.get()
        if scope is None:
            self._body.log(line, kept)
        else:
            scope.log(line, kept)

    def _where(self) -> str:
        return f'play "{self._body.play.name}"'

    def _body_only(self, name: str, instead: str) -> None:
        scope = current_scope.get()
        if scope is not None:
            scope.refuse(f"{self._where()}: {name}", instead)


_NESTED = "add its columns to this dataset, or do the row's own work inside one column"
