from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from tenants.actors import Scope
from tenants.jsontext import dumps

ID = UUID("01a22c81-0e49-77f3-827f-8999e79c1564")
SEEN = datetime(2026, 6, 1, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (SEEN, '"2026-06-01T09:00:00Z"'),
        (SEEN + timedelta(microseconds=1), '"2026-06-01T09:00:00.000001Z"'),
        (date(2026, 6, 1), '"2026-06-01"'),
        (ID, f'"{ID}"'),
        (Scope.READ, '"read"'),
        (frozenset({"b", "a"}), '["a","b"]'),
        (Decimal("1.50"), "1.5"),
        (Decimal("2.0"), "2"),
        (b"\x01\xff", '"01ff"'),
        ("ł\u202e\n", '"ł\u202e\\n"'),
    ],
)
@pytest.mark.parametrize("beside", [None, 10**30])
def test_a_value_is_written_the_same_beside_a_number_of_any_size(value: Any, text: str, beside: Any) -> None:
    assert dumps({"v": value, "n": beside}).decode() == f'{{"v":{text},"n":{"null" if beside is None else beside}}}'


def test_an_instant_of_another_zone_stays_that_instant() -> None:
    local = SEEN.astimezone(timezone(timedelta(hours=2)))
    assert dumps(local) == b'"2026-06-01T11:00:00+02:00"'


def test_what_cannot_be_written_is_named_by_type_alone() -> None:
    class Odd:
        def __repr__(self) -> str:
            return "canary"

    with pytest.raises(TypeError) as refused:
        dumps({"v": Odd()})
    assert "canary" not in str(refused.value)
