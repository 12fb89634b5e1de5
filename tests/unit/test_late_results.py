"""A result that comes when its lease is another's already: its caller is served, what is stored stays."""

import pytest
from structlog.testing import capture_logs

from runtime.model.call import AnswerState
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import Receipt, ReceiptState
from tests.lane_stage import LaneStage, call, echo


def later(state: ReceiptState, fence: int) -> Receipt:
    """What another process has stored meanwhile, under a newer fence."""
    has_output = state is ReceiptState.COMPLETED
    return Receipt(
        key=call("a").key,
        org_id="o",
        tool="echo",
        run_id="r2",
        state=state,
        fence=fence,
        output=b'"theirs"' if has_output else None,
        error=None if has_output else {"code": "c", "message": "theirs"},
    )


@pytest.mark.parametrize(
    ("state", "served"),
    [
        (ReceiptState.COMPLETED, b'"theirs"'),
        (ReceiptState.DISPATCHED, b'{"value":"v:a"}'),
        (ReceiptState.FAILED, b'{"value":"v:a"}'),
        (ReceiptState.UNKNOWN, b'{"value":"v:a"}'),
    ],
)
async def test_a_late_result_serves_its_caller_and_is_logged(state: ReceiptState, served: bytes) -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        stage.receipts.stored[call("a").key] = later(state, 2**60)
        return echo(request)

    stage = await LaneStage(answer).start()
    with capture_logs() as lines:
        await stage.finish(await stage.post([call("a")]))
    (told,) = (await stage.answers()).values()
    assert told.state is AnswerState.COMPLETED
    assert told.output is not None and told.output.startswith(served)
    assert stage.receipts.stored[call("a").key].fence == 2**60, "a newer generation is never replaced"
    assert [line["stored"] for line in lines if line.get("action") == "lane.late"] == [state.value]
    assert stage.balanced()
