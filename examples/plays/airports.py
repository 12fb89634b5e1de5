"""Airports: the time zone of each place by its coordinates, facts of its country, and whether our time zone is
the one that the data set gives. A true check: two independent sources of the same fact."""

from runtime import play


async def zone(row, ctx):
    """The time zone at the airport's coordinates, from the batch tool."""
    found = await ctx.tools.execute(
        id="zone",
        tool="timezone_at",
        input={"latitude": float(row["lat"]), "longitude": float(row["lon"])},
    )
    return found["timezone"]


async def country(row, ctx):
    """Name and codes of the airport's country."""
    return await ctx.tools.execute(id="country", tool="country_facts", input={"code": row["country"]})


def agrees(row, ctx):
    """Whether our zone is the data set's own."""
    return row["zone"] == row["tz"]


@play("airports")
async def airports(ctx, input):
    """Enrich a CSV of airports (columns icao, lat, lon, country, tz)."""
    rows = await ctx.csv(input["file"])
    enriched = await (
        ctx.dataset("airports", rows)
        .with_column("zone", zone)
        .with_column("country_facts", country)
        .with_column("agrees", agrees)
        .run(key="icao", on_row_error="isolate")
    )
    ctx.log("airports enriched", rows=enriched.rows)
    return {"airports": enriched}
