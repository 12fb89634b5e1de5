"""Answers as messages: JSON texts of many answers. An output travels as text inside, so its bytes stay exact."""

from collections.abc import Sequence
from typing import Any

import orjson

from runtime.errors import BadInputError
from runtime.model.call import Answer, AnswerState

VERSION = 2


def to_texts(answers: Sequence[Answer], *, inline_bytes: int, message_bytes: int) -> list[bytes]:
    """As few messages as `message_bytes` allows, at least one; outputs above `inline_bytes` stay in their receipt."""
    texts: list[bytes] = []
    rows: list[list[Any]] = []
    size = 0
    for answer in answers:
        row = _row(answer, inline_bytes)
        size += len(row[2] or "") + 200
        if rows and size > message_bytes:
            texts.append(_text(rows))
            rows, size = [], len(row[2] or "") + 200
        rows.append(row)
    texts.append(_text(rows))
    return texts


def from_text(text: bytes) -> list[Answer]:
    message = orjson.loads(text)
    if message.get("v") != VERSION:
        raise BadInputError(
            f"an answer message is not of version {VERSION}: all processes must run one release"
        )
    return [
        Answer(
            key=key,
            state=AnswerState(state),
            output=None if output is None else output.encode(),
            error=error,
            cached=cached,
            run_id=run_id,
            produced_ms=produced_ms,
            terminal=terminal,
            until_ms=until_ms,
        )
        for key, state, output, error, cached, run_id, produced_ms, terminal, until_ms in message["answers"]
    ]


def _text(rows: list[list[Any]]) -> bytes:
    return orjson.dumps({"v": VERSION, "answers": rows})


def _row(answer: Answer, inline_bytes: int) -> list[Any]:
    output = answer.output
    if output is not None and len(output) > inline_bytes:
        return [answer.key, AnswerState.STORED, None, None, *_provenance(answer)]
    return [
        answer.key,
        answer.state,
        None if output is None else output.decode(),
        answer.error,
        *_provenance(answer),
    ]


def _provenance(answer: Answer) -> list[Any]:
    return [answer.cached, answer.run_id, answer.produced_ms, answer.terminal, answer.until_ms]
