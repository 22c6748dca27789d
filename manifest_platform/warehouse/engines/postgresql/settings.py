"""The settings of a PostgreSQL warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from pydantic import AfterValidator, Field

from manifest_platform import masking
from manifest_platform.deployments import identifier
from manifest_platform.settings import SecretReference
from manifest_platform.warehouse.engines.engine import EngineSettings
from manifest_platform.warehouse.engines.postgresql.engine import Address, PostgreSQL
from manifest_platform.warehouse.upkeep_settings import UpkeepAction

_EXAMPLE = "postgresql://user@host:5432/database"


def _checked(url: str) -> str:
    """Refuses what is no URL of a PostgreSQL database, and one with a password, without repeating it in the message."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres") or not parts.path.strip("/"):
        raise ValueError(f"allowed: {_EXAMPLE}, with connection parameters in the query")
    named = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    if ":" in parts.netloc.rpartition("@")[0] or named & {"password", "sslpassword"}:
        raise ValueError("it holds a password; name the environment variable that has it in password_variable instead")
    return url


class PostgreSQLSettings(EngineSettings):
    """The settings of a PostgreSQL database as the warehouse. Several processes may load it and read it at the same time."""

    upkeep_actions: ClassVar[tuple[UpkeepAction, ...]] = ("analyze", "vacuum")
    imaginary: ClassVar[Mapping[str, Any]] = {"url": _EXAMPLE}
    kind: Literal["postgresql"] = Field("postgresql", description="a PostgreSQL database")
    url: Annotated[str, AfterValidator(_checked)] = Field(
        description=f"the database, such as `{_EXAMPLE}?sslrootcert=/path/to/ca.pem`, with connection parameters in the query. "
        "Without `sslmode`, the server's certificate and name are verified. No password: see `password_variable`"
    )
    password_variable: SecretReference = Field(
        "WAREHOUSE_PASSWORD",
        description="the environment variable with the password. Without it, PostgreSQL's own means apply: a password file, "
        "a client certificate",
    )
    statement_timeout_seconds: float | None = Field(
        None, gt=0, description="how long a statement may run. A load whose statement runs longer is tried again later"
    )

    null_characters: Literal["refuse", "remove"] = Field(
        "refuse",
        description="what becomes of the character NUL in a text, which PostgreSQL cannot store. An item with one fails",
    )

    @property
    def place(self) -> str:
        """The server and its database."""
        parts = urlsplit(self.url)
        host = dict(parse_qsl(parts.query)).get("host", "")
        return f"postgresql://{parts.netloc.rpartition('@')[2] or host}{parts.path}"

    def of_deployment(self, deployment: str) -> PostgreSQLSettings:
        """Returns the settings of another database on the same server, such as `database_pr_7`, which must exist."""
        parts = urlsplit(self.url)
        name = f"{unquote(parts.path.strip('/'))}_{identifier(deployment)}"
        return self.model_copy(update={"url": urlunsplit(parts._replace(path=f"/{quote(name, safe='')}"))})

    def open(self, *, read_only: bool = False, patience: float | None = None) -> PostgreSQL:
        """Returns the engine for the database. The password is read when it connects."""
        address = Address(
            self.url,
            self.place,
            lambda: masking.secret(self.password_variable),
            self.statement_timeout_seconds,
            removes_nul=self.null_characters == "remove",
        )
        return PostgreSQL(address, PostgreSQL.patience if patience is None else patience, read_only)
