"""The tables that the demos enrich: real airports, and leads, requests and companies made up around real places."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import airportsdata
import phonenumbers

AIRPORT_COLUMNS = ("icao", "name", "city", "country", "lat", "lon", "tz")
LEAD_COLUMNS = ("Full Name", "Company", "Website", "Phone", "Country", "Notes")
REQUEST_COLUMNS = ("id", "what", "answer_within_s")
COMPANY_COLUMNS = ("company", "website", "country")

_FIRST = ("Ada", "Amir", "Bela", "Chen", "Dina", "Emil", "Fatima", "Goran", "Hana", "Ivo", "Jun", "Kofi")
_LAST = ("Abara", "Berg", "Costa", "Dubois", "Eze", "Fischer", "Garcia", "Haddad", "Ito", "Jansen", "Kim")
_TRADES = ("Instruments", "Foods", "Logistics", "Optics", "Textiles", "Software", "Ceramics")
_SECOND_LEVEL = {"AU": "com.au", "BR": "com.br", "GB": "co.uk", "JP": "co.jp", "NZ": "co.nz", "ZA": "co.za"}
_THINGS = ("desk lamp", "microscope", "train ticket", "licence", "bicycle")
LONG_S, SHORT_S = 3_600, 3
_STRIDE = 7_919  # of the list, which goes by country


def write_airports(path: Path, limit: int | None = None) -> int:
    """Write the first `limit` airports as CSV; returns how many there are."""
    airports = list(airportsdata.load("ICAO").values())[:limit]
    return _write(path, AIRPORT_COLUMNS, ([dict(one)[name] for name in AIRPORT_COLUMNS] for one in airports))


def write_leads(path: Path, rows: int | None = None) -> int:
    """Write leads of persons, each at another company; every twelfth has one name only."""
    return _write(path, LEAD_COLUMNS, islice(_leads(), rows))


def write_requests(path: Path, rows: int | None = None) -> int:
    """Write requests; every third expires soon."""
    numbers = range(1, (rows or 0) + 1)
    lines = ([f"r{n:05}", _THINGS[n % len(_THINGS)], SHORT_S if n % 3 == 0 else LONG_S] for n in numbers)
    return _write(path, REQUEST_COLUMNS, lines)


def write_companies(path: Path, rows: int | None = None) -> int:
    """Write companies, each of another name."""
    return _write(path, COMPANY_COLUMNS, islice(_companies(), rows))


def _companies() -> Iterator[tuple[str, str, str]]:
    """(company, website, country) of cities all over the world, until there is none left."""
    seen: set[str] = set()
    airports = list(airportsdata.load("ICAO").values())
    spread = (airports[n * _STRIDE % len(airports)] for n in range(len(airports)))
    for airport, trade in zip(spread, cycle(_TRADES), strict=False):
        slug = re.sub(r"[^a-z]", "", airport["city"].lower())
        country, name = airport["country"], f"{airport['city']} {trade}"
        if len(slug) < 3 or name in seen or phonenumbers.example_number(country) is None:
            continue
        seen.add(name)
        suffix = _SECOND_LEVEL.get(country, country.lower())
        yield name, f"https://www.{slug}-{trade.lower()}.{suffix}/contact", country


def _leads() -> Iterator[list[str]]:
    for n, (company, website, country) in enumerate(_companies()):
        first, last = _FIRST[n % len(_FIRST)], _LAST[n % len(_LAST)]
        number = phonenumbers.example_number(country)
        assert number is not None
        phone = phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.NATIONAL)
        person = first if n % 12 == 11 else f"{first} {last}"
        yield [person, company, website, phone, country, f"met at a fair, lead {n}"]


def _write(path: Path, columns: Sequence[str], lines: Iterable[Sequence[Any]]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for line in lines:
            writer.writerow(line)
            count += 1
    return count
