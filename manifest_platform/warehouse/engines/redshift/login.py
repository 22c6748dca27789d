"""The connection to Redshift: by password, by a secret of AWS Secrets Manager, or by temporary credentials of IAM."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from manifest_platform import aws, masking
from manifest_platform.warehouse.errors import Unavailable

if TYPE_CHECKING:
    from redshift_connector import Connection


@dataclass(frozen=True)
class Login:
    """The address of a database, and what a connection to it needs."""

    host: str
    port: int
    database: str
    user: str | None
    password_variable: str
    secret: str | None = None
    iam: bool = False
    cluster: str | None = None
    workgroup: str | None = None
    region: str | None = None
    ssl_mode: str = "verify-full"
    seconds: float = 120

    def connect(self) -> Connection:
        """Returns a new connection, in which each statement commits by itself. Raises what driver and boto3 raise."""
        import redshift_connector

        given: dict[str, Any] = {
            "host": self.host,
            "port": self.port,
            "database": self.database,
            "timeout": max(1, round(self.seconds)),
            "application_name": "manifest-platform",
            "max_prepared_statements": 0,  # a statement that is kept costs a round trip at every DDL, and runs seldom twice
            "ssl": self.ssl_mode != "disable",
            **({} if self.ssl_mode == "disable" else {"sslmode": self.ssl_mode}),
            **self._credentials(),
        }
        connection = redshift_connector.connect(**given)
        connection.autocommit = True
        connection._usock.settimeout(None)  # the limit is for the connection; a statement may run longer
        return connection

    def _credentials(self) -> dict[str, Any]:
        if self.iam:
            given = {
                "iam": True,
                "db_user": self.user,
                "cluster_identifier": self.cluster,
                "serverless_work_group": self.workgroup,
                "is_serverless": True if self.workgroup else None,
                "region": self.region,
            }
            return {name: value for name, value in given.items() if value is not None}
        if self.secret:
            return self._from_secrets_manager(self.secret)
        return {"user": self.user, "password": masking.secret(self.password_variable) or ""}

    def _from_secrets_manager(self, secret: str) -> dict[str, Any]:
        text = aws.client("secretsmanager", region=self.region).get_secret_value(SecretId=secret)
        try:
            found = json.loads(text["SecretString"])
            user, password = self.user or found["username"], found["password"]
        except (KeyError, ValueError) as error:
            raise Unavailable(f"secret {secret} has no username and password in JSON: give it both") from error
        masking.keep(password)
        return {"user": user, "password": password}
