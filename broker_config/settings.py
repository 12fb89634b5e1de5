"""One frozen settings tree, read once per process from `PLAYLANE_*` variables.

What they don't say is read from the file of a running `make up`, then from `.env`.
"""

import os
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

REDIS_SCHEMES = ("redis", "rediss")
AMQP_SCHEMES = ("amqp", "amqps")


def _database(redis_url: str, offset: int) -> str:
    parts = urlsplit(redis_url)
    first = int(parts.path.strip("/") or 0)
    return urlunsplit(parts._replace(path=f"/{first + offset}"))


def _first_database(given: dict[str, Any]) -> str:
    redis_url = given.get("redis_url")  # not there if it was refused: that is told already
    return "redis://refused" if redis_url is None else _database(redis_url.get_secret_value(), 0)


class Settings(BaseSettings):
    """What an operator sets. Limits override values of the policy module, e.g. PLAYLANE_LIMITS='{"slice_rows": 50}'."""

    model_config = SettingsConfigDict(
        env_prefix="PLAYLANE_", frozen=True, env_file=(".playlane/up/stack.env", ".env"), extra="ignore"
    )

    database_url: SecretStr = Field(description="postgresql://user:password@host:port/name")
    redis_url: SecretStr = Field(
        description="redis://:password@host:port/0; broker, results and state use db n, n+1, n+2"
    )
    broker_url: str = Field(
        default_factory=_first_database,
        repr=False,
        description="the broker, where it isn't Redis database n: amqp://user:password@host:5672/vhost",
    )
    execution_api_url: str = Field(description="origin of the execution API, e.g. https://api.example.com")
    execution_api_token: SecretStr = Field(
        default=SecretStr("local"), description="bearer token of every org"
    )
    control_api_url: str = Field(
        default="", description="origin of tool look-ups, where it isn't that of executions"
    )
    execution_api_test_fault: str = Field(
        default="", description="fault asked of the reference execution API with every call, for tests only"
    )
    play_modules: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="comma separated modules that define plays"
    )
    workspace: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="folders that plays may read files of, separated by : ; default: where it is started",
    )
    org_id: str = Field(default="default", description="org of runs that name none")
    lanes: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="comma separated lanes that a lane worker takes; empty = all declared"
    )
    egress_allow: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(),
        description="comma separated host or host:port that fetches may reach although they are not public, "
        "without TLS too",
    )
    play_version_policy: Literal["continue", "refuse"] = Field(
        default="continue",
        description="what a run does that began with another version of its play: continue, or wait (refuse)",
    )
    limits: dict[str, Any] = Field(default_factory=dict, description="JSON object of limits to override")
    faults: str = Field(default="", description="fault points, for tests only")
    probe_port: int = Field(
        default=0, ge=0, le=65535, description="port of /readyz, /healthz and /metrics of a worker; 0 = none"
    )
    probe_address: str = Field(default="127.0.0.1", description="address of that port")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO")
    log_json: bool = Field(default=False)

    @field_validator("play_modules", "lanes", "egress_allow", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("workspace", mode="before")
    @classmethod
    def _folders(cls, value: object) -> object:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(os.pathsep) if part.strip())
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis_scheme(cls, value: SecretStr) -> SecretStr:
        if urlsplit(value.get_secret_value()).scheme not in REDIS_SCHEMES:
            raise ValueError("must begin with redis:// or rediss://")
        return value

    @field_validator("broker_url")
    @classmethod
    def _broker_scheme(cls, value: str) -> str:
        if urlsplit(value).scheme not in (*REDIS_SCHEMES, *AMQP_SCHEMES):
            raise ValueError("must begin with amqp://, amqps://, redis:// or rediss://")
        return value

    @field_validator("execution_api_url")
    @classmethod
    def _http_scheme(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ValueError("must be an origin such as https://api.example.com")
        return value

    @property
    def broker_is_redis(self) -> bool:
        return urlsplit(self.broker_url).scheme in REDIS_SCHEMES

    @property
    def result_url(self) -> str:
        return self._redis_db(1)

    @property
    def state_url(self) -> str:
        return self._redis_db(2)

    def _redis_db(self, offset: int) -> str:
        return _database(self.redis_url.get_secret_value(), offset)
