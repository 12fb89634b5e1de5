"""Leads: web domain, phone number and country of each person's company, then a mail address from the first of three
providers that has one, then a look at the domain with somebody else's API, whose key is a secret.

The mail providers of the reference API are made up; the other tools answer from real data.
"""

from datetime import UTC, datetime

from runtime import play, waterfall

MONTH_S = 30 * 24 * 3600


async def domain(row, ctx):
    """The registered domain of the company's website."""
    found = await ctx.tools.execute(id="domain", tool="domain_of", input={"url": row["website"]})
    return found["domain"]


async def phone(row, ctx):
    """The phone number as it is dialled from anywhere, and where it is."""
    asked = {"number": row["phone"], "region": row["country"]}
    found = await ctx.tools.execute(id="phone", tool="phone_number", input=asked)
    return {"e164": found["e164"], "region": found["region"]} if found["found"] else None


async def country(row, ctx):
    """The country's name."""
    found = await ctx.tools.execute(id="country", tool="country_facts", input={"code": row["country"]})
    return found["name"]


def mail_from(tool):
    """A leg of the waterfall: the address that this provider knows, or None."""

    async def ask(row, ctx):
        asked = {"name": row["name"], "domain": row["domain"]}
        found = await ctx.tools.execute(id="mail", tool=tool, input=asked)
        return found["email"]

    return ask


email = waterfall(
    {
        "directory": mail_from("directory_email"),
        "archive": mail_from("archive_email"),
        "pattern": mail_from("pattern_email"),
    }
)


def agrees(row, ctx):
    """Whether the number is one of the country that the lead names."""
    return row["number"] is not None and row["number"]["region"] == row["country"]


@play("leads")
async def leads(ctx, input):
    """Enrich a CSV of leads; `input["checker"]` is the URL that is asked about each domain."""
    rows = await ctx.csv(
        input["file"],
        rename={"Full Name": "name", "Website": "website", "Phone": "phone", "Country": "country"},
        columns=["name", "website", "phone", "country"],
        required=["website"],
    )
    checked_on = await ctx.step("checked on", lambda: datetime.now(UTC).date().isoformat())

    async def check(row, ctx):
        answer = await ctx.fetch(
            "check",
            input["checker"],
            params={"domain": row["domain"]},
            auth=ctx.secrets.bearer("CHECKER_KEY"),
            stale_after_seconds=MONTH_S,
        )
        said = answer.raise_for_status().json()
        return {"domain": said["query"]["domain"], "on": checked_on}

    enriched = await (
        ctx.dataset("leads", rows)
        .with_column("domain", domain)
        .with_column("number", phone)
        .with_column("country_name", country, stale_after_seconds=MONTH_S)
        .with_column("email", email, run_if=lambda row: row["domain"])
        .with_column("check", check, run_if=lambda row: row["domain"])
        .with_column("agrees", agrees)
        .run(key=["name", "website"], on_row_error="isolate")
    )
    ctx.log("leads enriched", rows=enriched.rows)
    return {"leads": enriched}
