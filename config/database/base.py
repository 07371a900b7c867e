"""`ENGINE = "config.database"`: psycopg keeps 100 prepared statements a connection, and the doors have more in use."""

from typing import Any

from django.db.backends.postgresql import base

PREPARED = 400


class DatabaseWrapper(base.DatabaseWrapper):
    """PostgreSQL as Django speaks to it; only the number of statements that stay prepared differs."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a new connection that keeps up to 400 statements prepared."""
        connection = super().get_new_connection(conn_params)
        connection.prepared_max = PREPARED
        return connection
