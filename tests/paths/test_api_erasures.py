"""Erasures over the API: a program asks and looks; people decide."""

from typing import Any

from tests.paths.ledger import Ledger, publish


def test_a_program_asks_and_follows_and_decides_nothing(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    ledger.said("mira", "city", "Lisbon")
    api = tenant.agent().api
    answer = api.send(
        "POST", "/api/v1/erasures/", {"subject": "mira", "reason": "subject_request"}, idempotency_key="k"
    )
    assert answer.status_code == 201, answer.json()
    told = answer.json()
    assert (told["state"], told["counts"]["facts"], told["run"]) == ("requested", 1, None)
    again = api.send("POST", "/api/v1/erasures/", {"subject": "mira", "reason": "subject_request"}, idempotency_key="k")
    assert again.json()["id"] == told["id"]
    other = api.send("POST", "/api/v1/erasures/", {"subject": "mira", "reason": "law"})
    assert (other.status_code, other.json()["code"]) == (409, "erasure_open")
    assert api.get(f"/api/v1/erasures/{told['id']}/").json() == told
    assert [each["id"] for each in api.get("/api/v1/erasures/").json()["results"]] == [told["id"]]
    assert api.send("POST", "/api/v1/erasures/", {"subject": "nobody", "reason": "law"}).status_code == 404
    assert ledger.facts(subject="mira")


def test_an_address_is_registered_once_its_secret_shown_and_a_private_one_refused(tenant: Any) -> None:
    api = tenant.agent().api
    for url, code in (
        ("http://example.org/x", "https_needed"),
        ("https://127.0.0.1/x", "private_address"),
        ("https://[::1]/x", "private_address"),
        ("https://169.254.169.254/latest", "private_address"),
        ("https://user@example.org/", "bad_address"),
        ("ftp://example.org/", "bad_address"),
    ):
        answer = api.send("POST", "/api/v1/notice-endpoints/", {"url": url})
        assert (answer.status_code, answer.json()["errors"]) == (422, [{"path": "url", "code": code}]), url
        assert url not in answer.content.decode()
    kept = api.send("POST", "/api/v1/notice-endpoints/", {"url": "https://agent.invalid/hook"})
    assert kept.status_code == 201, kept.json()
    assert kept.json()["secret"].startswith("whsec_")
