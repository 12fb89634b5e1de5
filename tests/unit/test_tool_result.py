"""What an author holds after a tool call."""

import copy
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from runtime.context.tool_result import ToolResult, journal_json, journal_result, tool_result
from runtime.model import json_value
from runtime.model.result_rules import ResultRules
from runtime.model.tool_output import Origin, ResponseEnvelope, second_line

RULES = ResultRules(
    targets=(
        ("email", ("toolResponse.raw.people[*].email", "data.fallback")),
        ("company", ("company.name",)),
        ("phone", ("people[0].phone",)),
    ),
    lists=("toolResponse.raw.people", "data.tags", "data.absent"),
    identities=(("email", ("email",)), ("name", ("full_name", "name"))),
)
DATA = {
    "people": [{"name": "a", "email": " "}, {"name": "b", "email": "b@x.example", "age": 3}],
    "company": {"name": "X"},
    "tags": ["one", "two"],
}


def result(data: Any = DATA, rules: ResultRules = RULES, **beside: Any) -> ToolResult:
    more = second_line(ResponseEnvelope(**beside)) if beside else b""
    return tool_result(json_value.dumps(data) + more, tool="find", rules=rules)


def test_an_object_reads_like_a_dict() -> None:
    found: Any = result()
    assert isinstance(found, Mapping)
    assert found["company"]["name"] == "X"
    assert (found.get("none", 7), "tags" in found, len(found), {**found} == DATA) == (7, True, 3, True)
    with pytest.raises(KeyError, match="the result of find has no 'compny'; it has people, company, tags"):
        found["compny"]
    assert not hasattr(found, "__setitem__")


def test_a_list_reads_like_a_list() -> None:
    found: Any = result([1, {"x": 2}, 3])
    assert isinstance(found, Sequence)
    assert (found[1], list(found), len(found), found[1:], 3 in found) == (
        {"x": 2},
        [1, {"x": 2}, 3],
        3,
        [{"x": 2}, 3],
        True,
    )


@pytest.mark.parametrize("data", ["text", 2**70, 1.5, True, None, ""])
def test_a_scalar_is_its_data(data: Any) -> None:
    found = result(data)
    assert (found.data, str(found), bool(found), found == data) == (data, str(data), bool(data), True)


def test_raw_holds_the_whole_response() -> None:
    found = result({"a": 1}, rest={"meta": {"page": 2}, "warnings": []}, meta={"provider": "p"})
    assert found.data == {"a": 1}
    assert found.raw == {"meta": {"page": 2}, "warnings": [], "data": {"a": 1}}
    assert found.meta == {"page": 2, "provider": "p"}
    assert result({"a": 1}, is_raw=True).raw == {"a": 1}


def test_status_says_whether_there_is_anything() -> None:
    assert result().status == "completed"
    assert result(None).status == "no_result"
    assert result({}, status="queued", job_id="j-1").status == "queued"
    assert result({}, status="queued", job_id="j-1").job_id == "j-1"


def test_targets_try_their_paths_in_order() -> None:
    found = result()
    assert found.extracted.email == "b@x.example"
    assert dict(found.extracted) == {"email": "b@x.example", "company": "X", "phone": None}
    with pytest.raises(AttributeError, match="declares no target 'mail'; it has: email, company, phone"):
        found.extracted.mail  # noqa: B018
    with pytest.raises(KeyError, match="declares no target"):
        found.extracted["mail"]


def test_lists_by_name_path_or_as_the_first_that_has_rows() -> None:
    found = result()
    assert found.list("tags") == [{"value": "one"}, {"value": "two"}]
    assert found.list("absent") == []
    assert found.list() == found.list("people") == found.list("toolResponse.raw.people") == DATA["people"]
    assert list(found.lists) == ["people", "tags", "absent"]
    assert found.identity(DATA["people"][1]) == {"email": "b@x.example", "name": "b"}
    with pytest.raises(KeyError, match="declares no list 'persons'; it has: people, tags, absent"):
        found.list("persons")


def test_a_list_at_a_path_of_ones_own() -> None:
    found = result()
    assert found.extract_list("people", ["name", "age"]) == [{"name": "a"}, {"name": "b", "age": 3}]
    assert found.extract_list("tags") == []
    assert found.extract_list("company.name") == found.extract_list("no.such") == []
    assert found.values_at("people[*].name") == ["a", "b"]


def test_results_are_equal_by_what_came_back_not_by_how() -> None:
    live = result(meta={"p": 1})
    stored = tool_result(live.output, tool="find", origin=Origin.CACHE, rules=RULES)
    assert live == stored
    assert live.output == stored.output
    assert repr(live) == repr(stored)
    assert live != result(meta={"p": 2})
    assert live != tool_result(live.output, tool="other")
    assert live == DATA
    assert live != {"a": 1}
    assert result([1, 0.0, 10**22]) == result([1.0, -0.0, 1e22])
    assert result([1]) != result([True])
    assert result([1]) != result([1, 2])
    assert result({"a": 1}) != [1]


def test_what_an_author_does_to_the_data_is_not_stored() -> None:
    found = result()
    found.data["company"]["name"] = "Y"
    found.data["people"].clear()
    assert found.to_json() == DATA
    found.to_json().clear()
    assert found.to_json() == DATA


def test_copies_and_pickles_are_the_same_result() -> None:
    found = result(meta={"p": 1})
    for again in (copy.copy(found), copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        assert (again, again.output, again.origin, again.extracted.email, type(again)) == (
            found,
            found.output,
            found.origin,
            "b@x.example",
            type(found),
        )


def test_a_journal_gives_back_every_byte_and_the_first_origin() -> None:
    found = tool_result(
        b'{"b":1e16,"a":-0.0,"n":1180591620717411303424}\n{"meta":{"z":1}}', tool="t", origin=Origin.CACHE
    )
    again = journal_result(journal_json(found))
    assert (again.output, again.origin, again.tool, again.meta) == (
        found.output,
        Origin.CACHE,
        "t",
        {"z": 1},
    )
