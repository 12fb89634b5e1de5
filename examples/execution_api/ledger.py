"""The ledger: one entry a request, and the answers by key that make a repeated request free."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from runtime.model import json_value

_KEPT_IN_FILE_ONLY = ("payload_digest", "item_digests", "answers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A key's answer and the digest of what it answered."""

    digest: str
    answer: Any


@dataclass(slots=True, kw_only=True)
class Entry:
    time: float
    operation: str
    batch_key: str
    item_keys: list[str]
    items: list[Any]
    run_ids: list[str]
    status: int = 0
    charged: int = 0
    charged_items: list[Any] = field(default_factory=list)
    credits: float = 0.0
    code: str | None = None
    replayed: bool = False

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def digest_of(value: Any) -> str:
    """A digest of a JSON value, whatever the order of its keys."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        text = json_value.dumps(value)
    return hashlib.blake2b(text, digest_size=16).hexdigest()


class Ledger:
    """Entries in memory, and a JSON-lines file from which known keys come back after a restart."""

    def __init__(self, path: Path | None = None) -> None:
        self.entries: list[dict[str, Any]] = []
        self.batches: dict[str, Stored] = {}
        self.items: dict[str, Stored] = {}
        self._path = path
        self._file: BinaryIO | None = None
        if path is not None:
            self._reload(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)

    def add(self, entry: Entry, *, answers: list[Any], payload_digest: str, item_digests: list[str]) -> None:
        """Record a request that was worked on: entry, file, then the answers by key."""
        line = entry.to_json() | {
            "answers": answers,
            "payload_digest": payload_digest,
            "item_digests": item_digests,
        }
        self._write(line)
        self._learn(line)

    def note(self, entry: Entry) -> None:
        """Record a request that was refused or answered from memory."""
        self._write(entry.to_json())

    def since(self, time: float) -> list[dict[str, Any]]:
        return sorted((e for e in self.entries if e["time"] > time), key=lambda e: e["time"])

    def clear(self) -> None:
        """Forget entries and keys, in memory and in the file."""
        self.entries.clear()
        self.batches.clear()
        self.items.clear()
        if self._file is not None:
            self._file.truncate(0)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is not None:
            # One unbuffered write: what was charged outlives a kill of this process.
            self._file.write(json_value.dumps(line) + b"\n")
        self.entries.append({k: v for k, v in line.items() if k not in _KEPT_IN_FILE_ONLY})

    def _learn(self, line: Mapping[str, Any]) -> None:
        answers = line["answers"]
        if line["batch_key"] and not line["replayed"]:
            self.batches[line["batch_key"]] = Stored(digest=line["payload_digest"], answer=answers)
        for key, digest, answer in _keyed(line["item_keys"], line["item_digests"], answers):
            if "error" not in answer:
                self.items.setdefault(key, Stored(digest=digest, answer=answer))

    def _reload(self, path: Path) -> None:
        if not path.exists():
            return
        data = path.read_bytes()
        whole, _, torn = data.rpartition(b"\n")
        for text in whole.splitlines():
            line = json_value.loads(text)
            self.entries.append({k: v for k, v in line.items() if k not in _KEPT_IN_FILE_ONLY})
            if "answers" in line:
                self._learn(line)
        if torn:
            # A kill in mid-write leaves a last line that was never answered.
            with path.open("r+b") as file:
                file.truncate(len(data) - len(torn))


def _keyed(keys: list[str], digests: list[str], answers: list[Any]) -> Iterable[tuple[str, str, Any]]:
    return zip(keys, digests, answers, strict=False)
