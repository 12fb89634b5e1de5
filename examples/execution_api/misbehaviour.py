"""How the API misbehaves on demand, set through its control endpoint."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, NonNegativeInt

from runtime.model import json_value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ForcedAnswer(_Strict):
    """Answer the next `times` requests with this status instead."""

    status: int = Field(ge=200, le=599)
    times: NonNegativeInt = 1
    retry_after: str | None = None
    retry_at: str | None = None  # in the error object, with the code provider_exhausted
    date: str | None = None
    code: str | None = None
    message: str = "forced by the control endpoint"
    origin: str | None = None
    location: str | None = None
    headers: dict[str, str] = {}  # any others, in place of the API's own of the same name
    body: str | None = None  # sent as it is, in place of an error object
    marked: bool = True  # carries the API's own request id header
    after_work: bool = False  # the work is done and charged first


class BrokenBody(_Strict):
    """Break the body of the next `times` good replies after so many bytes."""

    after_bytes: NonNegativeInt = 0
    times: NonNegativeInt = 1


class Drop(_Strict):
    """End the connections of the next `times` requests without an answer."""

    work_done: bool = False  # the work is done and charged first
    times: NonNegativeInt = 1


class Misbehaviour(_Strict):
    latency_ms: NonNegativeFloat = 0
    # those that misbehave; latency is for all
    operations: list[str] = ["echo", "echo_batch", "echo_single", "echo_fenced"]
    answer: ForcedAnswer | None = None
    drop: Drop | None = None
    refuse_ms: NonNegativeFloat = 0  # from the control call on nothing listens for so long
    attest_fence: bool = True  # False: repeated keys of fenced tools are worked on again, and charged
    auth_scopes: dict[str, str] = {}  # tool -> digest of the credentials behind it now
    bad_item: str | None = None  # any request that holds it is refused with 400
    item_error: str | None = None  # this item alone fails
    item_error_retryable: bool = False
    shuffle: bool = False
    drop_item: str | None = None
    duplicate_item: str | None = None
    stranger: bool = False
    stall: BrokenBody | None = None
    cut: BrokenBody | None = None
    reply_text: str | None = None  # a good reply's body, verbatim
    item_text: dict[str, str] = {}  # item -> what stands as its result in a good reply, verbatim
    metadata: dict[str, dict[str, Any]] = {}  # tool -> changed fields of its metadata
    metadata_status: int | None = None
    metadata_status_times: NonNegativeInt = 0

    def merged(self, changes: dict[str, Any]) -> "Misbehaviour":
        """A copy with `changes` made; ValidationError names what is wrong."""
        return Misbehaviour.model_validate(self.model_dump() | changes)

    def for_request(self, header: str | None, operation: str) -> "Misbehaviour":
        """What a request's fault header asks of its own answer, in the form of a control call; else this."""
        if not header:
            return self
        asked = json_value.loads(header.encode())
        if not isinstance(asked, dict):
            raise TypeError("the fault header must hold a JSON object")
        kept = {name: getattr(self, name) for name in ("latency_ms", "attest_fence", "auth_scopes")}
        return Misbehaviour.model_validate({**kept, **asked, "operations": [operation]})

    def applies(self, operation: str) -> bool:
        return operation in self.operations

    def take_answer(self, operation: str, *, after_work: bool) -> ForcedAnswer | None:
        """The forced answer due now, used up by one."""
        answer = self.answer
        if (
            answer is None
            or answer.times < 1
            or answer.after_work is not after_work
            or not self.applies(operation)
        ):
            return None
        answer.times -= 1
        return answer

    def take_drop(self, operation: str) -> Drop | None:
        """The drop due now, used up by one."""
        drop = self.drop
        if drop is None or drop.times < 1 or not self.applies(operation):
            return None
        drop.times -= 1
        return drop

    def take_broken(self, operation: str) -> tuple[str, int] | None:
        """("stall" or "cut", after so many bytes) due now, used up by one."""
        for kind, broken in (("stall", self.stall), ("cut", self.cut)):
            if broken is not None and broken.times > 0 and self.applies(operation):
                broken.times -= 1
                return kind, broken.after_bytes
        return None

    def take_metadata_status(self) -> int | None:
        if self.metadata_status is None or self.metadata_status_times < 1:
            return None
        self.metadata_status_times -= 1
        return self.metadata_status
