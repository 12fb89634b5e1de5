"""Phone numbers and domains, from data that comes with their packages: nothing is asked of the network."""

from functools import cache
from typing import Any

import phonenumbers
import tldextract

from examples.execution_api.item_error import ItemError

MOST_CHARS = 2_048


def phone_number(input: dict[str, Any]) -> dict[str, Any]:
    """A phone number by its parts; `region`, two letters, is where a number without + is read."""
    text, region = _text(input, "number"), input.get("region")
    if region is not None and (
        not isinstance(region, str) or region.upper() not in phonenumbers.SUPPORTED_REGIONS
    ):
        raise ItemError("bad_region", f"region must be a country of two letters, not {region!r:.40}")
    try:
        number = phonenumbers.parse(text, region.upper() if region else None)
    except phonenumbers.NumberParseException as error:
        return {"found": False, "number": text, "reason": str(error)}
    kinds = phonenumbers.PhoneNumberType
    kind = phonenumbers.number_type(number)
    return {
        "found": phonenumbers.is_valid_number(number),
        "number": text,
        "e164": phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164),
        "international": phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.INTERNATIONAL),
        "country_code": number.country_code,
        "region": phonenumbers.region_code_for_number(number),
        "kind": next((name.lower() for name, value in vars(kinds).items() if value == kind), "unknown"),
    }


def domain_of(input: dict[str, Any]) -> dict[str, Any]:
    """The registered domain of a URL or host name, by the list of public suffixes."""
    text = _text(input, "url")
    parts = _suffixes()(text)
    return {
        "found": bool(parts.domain and parts.suffix),
        "url": text,
        "domain": parts.top_domain_under_public_suffix or None,
        "subdomain": parts.subdomain or None,
        "suffix": parts.suffix or None,
    }


@cache
def _suffixes() -> tldextract.TLDExtract:
    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)


def _text(input: dict[str, Any], name: str) -> str:
    value = input.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > MOST_CHARS:
        raise ItemError(
            f"bad_{name}", f"{name} must be text of 1 to {MOST_CHARS} characters, not {value!r:.40}"
        )
    return value.strip()
