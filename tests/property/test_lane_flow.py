"""A lane process under any posts, pauses, lost stores and a shutdown: every call has one end, in time and in order."""

import asyncio
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.engine.lane_book import Accepted
from runtime.model.call import AnswerState
from tests.lane_stage import LIMITS, LaneStage, call, items_of, tool

MAX_BATCH = 4
GRACE_S = 30.0  # never used up: time passes at once
WINDOW_MS = LIMITS.coalesce_window_ms
POST = st.tuples(st.just("post"), st.sampled_from("xyz"), st.integers(1, 6))
PASS = st.tuples(st.just("pass"), st.just(""), st.sampled_from([1, 3, 6]))
AWAY = st.tuples(st.just("away"), st.just(""), st.integers(1, 2))
Step = tuple[str, str, int]


class Play:
    """One process, what it was asked for, and when each call left it."""

    def __init__(self, groups: int) -> None:
        self.stage = LaneStage(metadata=tool(MAX_BATCH), groups=groups)
        self.posted: dict[str, tuple[str, float]] = {}
        self.sent_at: dict[str, float] = {}
        self.posts: list[asyncio.Task[Accepted]] = []
        self.was_away = False

    async def step(self, kind: str, run: str, count: int) -> None:
        stage = self.stage
        if kind == "post":
            made = [call(f"{run}{len(self.posted) + n}", run_id=run) for n in range(count)]
            self.posted |= {one.input["item"]: (run, stage.clock.now_ms()) for one in made}
            self.posts.append(asyncio.get_running_loop().create_task(stage.post(made)))
            await self.pass_time(0)
        elif kind == "away":
            stage.receipts.away, self.was_away = count, True
        else:
            for _ in range(count):
                await self.pass_time(1)

    async def pass_time(self, by_ms: float) -> None:
        await self.stage.clock.advance(by_ms)
        for request in self.stage.requests.sent:
            for item in items_of(request):
                self.sent_at.setdefault(item, self.stage.clock.now_ms())

    async def end(self, *, early: bool) -> None:
        ending = list[asyncio.Task[object]](self.posts)
        if early:
            ending.append(asyncio.get_running_loop().create_task(self.stage.engine.drain(GRACE_S)))
        for by_ms in (*[1] * 7, 5_000):
            await self.pass_time(by_ms)
        await asyncio.gather(*ending)

    def check_order(self, sent: list[str]) -> None:
        for run in "xyz":
            mine = [item for item in sent if self.posted[item][0] == run]
            assert mine == [item for item in self.posted if item in set(mine)], "a run's order is kept"

    def check_windows(self) -> None:
        late = [item for item, (_run, at) in self.posted.items() if self.sent_at[item] > at + WINDOW_MS + 1]
        assert not late, "with a place free a call waits no longer than its window"


async def _play(steps: list[Step], *, early: bool, groups: int) -> None:
    play = Play(groups)
    await play.stage.start()
    for step in steps:
        await play.step(*step)
    await play.end(early=early)
    answers = await play.stage.answers()
    states = Counter(answer.state for answer in answers.values())
    sent = [item for request in play.stage.requests.sent for item in items_of(request)]
    assert len(answers) == len(play.posted), "each call has an end"
    assert len(sent) == len(set(sent)), "none is sent twice"
    assert states[AnswerState.COMPLETED] == len(sent)
    assert states[AnswerState.COMPLETED] + states[AnswerState.RETURNED] == len(play.posted)
    assert play.stage.balanced()
    if play.was_away:
        return
    play.check_order(sent)
    if not early:
        assert not states[AnswerState.RETURNED]
        if groups > len(play.posted):
            play.check_windows()


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(POST | PASS | AWAY, max_size=15),
    early=st.booleans(),
    groups=st.sampled_from([1, 3, 1_000]),
)
def test_every_call_has_one_end_in_time_and_in_order(steps: list[Step], early: bool, groups: int) -> None:
    asyncio.run(_play(steps, early=early, groups=groups))
