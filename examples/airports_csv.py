"""`python -m examples.airports_csv --rows N FILE`: real airports of the world as a CSV file, for the play."""

import argparse
import csv
from pathlib import Path

import airportsdata

COLUMNS: tuple[str, ...] = ("icao", "name", "city", "country", "lat", "lon", "tz")


def write_airports(path: Path, rows: int) -> int:
    """Write `rows` airports, the same ones each time; returns how many rows that are."""
    known = airportsdata.load("ICAO")
    if not 0 < rows <= len(known):
        raise ValueError(f"rows must be from 1 to {len(known)} (that many airports are known), not {rows}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        # Spread over the world instead of one end of the alphabet.
        step = len(known) / rows
        codes = sorted(known)
        writer.writerows(known[codes[int(n * step)]] for n in range(rows))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.airports_csv", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    print(f"{write_airports(arguments.file, arguments.rows)} airports in {arguments.file}")


if __name__ == "__main__":
    main()
