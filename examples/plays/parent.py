"""A play that calls others: a card of each company by a child play, inside the parent's rows; then a report about
their countries by a run of its own, which goes on when the parent has ended.
"""

import asyncio

from runtime import play


@play("company_card")
async def company_card(ctx, input):
    """Domain and country of one company."""
    site, country = await asyncio.gather(
        ctx.tools.execute(id="site", tool="domain_of", input={"url": input["website"]}),
        ctx.tools.execute(id="country", tool="country_facts", input={"code": input["country"]}),
    )
    title = await ctx.step("title", lambda: f"{input['company']} ({country['name']})")
    return {"title": title, "domain": site["domain"], "country": country["name"]}


@play("country_report")
async def country_report(ctx, input):
    """The official name of each country that is named; what the parent has bought is not bought again."""

    async def official_name(row, ctx):
        facts = await ctx.tools.execute(id="country", tool="country_facts", input={"code": row["code"]})
        return facts["official_name"]

    rows = [{"code": code} for code in input["countries"]]
    return await ctx.dataset("countries", rows).with_column("official_name", official_name).run(key="code")


@play("parent")
async def parent(ctx, input):
    """Companies from a CSV (columns company, website, country)."""

    async def card(row, ctx):
        asked = {name: row[name] for name in ("company", "website", "country")}
        return await ctx.run_play("card", company_card, asked)

    companies = await ctx.csv(input["file"])
    made = await ctx.dataset("companies", companies).with_column("card", card).run(key="company")
    countries = sorted({row["country"] async for row in made})
    report = await ctx.enqueue_play("report", country_report, {"countries": countries})
    return {"companies": made, "report": report.run_id}
