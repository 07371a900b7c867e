"""What every test may ask for: the database, a tenant of its own, clients, and connections beside Django's."""

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.pq import PipelineStatus

from tests.database_plugin import Servers


@pytest.fixture(scope="session")
def django_db_setup() -> None:
    """pytest-django makes no database: ours is made by the roles that make it in production."""


@pytest.fixture
def tenant(database: Servers) -> Any:
    """A fresh tenant with the starter policy (`tests.organisation.Organisation`)."""
    from tests.organisation import new_organisation

    return new_organisation()


@pytest.fixture
def other_tenant(database: Servers) -> Any:
    """A second one, whose rows nobody of the first may see."""
    from tests.organisation import new_organisation

    return new_organisation()


@pytest.fixture
def make_agent(tenant: Any) -> Callable[..., Any]:
    """Register further agents in the test's tenant."""
    return tenant.agent  # type: ignore[no-any-return]


@pytest.fixture
def agent(tenant: Any) -> Any:
    """An agent of the test's tenant with every scope, cleared for everything."""
    return tenant.agent("agent")


@pytest.fixture
def api(agent: Any) -> Any:
    """A client that sends JSON with that agent's key."""
    return agent.api


@pytest.fixture
def owner(database: Servers) -> Iterator[psycopg.Connection[Any]]:
    """A session of the tables' owner, committing every statement."""
    with psycopg.connect(database.owner, autocommit=True) as session:
        yield session


@pytest.fixture
def superuser(database: Servers) -> Iterator[psycopg.Connection[Any]]:
    """A session that row-level security does not bind, committing every statement."""
    if not database.superuser:
        pytest.skip("needs a superuser's session: unset DATABASE_URL to run on the embedded PostgreSQL")
    with psycopg.connect(database.superuser, autocommit=True) as session:
        yield session


@pytest.fixture
def login(database: Servers) -> Iterator[psycopg.Connection[Any]]:
    """A session of the application's login role, as Django opens them."""
    with psycopg.connect(database.app, autocommit=True) as session:
        yield session


@pytest.fixture(autouse=True)
def _nothing_stays_taken(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test on the database: neither role nor tenant outlives its transaction."""
    yield
    if "database" not in request.fixturenames:
        return
    from django.db import connection

    if connection.connection is None or connection.connection.closed:
        return
    assert not connection.in_atomic_block
    assert connection.connection.pgconn.pipeline_status == PipelineStatus.OFF
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user::text, coalesce(current_setting('muniment.tenant', true), '')")
        assert cursor.fetchone() == ("muniment_app", "")
