import re
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tenants.actors import MemberRole
from tenants.admin import MetadataAdmin
from tests.paths.ledger import CANARY, Ledger, publish

MODELS = (
    *("memory/subject", "memory/episode", "memory/factkey", "memory/fact", "memory/evidence", "memory/belief"),
    *("memory/candidate", "memory/receipt", "memory/outboxentry"),
    *(
        "policies/attribute",
        "policies/attributeversion",
        "policies/policy",
        "policies/policyversion",
        "policies/consent",
    ),
)


def fill(organisation: Any, number: int = 1) -> Ledger:
    """Let an agent say things of every kind about `number` subjects, each with a canary where content stands."""
    publish(organisation)
    ledger = Ledger(organisation.agent())
    for each in range(number):
        name = f"{CANARY} {uuid4().hex}"
        text = f"I live in {CANARY}-town, have {CANARY}-illness and pay from {CANARY}-number."
        kept = ledger.post(
            "/episodes/",
            {"kind": "message", "role": "user", "session_id": "s1", "turn_id": f"t{each}", "subject": name,
             "content": text, "occurred_at": "2026-06-01T09:00:00Z"},
        )  # fmt: skip
        assert kept.status_code == 201, kept.content
        for attribute, value, status in (("city", "town", 201), ("diagnosis", "illness", 201), ("iban", "number", 202)):
            source = {"turn_id": f"t{each}", "source_episode": kept.json()["id"], "source": "quote"}
            provenance = {**source, "quote": f"{CANARY}-{value}"}
            ledger.said(name, attribute, f"{CANARY}-{value}", provenance=provenance, status=status)
        granted = ledger.post("/consents/", {"subject": name, "ref": f"c-{uuid4().hex}", "purposes": ["support"]})
        assert granted.status_code == 201, granted.content
    return ledger


def first_row(page: str, model: str) -> str:
    found = re.search(rf"/admin/{model}/([0-9a-f-]{{36}})/change/", page)
    assert found is not None, f"no row of {model} is shown"
    return found[1]


