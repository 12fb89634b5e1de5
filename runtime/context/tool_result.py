"""What a tool call gives an author: its data, readable as what it is, and everything else that came along."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from runtime.model import json_value, tool_output
from runtime.model.extracting import ResultParts, first_value, list_at, list_name, rows_at, values_at
from runtime.model.kept_value import KeptValue
from runtime.model.result_rules import ResultRules
from runtime.model.tool_output import Origin, ResponseEnvelope

KIND = "tool_result"
Rows = list[dict[str, Any]]
Values = list[Any]
_SHOWN_CHARS = 200


class ToolResult(KeptValue):
    """A tool's answer; live, stored and replayed ones are equal.

    Where the data is an object it reads like a dict, where it is a list like a list; `data` is the value itself.
    Nothing that is done to `data` changes what is stored.
    """

    __slots__ = ("_data", "_envelope", "_output", "_parsed", "_rules", "call", "origin", "tool")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, output: bytes, *, tool: str, origin: Origin, rules: ResultRules, call: str = ""
    ) -> None:
        self._output = output
        self._rules = rules
        self._data: Any = None
        self._parsed = False
        self._envelope: ResponseEnvelope | None = None
        self.tool = tool
        self.origin = origin
        self.call = call  # the receipt's key, of a call that answers for nobody else

    # ---- the response

    @property
    def data(self) -> Any:
        """The data, as JSON gives it."""
        if not self._parsed:
            self._data, self._parsed = self.to_json(), True
        return self._data

    @property
    def raw(self) -> Any:
        """The whole response as the provider gave it; the data is its `data`, or all of it."""
        envelope = self._beside()
        return self.data if envelope.is_raw else {**envelope.rest, "data": self.data}

    @property
    def meta(self) -> dict[str, Any]:
        """What the provider says about the response."""
        inner = self._beside().rest.get("meta")
        return {**(inner if isinstance(inner, dict) else {}), **self._beside().meta}

    @property
    def status(self) -> str:
        """`completed`, or `no_result` where the tool has nothing for this input, or the provider's own word."""
        status = self._beside().status
        empty = status == tool_output.COMPLETED and tool_output.data_text(self._output) == b"null"
        return tool_output.NO_RESULT if empty else status

    @property
    def job_id(self) -> str | None:
        return self._beside().job_id

    @property
    def output(self) -> bytes:
        """The bytes that the receipt keeps."""
        return self._output

    # ---- what the tool declares

    @property
    def extracted(self) -> "Extracted":
        """Values by target: `result.extracted.email`, `result.extracted["email"]`; None where the response has none."""
        return Extracted(self.tool, self._parts(), self._rules)

    @property
    def lists(self) -> dict[str, Rows]:
        """Every declared list as rows, by name; a name that two lists share is the first one's, the other its path."""
        return {name: rows_at(self._parts(), path) for name, path in self._list_paths().items()}

    def list(self, name: str | None = None) -> Rows:
        """One declared list as rows, by its name or path; without a name the first that has rows."""
        if name is None:
            return next((rows for rows in self.lists.values() if rows), [])
        paths = self._list_paths()
        path = name if name in self._rules.lists else paths.get(name)
        if path is None:
            raise KeyError(
                f"tool {self.tool} declares no list {name!r}; it has: {', '.join(paths) or 'none'}. "
                "Use extract_list(path) for a path of your own"
            )
        return rows_at(self._parts(), path)

    def identity(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """What identifies an item of a list, by target, as far as the tool declares it and the item says it."""
        parts = ResultParts(data=item)
        found = {name: first_value(parts, paths) for name, paths in self._rules.identities}
        return {name: value for name, value in found.items() if value is not None}

    def extract_list(self, path: str, keys: Sequence[str] | None = None) -> Rows:
        """The objects of the list at `path`, cut to `keys` if named; empty where there is no list."""
        return list_at(self._parts(), path, keys)

    def values_at(self, path: str) -> Values:
        """All values at a path such as `people[*].email`."""
        return list(values_at(self._parts(), path))

    # ---- storing

    def to_json(self) -> Any:
        return json_value.loads(tool_output.data_text(self._output))

    def mark(self) -> dict[str, Any]:
        mark: dict[str, Any] = {"kind": KIND, "tool": self.tool, "origin": self.origin.value}
        beside = self._beside().to_json()
        if beside:
            mark["beside"] = beside
        if self._rules:
            mark["rules"] = self._rules.to_json()
        return mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuilt, (self._output, self.tool, self.origin, self._rules))

    # ---- as a value

    def __eq__(self, other: object) -> bool:
        """Another result of the same tool with the same response, or plain data equal to this one's."""
        if not isinstance(other, ToolResult):
            return json_value.same(self.data, other)
        if self.tool != other.tool:
            return False
        if self._output == other._output:
            return True
        return json_value.same(self.to_json(), other.to_json()) and json_value.same(
            self._beside().to_json(), other._beside().to_json()
        )

    def __bool__(self) -> bool:
        return bool(self.data)

    def __str__(self) -> str:
        return str(self.data)

    def __repr__(self) -> str:
        text = tool_output.data_text(self._output)[:_SHOWN_CHARS].decode("utf-8", "replace")
        return f"ToolResult({self.tool}, {text})"

    def _beside(self) -> ResponseEnvelope:
        if self._envelope is None:
            self._envelope = tool_output.envelope_of(self._output)
        return self._envelope

    def _parts(self) -> ResultParts:
        return ResultParts(data=self.data, raw=self.raw, meta=self.meta)

    def _list_paths(self) -> dict[str, str]:
        paths: dict[str, str] = {}
        for path in self._rules.lists:
            name = list_name(path)
            paths[path if name in paths else name] = path
        return paths


