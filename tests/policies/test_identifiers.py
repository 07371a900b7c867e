from __future__ import annotations

import hashlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.identifiers import looks_like_identifier


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("mira@example.org", "email"),
        ("user:Mira.O'Neil+x@mail.example.co.uk", "email"),
        ("<mira@example.org>", "email"),
        ("zo\u00eb@b\u00fccher.example", "email"),
        ("ｍｉｒａ＠ｅｘａｍｐｌｅ．ｏｒｇ", "email"),
        ("+48601234567", "phone"),
        ("tel:+1 (555) 010-0123", "phone"),
        ("+49 (0)30 1234567", "phone"),
        ("555-123-4567", "phone"),
        ("555.123.4567", "phone"),
        ("(555) 123-4567", "phone"),
        ("06 12 34 56 78", "phone"),
        ("030/1234 5678", "phone"),
        ("601 234 567", "phone"),
        ("call 555-123-4567 now", "phone"),
        ("4111111111111111", "card"),
        ("4111 1111 1111 1111", "card"),
        ("card:4111-1111-1111-1111", "card"),
        ("378282246310005", "card"),
        ("3782 822463 10005", "card"),
        ("5555555555554444", "card"),
        ("2223003122003222", "card"),
        ("6011111111111117", "card"),
        ("3530111333300000", "card"),
        ("30569309025904", "card"),
        ("GB82WEST12345698765432", "iban"),
        ("gb82 west 1234 5698 7654 32", "iban"),
        ("DE89 3704 0044 0532 0130 00", "iban"),
        ("PL61109010140000071219812874", "iban"),
        ("536-90-4399", "ssn"),
        ("390.533.447-05", "cpf"),
    ],
)
def test_a_personal_identifier_is_named(text: str, kind: str) -> None:
    assert looks_like_identifier(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "turn-12",
        "e0",
        "sgd:dev/1_00000",
        "woz:train/117",
        "1234567",
        "20240129072000",
        "2024-01-29T07:20:00Z",
        "2024-01-29T07:20:00+02:00",
        "2024-01-29T07:20:00.123456+00:00",
        "2024-01-29 07:20:00",
        "2024-01-29",
        "2024-01-29-0720",
        "20240129T072000Z",
        "1706512800",
        "1706512800123",
        "1706512800123456789",
        "0190a8a4-7c4b-7000-8000-000000000000",
        "0190a8a47c4b70008000000000000000",
        "00000000-0000-4000-8000-000000000000",
        "12345678-1234-1234-1234-123456789012",
        "f571203a2bb03ad6979619ac5ff5a33f2c000000",
        "ac5ff5a33f2c",
        "01HN3V4G8ZK5T7XQ2M9R6W1B0C",
        "call_abc123XYZ",
        "toolu_01A09q90qw90lq917835lq9",
        "chatcmpl-9aXYZ1234567890",
        "thread_4111111111111111",
        "turn-4111111111111111",
        "4111111111111111-7",
        "4111111111111112",
        "1111111111111117",
        "192.168.100.200",
        "10.0.0.1:8000",
        "2001:db8::1",
        "v16.0.5522.1000",
        "1.2.3-rc.1+20240129",
        "1.2.3+20240129072000",
        "consent/2024/000123456789",
        "a@b",
        "user@host",
        "@mira",
        "c++17",
        "100-200-300",
        "ORD-2024-0001234567",
        "s3://bucket/2024/01/29/000000000001.json",
        "conversation 12 of 2024",
        "DE89370400440532013001",
        "000-12-3456",
        "666-12-3456",
        "390.533.447-06",
        "x" * 5000,
        "1" * 5000,
    ],
)
def test_an_ordinary_id_is_not_one(text: str) -> None:
    assert looks_like_identifier(text) is None


@given(st.uuids())
def test_a_uuid_is_never_one(value: uuid.UUID) -> None:
    assert looks_like_identifier(str(value)) is None
    assert looks_like_identifier(f"turn:{value}") is None


@given(st.binary())
def test_a_hash_is_never_one(data: bytes) -> None:
    assert looks_like_identifier(hashlib.sha1(data).hexdigest()) is None
    assert looks_like_identifier(hashlib.sha256(data).hexdigest()) is None


@given(st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()))
def test_a_timestamp_is_never_one(text: str) -> None:
    assert looks_like_identifier(text) is None


@given(st.integers(0, 10**12 - 1), st.sampled_from(["", "turn-", "session/", "run_"]))
def test_a_number_of_at_most_twelve_digits_is_never_one(number: int, prefix: str) -> None:
    assert looks_like_identifier(f"{prefix}{number}") is None


@given(st.text())
def test_any_text_has_an_answer(text: str) -> None:
    assert looks_like_identifier(text) in (None, "email", "phone", "card", "iban", "ssn", "cpf")
