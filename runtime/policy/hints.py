"""What an author probably meant, where Python's own words about a mistake don't say it. Pure."""

from runtime.model.error_text import said

_HINTS = (
    ("'coroutine' object", "a ctx call gives its value when it is awaited: write `await` before it"),
    ("can't be used in 'await' expression", "it has its value already: leave `await` out"),
    ("'RowView' object", "a row is only read: return the new value, it becomes the column's cell"),
    ("'DatasetHandle' object is not iterable", "write `async for row in handle`"),
    ("'DatasetHandle' object is not subscriptable", "write `await handle.at(0)` or `await handle.peek(25)`"),
    ("'DatasetHandle' has no len()", "write `handle.count`"),
    ("'CsvHandle' object is not subscriptable", "give it to ctx.dataset, or write `for row in handle`"),
    ("Tools.execute() ", 'write ctx.tools.execute(id="...", tool="...", input={...}), each by its name'),
    ("PlayContext.fetch() missing", 'write ctx.fetch("a name of your own", "https://...")'),
    ("PlayContext.log() takes", 'write ctx.log("text", name=value)'),
    ("'PlayContext' object has no attribute 'tool'", "write ctx.tools.execute(...)"),
)


def with_hint(error: BaseException, text: str) -> str:
    """The text, and what to write instead if the error is one of those that authors make."""
    if isinstance(error, TypeError | AttributeError):
        what = said(error)
        for part, hint in _HINTS:
            if part in what:
                return f"{text} ({hint})"
    return text
