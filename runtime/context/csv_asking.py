"""`ctx.csv(...)`: which CSV an author means, asked of the body."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

from runtime.context.csv_projection import projection_of
from runtime.context.csv_rows import INLINE, CsvHandle, is_delimiter
from runtime.errors import PlayDefinitionError
from runtime.model.operation import Op, OpKind
from runtime.play import PlayDefinition
from runtime.policy.identity import operation_digest
from runtime.policy.limits import Limits

_PATH_CHARS = 4_000


class AsksCsv(Protocol):
    """What is needed of a body."""

    play: PlayDefinition
    limits: Limits

    @property
    def input(self) -> Any: ...

    def ask(self, op: Op) -> Any: ...

    def nth(self, name: str) -> int: ...


async def ask_csv(
    body: AsksCsv,
    path: str | Mapping[str, Any] | None,
    *,
    content: str | bytes | None,
    columns: Sequence[str] | None,
    rename: Mapping[str, str] | None,
    required: Sequence[str] | None,
    delimiter: str | None = None,
) -> CsvHandle:
    """The handle of a file, a URL, inline content, or (nothing named) the run's input file."""
    where = f'play "{body.play.name}": ctx.csv'
    projection = projection_of(columns, rename, required, where=where)
    if delimiter is not None and not is_delimiter(delimiter):
        raise PlayDefinitionError(
            f"{where}: delimiter is one character such as ';' or '\\t', no quote and no line end, not {delimiter!r:.80}"
        )
    name, inline = _source(body.input, path, content, where)
    url = name if is_url(name) else None
    shown = shown_url(name) if url else name
    named = f"csv:{shown}"
    arguments: dict[str, Any] = {"path": name, **projection.described()}
    if delimiter is not None:
        arguments["delimiter"] = delimiter
    if inline is not None:
        arguments["content"] = hashlib.sha256(inline).hexdigest()
    op = Op(
        key=f"{named}:{body.nth(named)}",
        kind=OpKind.CSV,
        digest=operation_digest(OpKind.CSV.value, arguments),
        args={
            "path": name,
            "shown": shown,
            "content": inline,
            "projection": projection,
            "delimiter": delimiter,
        },
    )
    found = await body.ask(op)
    return CsvHandle(
        path=found["path"],
        columns=tuple(found["columns"]),
        count=found["count"],
        digest=found["digest"],
        file=found.get("file"),
        url=url,
        content=inline,
        projection=projection,
        delimiter=delimiter,
        limits=body.limits,
    )


def is_url(name: str) -> bool:
    """Anything with a scheme: which of them are fetched is decided where it is."""
    return "://" in name


def shown_url(url: str) -> str:
    """Scheme, host and path: a query or a user may hold what nobody should read."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _source(input: Any, path: Any, content: Any, where: str) -> tuple[str, bytes | None]:
    """(name, inline content)."""
    if path is not None and content is not None:
        raise PlayDefinitionError(f"{where} was given a path and content: leave one out")
    if content is not None:
        return INLINE, _bytes(content, where)
    if path is None:
        path = input.get("file") if isinstance(input, Mapping) else None
        if path is None:
            raise PlayDefinitionError(
                f'{where} without a path reads the run\'s input file, but its input has no field "file": '
                "name a path, or start the run with --csv"
            )
    if isinstance(path, Mapping) and "content" in path:
        return str(path.get("name") or INLINE), _bytes(path["content"], where)
    if not isinstance(path, str) or not path.strip() or len(path) > _PATH_CHARS or "\x00" in path:
        raise PlayDefinitionError(
            f'{where} takes the path or URL of a file (or content="..."), not {path!r:.80}'
        )
    return path.strip(), None


def _bytes(content: Any, where: str) -> bytes:
    if not isinstance(content, (str, bytes)):
        raise PlayDefinitionError(f"{where}: content is text or bytes, not {type(content).__name__}")
    return content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