def seen(client: Any, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.content.decode()  # type: ignore[no-any-return]


@pytest.fixture
def filled(tenant: Any) -> Any:
    fill(tenant)
    return tenant


@pytest.mark.parametrize("role", list(MemberRole))
def test_a_member_of_any_role_sees_every_model_and_no_content_anywhere(filled: Any, role: MemberRole) -> None:
    client = filled.person(role).signed_in()
    assert "have permission to view" not in seen(client, "/admin/")
    for model in MODELS:
        page = seen(client, f"/admin/{model}/")
        row = seen(client, f"/admin/{model}/{first_row(page, model)}/change/")
        assert CANARY not in page + row, model


def test_where_content_would_stand_its_class_stands(filled: Any) -> None:
    client = filled.person(MemberRole.REVIEWER).signed_in()
    page = seen(client, "/admin/memory/fact/")
    assert "‹value: internal›" in page
    assert "‹value: restricted›" in page
    assert "‹text: " in seen(client, "/admin/memory/episode/")
    assert "‹value: personal›" in seen(client, "/admin/memory/candidate/")
    assert "‹name›" in seen(client, "/admin/memory/subject/")


def test_the_first_page_tells_a_reviewer_what_waits(filled: Any) -> None:
    page = seen(filled.person(MemberRole.REVIEWER).signed_in(), "/admin/")
    assert re.search(r'<p class="m-figure">1</p>\s*<p><a href="/admin/memory/candidate/\?state=asked">', page)
    assert "Work given up" in page
    assert CANARY not in page


@pytest.mark.parametrize("model", MODELS)
def test_nobody_writes_by_any_url_or_method(filled: Any, model: str) -> None:
    client = filled.person(*MemberRole).signed_in()
    row = first_row(seen(client, f"/admin/{model}/"), model)
    for path in ("", "add/", f"{row}/change/", f"{row}/delete/", f"{row}/history/"):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = client.generic(method, f"/admin/{model}/{path}")
            assert answer.status_code in (403, 404, 405), (path, method, answer.status_code)
    for path in ("add/", f"{row}/delete/"):
        assert client.get(f"/admin/{model}/{path}").status_code == 403


@pytest.mark.parametrize("model", MODELS)
def test_a_row_of_another_tenant_looks_like_one_that_is_not_there(filled: Any, other_tenant: Any, model: str) -> None:
    fill(other_tenant)
    theirs = first_row(seen(other_tenant.person(MemberRole.AUDITOR).signed_in(), f"/admin/{model}/"), model)
    client = filled.person(MemberRole.AUDITOR).signed_in()
    assert theirs not in seen(client, f"/admin/{model}/")
    answers = [client.get(f"/admin/{model}/{row}/change/") for row in (theirs, str(uuid4()))]
    assert [answer.status_code for answer in answers] == [404, 404]


@pytest.mark.parametrize(
    "query",
    [
        *(
            "payload__clear__startswith=c",
            "value_digest__gt=a",
            "sensitivity__gte=2",
            "subject__id=x",
            "content_digest=a",
        ),
        *("sensitivity=9", "state=%00", "before=x", "subject_id__in=1"),
    ],
)
def test_lists_cannot_be_filtered_by_what_is_not_named(filled: Any, query: str) -> None:
    client = filled.person(MemberRole.REVIEWER).signed_in()
    for model in ("memory/fact", "memory/candidate", "memory/episode"):
        answer = client.get(f"/admin/{model}/?{query}")
        assert answer.status_code in (302, 400) or query.partition("=")[0] in ("sensitivity", "state")
        # What is typed is not repeated, and nothing can be searched.
        assert client.get(f"/admin/{model}/?q={CANARY}").status_code in (200, 302)


def test_filters_are_closed_lists(filled: Any) -> None:
    client = filled.person(MemberRole.REVIEWER).signed_in()
    assert "‹value: restricted›" not in seen(client, "/admin/memory/fact/?sensitivity=1")
    assert "‹value: restricted›" in seen(client, "/admin/memory/fact/?sensitivity=3")
    assert client.get("/admin/memory/fact/?sensitivity=9").status_code == 302


@pytest.mark.slow
def test_a_page_costs_the_same_statements_for_few_and_for_many_rows_and_counts_none(tenant: Any) -> None:
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    counts: list[dict[str, int]] = []
    for number in (5, 50):
        fill(tenant, number)
        sent: dict[str, int] = {}
        for path in ("", *(f"{model}/" for model in MODELS)):
            with CaptureQueriesContext(connection) as statements:
                seen(client, f"/admin/{path}")
            sent[path] = len(statements)
            if path:
                assert not [each["sql"] for each in statements if "COUNT(" in each["sql"].upper()], path
        counts.append(sent)
    assert counts[0] == counts[1]


def test_a_list_goes_on_by_id_and_shows_every_row_once(tenant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataAdmin, "list_per_page", 2)
    fill(tenant, 3)
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    path, rows = "/admin/memory/subject/", []
    while path:
        page = seen(client, path)
        rows += list(dict.fromkeys(re.findall(r"/admin/memory/subject/([0-9a-f-]{36})/change/", page)))
        older = re.search(r'href="(\?before=[0-9a-f-]{36})" rel="next"', page)
        path = f"/admin/memory/subject/{older[1]}" if older else ""
    assert len(rows) == len(set(rows)) == 3
    assert rows == sorted(rows, reverse=True)


def test_every_model_of_memory_in_the_admin_is_read_only_metadata() -> None:
    ours = [found for model, found in admin.site._registry.items() if model._meta.app_label in ("memory", "policies")]
    assert len(ours) == len(MODELS)
    for found in ours:
        assert isinstance(found, MetadataAdmin)
        assert not found.search_fields


def test_the_page_of_a_subject_draws_what_held_when_and_tells_the_same_in_a_table(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    ledger.said("mira", "city", f"{CANARY}-one", valid_from="2026-03-01T00:00:00Z")
    ledger.said("mira", "city", f"{CANARY}-two", valid_from="2026-05-01T00:00:00Z")
    ledger.said("mira", "tag", f"{CANARY}-three", valid_from="2026-05-01T00:00:00Z", valid_to="2026-06-01T00:00:00Z")
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    row = first_row(seen(client, "/admin/memory/subject/"), "memory/subject")
    page = seen(client, f"/admin/memory/subject/{row}/change/")
    assert CANARY not in page
    assert "mira" not in page
    drawing = page[page.index("<svg class=") : page.index("</svg>", page.index("<svg class="))]
    assert drawing.count("<rect ") == 3
    assert drawing.count('class="open"') == 1
    assert drawing.count('class="lane"') == 2
    assert "<script" not in drawing
    assert "until just before 2026-05-01 00:00:00" in drawing
    assert page.count('<th scope="row">') == 3
    assert client.post(f"/admin/memory/subject/{row}/change/").status_code == 405


def test_the_page_of_a_subject_costs_the_same_statements_however_much_is_known(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    counts = []
    for number in (5, 50):
        for each in range(number):
            ledger.said("mira", "tag", f"{number}-{each}")
        row = first_row(seen(client, "/admin/memory/subject/"), "memory/subject")
        with CaptureQueriesContext(connection) as statements:
            seen(client, f"/admin/memory/subject/{row}/change/")
        counts.append(len(statements))
    assert counts[0] == counts[1]