class ToolObject(ToolResult, Mapping[str, Any]):
    """A result whose data is an object: a read-only mapping over it."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, name: str) -> Any:
        try:
            return self.data[name]
        except KeyError:
            known = ", ".join(list(self.data)[:20])
            raise KeyError(
                f"the result of {self.tool} has no {name!r}; it has {known or 'nothing'}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


class ToolList(ToolResult, Sequence[Any]):
    """A result whose data is a list: a read-only sequence over it."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]

    def __len__(self) -> int:
        return len(self.data)


class Extracted(Mapping[str, Any]):
    """Values of a result by the targets that its tool declares."""

    __slots__ = ("_parts", "_targets", "_tool")

    def __init__(self, tool: str, parts: ResultParts, rules: ResultRules) -> None:
        self._tool = tool
        self._parts = parts
        self._targets = dict(rules.targets)

    def __getitem__(self, target: str) -> Any:
        if target not in self._targets:
            raise KeyError(self._unknown(target))
        return first_value(self._parts, self._targets[target])

    def __getattr__(self, target: str) -> Any:
        if target.startswith("_") or target not in self._targets:
            raise AttributeError(self._unknown(target))
        return self[target]

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)

    def __repr__(self) -> str:
        return f"Extracted({', '.join(self._targets)})"

    def _unknown(self, target: str) -> str:
        return (
            f"tool {self._tool} declares no target {target!r}; it has: {', '.join(self._targets) or 'none'}"
        )


_KINDS = {b"{": ToolObject, b"[": ToolList}


def tool_result(
    output: bytes,
    *,
    tool: str,
    origin: Origin = Origin.LIVE,
    rules: ResultRules | None = None,
    call: str = "",
) -> ToolResult:
    """The result behind an output's bytes, of the class that fits its data."""
    kind = _KINDS.get(output[:1], ToolResult)
    return kind(output, tool=tool, origin=origin, rules=rules or ResultRules(), call=call)


def result_of(mark: Mapping[str, Any], value: Any, origin: Origin | None = None) -> ToolResult:
    """A stored result alive again, from its plain value and its mark."""
    envelope = ResponseEnvelope.of(mark.get("beside", {}))
    return tool_result(
        json_value.dumps(value) + tool_output.second_line(envelope),
        tool=str(mark.get("tool", "")),
        origin=origin or Origin(mark.get("origin", Origin.LIVE)),
        rules=ResultRules.of(mark.get("rules", {})),
    )


def journal_json(result: ToolResult) -> dict[str, Any]:
    """A result as a journal keeps it: as text, since a store may reorder names and reshape numbers."""
    called = {"call": result.call} if result.call else {}
    return {"json": result.output.decode(), "mark": _without_beside(result.mark()), **called}


def journal_result(stored: Mapping[str, Any]) -> ToolResult:
    """The result that a journal kept, with the origin that the body met first."""
    mark = stored.get("mark", {})
    return tool_result(
        stored["json"].encode(),
        tool=str(mark.get("tool", "")),
        origin=Origin(mark.get("origin", Origin.LIVE)),
        rules=ResultRules.of(mark.get("rules", {})),
        call=str(stored.get("call", "")),
    )


def _without_beside(mark: dict[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in mark.items() if name != "beside"}


def _rebuilt(output: bytes, tool: str, origin: Origin, rules: ResultRules) -> ToolResult:
    return tool_result(output, tool=tool, origin=origin, rules=rules)
