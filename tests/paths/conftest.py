"""Agents that speak to the memory API."""

from typing import Any

import pytest

from tests.database_plugin import Servers


@pytest.fixture
def organisation(tenant: Any) -> Any:
    """The test's tenant, with attributes of every kind in force."""
    from tests.paths.ledger import publish

    publish(tenant)
    return tenant


@pytest.fixture
def ledger(organisation: Any) -> Any:
    """Memory as an agent with every scope and clearance reaches it."""
    from tests.paths.ledger import Ledger

    return Ledger(organisation.agent("writer"))


@pytest.fixture
def foreign(database: Servers, other_tenant: Any) -> Any:
    """The same of another tenant."""
    from tests.paths.ledger import Ledger, publish

    publish(other_tenant)
    return Ledger(other_tenant.agent("stranger"))
