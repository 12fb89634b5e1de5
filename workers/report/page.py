"""A run as one page of HTML that needs nothing else."""

from collections.abc import Iterable, Sequence
from html import escape

from runtime.model.insight import RunInsight
from runtime.model.sample import RunHistory
from runtime.model.status import ChildCounts, RunStatus
from runtime.policy.progress import ending_line, error_line, fill, spoken_time
from workers.report import series
from workers.report.curves import chart

STATES = ("completed", "cached", "missed", "skipped", "failed", "not_run")
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #66707f; --line: #d9dee5; --back: #fff; --panel: #f6f7f9 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #333c48; --back: #14181e; --panel: #1c222a } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back); max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin-top: 2rem }
h3 { font-size: 1rem; margin-bottom: .3rem }
.state { padding: .1rem .5rem; border-radius: .3rem; color: #fff; background: #2f6fb5 }
.state.completed { background: #22804a } .state.failed { background: #b3372f } .state.cancelled { background: #7a6a1c }
.facts { display: flex; flex-wrap: wrap; gap: .6rem; padding: 0; list-style: none }
.facts li { background: var(--panel); border-radius: .4rem; padding: .5rem .8rem; min-width: 7rem }
.facts b { display: block; font-size: 1.2rem } .facts span, .none, .legend { color: var(--soft); font-size: .85rem }
table { border-collapse: collapse; width: 100%; font-size: .9rem } td, th { text-align: right; padding: .3rem .6rem;
  border-bottom: 1px solid var(--line); vertical-align: top }
td:first-child, th:first-child, .text { text-align: left; overflow-wrap: anywhere }
svg { width: 100%; height: auto; background: var(--panel); border-radius: .4rem }
svg text { font-size: 11px; fill: var(--soft) } svg .left { text-anchor: end }
.grid { stroke: var(--line); stroke-width: 1 } polyline { fill: none; stroke-width: 1.8 }
.closed { fill: #b3372f; opacity: .22 } .error { border-left: 4px solid #b3372f; padding-left: .8rem }
.s0 { stroke: #2f6fb5 } .s1 { stroke: #c77b1e } .s2 { stroke: #22804a } .s3 { stroke: #8a4fb0 }
.s4 { stroke: #b3372f } .s5 { stroke: #2a8f96 } .key::before { content: "\\25A0\\00A0" }
.key { margin-right: 1rem } .k0::before { color: #2f6fb5 } .k1::before { color: #c77b1e } .k2::before { color: #22804a }
.k3::before { color: #8a4fb0 } .k4::before { color: #b3372f } .k5::before { color: #2a8f96 }
""".replace("\\\\", "\\")


def page(status: RunStatus, insight: RunInsight, history: RunHistory) -> str:
    """The whole page; every text of a run is escaped."""
    title = f"{escape(status.play)} {escape(status.run_id)}"
    state = status.state.value
    body = "\n".join(
        (
            f'<h1>{title} <span class="state {state}">{state}</span></h1>',
            *_ending(status),
            _facts(status, insight),
            _throughput(status, history),
            _lanes(status, history),
            _datasets(status),
            _cells(history),
            _cost(status),
            _failures(insight),
            _waits(insight),
        )
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>\n{body}\n</body></html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[object]], none: str) -> str:
    """A table, or a sentence where it would be empty."""
    cells = [[(_text(cell), isinstance(cell, str)) for cell in row] for row in rows]
    if not cells:
        return f'<p class="none">{escape(none)}</p>'
    lines = ["<tr>" + "".join(_cell("td", *cell) for cell in row) + "</tr>" for row in cells]
    names = "".join(_cell("th", name, is_text) for name, (_, is_text) in zip(head, cells[0], strict=True))
    return f"<table><tr>{names}</tr>{''.join(lines)}</table>"


def _cell(tag: str, text: str, is_text: bool) -> str:
    kind = ' class="text"' if is_text else ""
    return f"<{tag}{kind}>{escape(text)}</{tag}>"


def _ending(status: RunStatus) -> Iterable[str]:
    yield f"<p>{escape(ending_line(status))}</p>"
    reason = error_line(status)
    if reason:
        yield f'<p class="error">{escape(reason)}</p>'


def _facts(status: RunStatus, insight: RunInsight) -> str:
    spent = insight.spending
    filled = fill(status.usage)
    facts = (
        (spoken_time(series.duration_s(status)), "from first body to end" if status.ended_at else "so far"),
        ("-" if insight.rows_per_s is None else f"{insight.rows_per_s:,.0f}", "rows/s"),
        (f"{spent.calls:,}", "calls asked for"),
        (f"{spent.sent:,}", "calls sent"),
        (f"{spent.requests:,}", "requests"),
        ("-" if filled is None else f"{filled:.0%}", "full"),
        (f"{spent.cached + spent.followed:,}", "answered without a request"),
        (f"{spent.credits:,g}", "credits spent"),
        (f"{spent.credits_saved:,.4g}", "credits saved, about"),
        *_children(insight.children),
    )
    items = "".join(f"<li><b>{escape(value)}</b><span>{escape(name)}</span></li>" for value, name in facts)
    return f'<ul class="facts">{items}</ul>'


def _children(found: ChildCounts) -> Iterable[tuple[str, str]]:
    if found.ok or found.failed:
        yield f"{found.ok + found.failed:,}", f"child plays ended inside it, {found.failed:,} of them failed"
    if found.runs:
        yield (
            f"{found.runs:,}",
            f"child runs, {found.runs_ended:,} ended, {found.runs_failed:,} of them failed",
        )


def _throughput(status: RunStatus, history: RunHistory) -> str:
    until_s = series.duration_s(status)
    rows = chart(series.rows_over_time(status, history), until_s=until_s, unit="rows/s")
    calls = chart(series.calls_over_time(status, history), until_s=until_s, unit="a second")
    return f"<h2>Throughput</h2>{rows}<h3>Calls and requests</h3>{calls}"


def _lanes(status: RunStatus, history: RunHistory) -> str:
    parts = ["<h2>Lanes</h2>"]
    until_s = series.duration_s(status)
    for name, rates, filled, spans in series.lanes_over_time(status, history):
        parts.append(f"<h3>{escape(name)}</h3>")
        parts.append(chart(rates, until_s=until_s, unit="requests/s; red: closed", spans=spans))
        parts.append(chart(filled, until_s=until_s, unit="fill of requests, %"))
    if len(parts) == 1:
        parts.append('<p class="none">no lane was looked at while it ran</p>')
    return "".join(parts)


def _datasets(status: RunStatus) -> str:
    rows = (
        (one.key, one.state.value, one.rows, one.completed, one.failed, one.cancelled, one.duplicates)
        for one in status.datasets
    )
    head = ("dataset", "state", "rows", "completed", "failed", "cancelled", "duplicates")
    return f"<h2>Datasets</h2>{table(head, rows, 'the run has no dataset')}"


def _cells(history: RunHistory) -> str:
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for one in history.cells:
        counts.setdefault((one.dataset, one.column), {})[one.state] = one.cells
    states = [*STATES, *sorted({one.state for one in history.cells} - set(STATES))]
    rows = (
        (f"{key[0]}.{key[1]}", *(found.get(state, 0) for state in states)) for key, found in counts.items()
    )
    return f"<h2>Cells</h2>{table(('column', *states), rows, 'no cell is stored of this run')}"


def _cost(status: RunStatus) -> str:
    head = ("tool", "asked", "sent", "requests", "full", "cached", "followed", "credits")
    rows = (
        (
            one.tool,
            one.items + one.cached + one.followed,
            one.items,
            one.batches,
            "-" if not one.capacity else f"{one.items / one.capacity:.0%}",
            one.cached,
            one.followed,
            one.credits,
        )
        for one in status.usage
    )
    return f"<h2>Cost</h2>{table(head, rows, 'no call was made')}"


def _failures(insight: RunInsight) -> str:
    rows = ((one.code, one.dataset, one.rows, one.row_key, one.message) for one in insight.failures)
    head = ("error", "dataset", "rows", "first row", "its message")
    return f"<h2>Failures</h2>{table(head, rows, 'no row failed')}"


def _waits(insight: RunInsight) -> str:
    if not insight.awaited:
        return ""
    rows = (
        (one.where, one.kind, one.name, one.count, one.since or "-", one.due_at or "-")
        for one in insight.awaited
    )
    head = ("where", "kind", "for", "count", "since", "until")
    return f"<h2>What it waits for</h2>{table(head, rows, '')}"


def _text(cell: object) -> str:
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,g}" if isinstance(cell, float) else str(cell)
