"""The tools behind the reference execution API: real answers over offline data, and a pure echo."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pycountry
from timezonefinder import TimezoneFinder

from examples.execution_api import contacts, customer_db, query_pages
from examples.execution_api.item_error import ItemError

MAX_BATCH_SIZE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool: `answer` is a pure function of the item's input."""

    name: str
    provider: str
    answer: Callable[[dict[str, Any]], Any]
    credits_per_item: float
    queue_hints: tuple[dict[str, Any], ...] = ()
    retry_safe_transient_http: bool = True
    normalise: dict[str, list[str]] = field(default_factory=dict)
    is_batched: bool = True
    requires_fence: bool = False
    always_fresh: bool = False
    is_paged: bool = False  # answers with a page of its rows where the request's metadata asks for one
    declares: dict[str, Any] = field(default_factory=dict)  # what else its metadata says

    @property
    def batch_operation(self) -> str:
        return f"{self.name}_batch"

    def metadata(self, changes: dict[str, Any]) -> dict[str, Any]:
        """What the API declares about the tool; `changes` come from the control endpoint."""
        declared = {
            "tool": self.name,
            "provider": self.provider,
            "operation": self.name,
            "actionCacheVersion": "1",
            "actionCacheReadVersions": [],
            "responseRevision": None,
            "timeoutMs": None,
            "creditsPerItem": self.credits_per_item,
            "queueHints": list(self.queue_hints),
            "retry": {
                "retrySafeTransientHttp": self.retry_safe_transient_http,
                "requiresExecutionFence": self.requires_fence,
            },
            "alwaysFresh": self.always_fresh,
            "batch": self._batch_hint() if self.is_batched else None,
            "normalise": self.normalise,
        }
        return declared | self.declares | changes

    def _batch_hint(self) -> dict[str, Any]:
        return {
            "operation": self.batch_operation,
            "maxBatchSize": MAX_BATCH_SIZE,
            "itemsField": "items",
            "inputKey": "key",
            "replyItemsField": "items",
            "strategy": "keyed",
            "revision": "1",
        }


def timezone_at(input: dict[str, Any]) -> dict[str, Any]:
    """Time zone at a coordinate; over the open sea this is a nautical zone."""
    latitude = _coordinate(input, "latitude", 90.0)
    longitude = _coordinate(input, "longitude", 180.0)
    zone = _finder().timezone_at(lat=latitude, lng=longitude)
    return {"found": zone is not None, "timezone": zone}


def country_facts(input: dict[str, Any]) -> dict[str, Any]:
    """Names and codes of a country by its ISO 3166-1 alpha-2 code."""
    code = input.get("code")
    if not isinstance(code, str) or len(code.strip()) != 2:
        raise ItemError("bad_country_code", f"code must be two letters, not {code!r:.40}")
    country = pycountry.countries.get(alpha_2=code.strip().upper())
    if country is None:
        return {"found": False, "code": code}
    return {
        "found": True,
        "code": country.alpha_2,
        "alpha_3": country.alpha_3,
        "numeric": country.numeric,
        "name": country.name,
        "official_name": getattr(country, "official_name", country.name),
        "flag": getattr(country, "flag", None),
    }


def echo(input: dict[str, Any]) -> dict[str, Any]:
    """`value` is "v:" + item."""
    item = input.get("item")
    if not isinstance(item, str):
        raise ItemError("bad_item", f"item must be text, not {type(item).__name__}")
    return {"value": "v:" + item}


TOOLS = (
    Tool(
        name="timezone_at",
        provider="timezones",
        answer=timezone_at,
        credits_per_item=1,
        queue_hints=(
            {"provider": "timezones", "limit": 50, "perMs": 1_000, "counts": "requests", "burst": 5},
        ),
    ),
    Tool(
        name="country_facts",
        provider="countries",
        answer=country_facts,
        credits_per_item=2,
        queue_hints=(
            {"provider": "countries", "limit": 500, "perMs": 1_000, "counts": "items", "burst": 100},
        ),
        normalise={"code": ["trim"]},
    ),
    Tool(
        name="phone_number",
        provider="phones",
        answer=contacts.phone_number,
        credits_per_item=1,
        normalise={"number": ["trim"]},
    ),
    Tool(
        name="domain_of",
        provider="domains",
        answer=contacts.domain_of,
        credits_per_item=1,
        normalise={"url": ["trim"]},
    ),
    Tool(
        name="query_customer_db",
        provider="customer_db",
        answer=customer_db.query,
        credits_per_item=0,
        is_batched=False,
        always_fresh=True,
    ),
    Tool(
        name="query_numbers",
        provider="customer_db",
        answer=query_pages.numbers,
        credits_per_item=0,
        is_batched=False,
        is_paged=True,
    ),
    Tool(name="echo", provider="fakeprov", answer=echo, credits_per_item=1),
    Tool(name="echo_single", provider="fakeprov", answer=echo, credits_per_item=1, is_batched=False),
    Tool(
        name="echo_fenced",
        provider="fakeprov",
        answer=echo,
        credits_per_item=1,
        retry_safe_transient_http=False,
        is_batched=False,
        requires_fence=True,
    ),
)


@cache
def _finder() -> TimezoneFinder:
    return TimezoneFinder()


def _coordinate(input: dict[str, Any], name: str, bound: float) -> float:
    value = input.get(name)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    try:
        number = float(value) if is_number or isinstance(value, str) else math.nan  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        number = math.nan
    if not -bound <= number <= bound:
        raise ItemError(
            "bad_coordinate", f"{name} must be a number from -{bound:g} to {bound:g}, not {value!r:.40}"
        )
    return number
