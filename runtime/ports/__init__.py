"""What the engine needs of the world, as small Protocols. One contract suite runs on fakes and real stores.

Every store method is one decision that is safe to repeat; a library's connection errors surface as
ServiceUnreachableError after the adapter's own bounded retries.
"""

from runtime.ports.budgets import BudgetStore
from runtime.ports.datasets import DatasetStore, SettlingStore
from runtime.ports.events import EventSink, NoEvents, no_events
from runtime.ports.execution import Requests, TokenSource, ToolCatalog
from runtime.ports.messages import DispatchEpoch, Inbox, Publisher
from runtime.ports.pacing import Pacer, Ticket
from runtime.ports.process import Clock, Fault, LoopBridge, Timer
from runtime.ports.reading import SheetReads, SheetViews
from runtime.ports.receipts import LeaseStore, ReceiptStore
from runtime.ports.rows import RowWrite, RowWriteAnswer, SliceRows, SliceStore, WaitingSlices
from runtime.ports.runs import EndedRuns, LogLine, RunStore
from runtime.ports.sessions import SessionStore
from runtime.ports.waits import WaitStore
from runtime.ports.watching import SampleStore, ScheduleStore

__all__ = [
    "BudgetStore",
    "Clock",
    "DatasetStore",
    "DispatchEpoch",
    "EndedRuns",
    "EventSink",
    "Fault",
    "Inbox",
    "LeaseStore",
    "LogLine",
    "LoopBridge",
    "NoEvents",
    "Pacer",
    "Publisher",
    "ReceiptStore",
    "Requests",
    "RowWrite",
    "RowWriteAnswer",
    "RunStore",
    "SampleStore",
    "ScheduleStore",
    "SessionStore",
    "SettlingStore",
    "SheetReads",
    "SheetViews",
    "SliceRows",
    "SliceStore",
    "Ticket",
    "Timer",
    "TokenSource",
    "ToolCatalog",
    "WaitStore",
    "WaitingSlices",
    "no_events",
]
