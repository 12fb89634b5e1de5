"""`playlane migrate`."""

from runtime.server_address import postgres_address
from workers.cli.connection import sender_settings
from workers.cli.options import AsJson
from workers.cli.terminal import say, say_json


def migrate(as_json: AsJson = False) -> None:
    """Bring the database to the newest schema; safe to repeat."""
    from runtime.postgres_store.migrate import upgrade

    database_url = sender_settings().database_url.get_secret_value()
    address = postgres_address(database_url)
    upgrade(database_url)
    if as_json:
        say_json({"database": address, "schema": "newest"})
    else:
        say(f"the database at {address} has the newest schema")
