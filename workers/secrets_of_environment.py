"""Secrets that an operator gives to all workers: PLAYLANE_SECRET_<NAME>."""

import os

from runtime.engine.secret_values import environment_name


class EnvironmentSecrets:
    """The process's environment as a SecretSource; the same for every organisation."""

    async def secret(self, org_id: str, name: str, play: str) -> str | None:
        return os.environ.get(environment_name(name))
