import re
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib import admin
from django.db import connection
from django.test.utils import CaptureQueriesContext

from memory import endings, suppression
from memory.models import Candidate, Fact, OutboxEntry, Subject
from memory.rows import execute
from retention import certificates, holds, keeping, requests, restricting, runs
from tenants.actors import MemberRole
from tenants.admin import MetadataAdmin
from tenants.isolation import Role, tenant_transaction
from tenants.models import AuditEvent
from tests.paths.ledger import CANARY, Ledger, publish
from tests.policies.two_people import Two

MODELS = (
    *(
        "memory/subject",
        "memory/episode",
        "memory/extraction",
        "memory/factkey",
        "memory/fact",
        "memory/evidence",
        "memory/belief",
    ),
    *(
        "memory/candidate",
        "memory/receipt",
        "memory/outboxentry",
        "retention/subjectrequest",
        "retention/lifetimechange",
    ),
    *(
        "policies/attribute",
        "policies/attributeversion",
        "policies/policy",
        "policies/policyversion",
        "policies/consent",
        "policies/decisionrequest",
        "policies/delegation",
    ),
    *(
        "retention/matter",
        "retention/hold",
        "retention/refusedending",
        "retention/restriction",
        "retention/run",
        "retention/certificate",
    ),
    *("memory/procedure", "memory/procedureversion"),
    *("retention/erasure", "retention/notice", "memory/suppression"),
)


def fill(organisation: Any, number: int = 1) -> Ledger:
    """Let an agent say things of every kind about `number` subjects, each with a canary where content stands."""
    publish(organisation)
    ledger = Ledger(organisation.agent())
    two = Two(organisation)
    for each in range(number):
        proposal = {"body": f"Tell {CANARY} nothing.", "test": {"reference": "run-1", "result": "passed"}}
        letters = uuid4().hex[:12].translate(str.maketrans("0123456789", "ghijklmnop"))
        assert ledger.post(f"/procedures/refunds-{letters}/versions/", proposal).status_code == 201
        two.asked(f"drafted_{uuid4().hex[:8]}")
        two.hand_on()
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
        with tenant_transaction(Role.STAFF, tenant=organisation.id):
            requests.lodge(ledger.agent.actor, requests.Kind.ACCESS, name, now=datetime.now(UTC))
            keeping.note(ledger.agent.actor, uuid4(), "shortened", reason="other", now=datetime.now(UTC))
        ask_for_an_erasure(organisation, ledger)
        refuse_an_ending(organisation, ledger, kept.json()["id"])
        other = ledger.post(
            "/episodes/",
            {"kind": "message", "role": "user", "session_id": "s1", "turn_id": f"r{each}", "subject": name,
             "content": f"About {CANARY} again.", "occurred_at": "2026-06-01T09:00:00Z"},
        )  # fmt: skip
        picks = [{"kind": "episode", "id": other.json()["id"]}]
        hidden = ledger.post("/redactions/", {"items": picks, "reason": "not_to_be_kept"})
        assert hidden.status_code == 201, hidden.content
    with tenant_transaction(Role.WORKER, tenant=organisation.id):
        job, now = endings.worker(organisation.id), datetime.now(UTC)
        run, _ = runs.begin(job, "verification", target_kind="tenant", target_id=organisation.id, now=now)
        certificates.issue(job, "verification", runs.finish(job, run), {"counts": {"facts": 0}}, now)
    return ledger


def ask_for_an_erasure(organisation: Any, ledger: Ledger) -> None:
    """Ask for the erasure of a subject, with what one leaves: a suppression, and a notice that waits."""
    ledger.said(other := f"{CANARY} {uuid4().hex}", "city", f"{CANARY}-town")
    asked = ledger.post("/erasures/", {"subject": other, "reason": "law"})
    assert asked.status_code == 201, asked.content
    with tenant_transaction(Role.WORKER, tenant=organisation.id):
        erasure, now = UUID(asked.json()["id"]), datetime.now(UTC)
        suppression.add_subject(
            organisation.id, [uuid4().bytes * 2], cause="erased", target_kind="erasure", target=erasure, now=now
        )
        execute(
            "INSERT INTO retention_notice (tenant_id, id, erasure_id, agent_id, fact_ids, created_at)"
            " VALUES (%s, %s, %s, %s, '{}', %s)",
            [organisation.id, uuid4(), erasure, ledger.agent.actor.id, now],
        )


def refuse_an_ending(organisation: Any, ledger: Ledger, episode: str) -> None:
    """Hold an episode, restrict it for a moment, and have somebody try to end it."""
    matter = ledger.post("/matters/", {"reference": f"case-{uuid4().hex[:12]}", "reason": "audit"}).json()["id"]
    record = {"record": {"kind": "episode", "id": episode}}
    assert ledger.post("/holds/", {"matter": matter, "scopes": [record]}).status_code == 201
    officer = organisation.person(MemberRole.PRIVACY_OFFICER).actor
    with tenant_transaction(Role.STAFF, tenant=officer.tenant, clearance=3, actor=officer.id):
        now = datetime.now(UTC)
        row = restricting.restrict(officer, "episode", UUID(episode), ground="other", now=now)
        restricting.lift(officer, row.id, because="other", now=now)
    actor = ledger.agent.actor
    with tenant_transaction(Role.WORKER, tenant=actor.tenant):
        holds.share(actor.tenant)
        assert holds.free(actor.tenant, "episode", [UUID(episode)], actor=actor, act="redaction") == []


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
    with tenant_transaction(Role.STAFF, tenant=tenant.id):
        known = Subject.objects.filter(tenant_id=tenant.id).count()
    assert len(rows) == len(set(rows)) == known >= 3
    assert rows == sorted(rows, reverse=True)


def test_every_model_of_memory_in_the_admin_is_read_only_metadata() -> None:
    ours = [
        found
        for model, found in admin.site._registry.items()
        if model._meta.app_label in ("memory", "policies", "retention")
    ]
    # Proposals of redaction are for those alone who propose, apply or audit: their own tests walk them.
    assert len(ours) == len((*MODELS, "retention/redactionrequest"))
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
    assert drawing.count('<rect class="bar-') == 3
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


def audited(organisation: Any, action: str) -> list[AuditEvent]:
    with tenant_transaction(Role.STAFF, tenant=organisation.id):
        return list(AuditEvent.objects.filter(chain=organisation.id, action=action))


def asked_about(organisation: Any, client: Any) -> str:
    return f"/admin/memory/candidate/{first_row(seen(client, '/admin/memory/candidate/'), 'memory/candidate')}"


def test_a_reviewer_sees_what_a_decision_is_about_by_asking_and_the_chain_says_so(filled: Any) -> None:
    reviewer = filled.person(MemberRole.REVIEWER)
    client = reviewer.signed_in()
    candidate = asked_about(filled, client)
    page = seen(client, f"{candidate}/change/")
    assert CANARY not in page
    assert "This attribute is always confirmed by a person." in page
    assert "turn t0" in page
    assert client.get(f"{candidate}/show/").status_code == 405
    assert not audited(filled, "content.shown")
    shown = client.post(f"{candidate}/show/")
    assert shown.status_code == 200
    assert "no-store" in shown["Cache-Control"]
    assert f"<mark>{CANARY}-number</mark>" in shown.content.decode()
    assert f"x-ignore>{CANARY}-number</pre>" in shown.content.decode()
    (entry,) = audited(filled, "content.shown")
    assert entry.actor_id == reviewer.actor.id
    assert str(entry.target_id) in candidate
    assert entry.numbers == {"sources": 1, "held": False}


def test_c141_a_confirmation_shows_value_old_value_quote_class_and_expiry_before_the_button(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    ledger.said("mira", "city", "Coimbra")
    kept = ledger.post(
        "/episodes/",
        {"kind": "message", "role": "user", "session_id": "s1", "turn_id": "t1", "extract": "no",
         "content": "I think it is Lisbon by now.", "occurred_at": "2026-06-01T09:00:00Z"},
    ).json()  # fmt: skip
    source = {"turn_id": "t1", "source_episode": kept["id"], "source": "quote", "quote": "it is Lisbon"}
    ledger.said("mira", "city", "Lisbon", provenance=source, confidence=0.4, status=202)
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    page = client.post(f"{asked_about(tenant, client)}/show/").content.decode()
    words = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page.replace("<mark>", "[").replace("</mark>", "]")))
    button = words.index("Reason to confirm")
    for what in ("Coimbra", "Lisbon", "I think [it is Lisbon] by now.", "internal on the basis", "Kept until"):
        assert 0 <= words.find(what) < button, what


@pytest.mark.parametrize(("decision", "reason"), [("confirm", "evidence_supports"), ("reject", "recorded_wrongly")])
def test_a_reviewer_decides_with_a_reason_once(filled: Any, decision: str, reason: str) -> None:
    reviewer = filled.person(MemberRole.REVIEWER)
    client = reviewer.signed_in()
    candidate = asked_about(filled, client)
    sent = {"decision": decision, "reason": reason, "occurrences": "1"}
    answer = client.post(f"{candidate}/decide/", sent)
    assert (answer.status_code, answer["Location"]) == (302, "/admin/memory/candidate/?state=asked")
    (entry,) = audited(filled, "candidate.decided")
    assert (entry.actor_kind, entry.actor_id, entry.reason) == ("person", reviewer.actor.id, reason)
    assert entry.numbers == {"accepted": decision == "confirm"}
    with tenant_transaction(Role.STAFF, tenant=filled.id):
        row = Candidate.objects.get()
        assert row.state == ("accepted" if decision == "confirm" else "rejected")
        assert Fact.objects.filter(confirmed=True).count() == (1 if decision == "confirm" else 0)
    again = client.post(f"{candidate}/decide/", sent)
    assert again.status_code == 409
    assert "It was decided already." in again.content.decode()
    assert client.post(f"{candidate}/show/").status_code == 409
    assert len(audited(filled, "candidate.decided")) == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"decision": "confirm", "reason": "recorded_wrongly", "occurrences": "1"}, 400),
        ({"decision": "reject", "reason": CANARY, "occurrences": "1"}, 400),
        ({"decision": CANARY, "reason": "other", "occurrences": "1"}, 400),
        ({}, 400),
        ({"decision": "reject", "reason": "other", "occurrences": "2"}, 409),
        ({"decision": "reject", "reason": "other"}, 409),
    ],
)
def test_a_decision_that_is_not_whole_or_came_too_late_decides_nothing(
    filled: Any, sent: dict[str, str], status: int
) -> None:
    client = filled.person(MemberRole.REVIEWER).signed_in()
    answer = client.post(f"{asked_about(filled, client)}/decide/", sent)
    assert answer.status_code == status
    assert CANARY not in answer.content.decode()
    assert not audited(filled, "candidate.decided")


@pytest.mark.parametrize("role", [role for role in MemberRole if role is not MemberRole.REVIEWER])
def test_nobody_but_a_reviewer_sees_in_clear_or_decides(filled: Any, role: MemberRole) -> None:
    client = filled.person(role).signed_in()
    candidate = asked_about(filled, client)
    page = seen(client, f"{candidate}/change/")
    assert "Show what this is about" not in page
    assert "Reject" not in page
    sent = {"decision": "confirm", "reason": "other", "occurrences": "1"}
    assert client.post(f"{candidate}/show/").status_code == 403
    assert client.post(f"{candidate}/decide/", sent).status_code == 403
    assert not audited(filled, "candidate.decided") + audited(filled, "content.shown")


def test_a_superuser_who_is_no_reviewer_neither_sees_nor_decides(filled: Any, owner: Any) -> None:
    person = filled.person(MemberRole.TENANT_ADMIN)
    owner.execute("UPDATE tenants_user SET is_superuser = true WHERE id = %s", [person.actor.id])
    client = person.signed_in()
    candidate = asked_about(filled, client)
    assert client.post(f"{candidate}/show/").status_code == 403
    assert client.post(f"{candidate}/decide/", {"decision": "reject", "reason": "other"}).status_code == 403


def test_a_candidate_of_another_tenant_is_neither_shown_nor_decided(filled: Any, other_tenant: Any) -> None:
    fill(other_tenant)
    theirs = asked_about(other_tenant, other_tenant.person(MemberRole.REVIEWER).signed_in())
    client = filled.person(MemberRole.REVIEWER).signed_in()
    sent = {"decision": "confirm", "reason": "other", "occurrences": "1"}
    for candidate in (theirs, f"/admin/memory/candidate/{uuid4()}", "/admin/memory/candidate/x"):
        assert client.get(f"{candidate}/change/").status_code == 404
        assert client.post(f"{candidate}/show/").status_code == 404
        assert client.post(f"{candidate}/decide/", sent).status_code == 404


def test_what_is_restricted_stays_masked_also_for_a_reviewer(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    ledger.said("mira", "diagnosis", f"{CANARY}-illness", status=202)
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    candidate = asked_about(tenant, client)
    assert "What is restricted stays masked." in seen(client, f"{candidate}/change/")
    shown = client.post(f"{candidate}/show/")
    assert shown.status_code == 200
    assert CANARY not in shown.content.decode()
    assert not audited(tenant, "content.shown")


def test_an_episode_of_a_higher_class_stays_masked_beside_a_value_that_is_shown(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    kept = ledger.post(
        "/episodes/",
        {"kind": "message", "role": "user", "session_id": "s1", "turn_id": "t1", "sensitivity": "restricted",
         "content": f"{CANARY}-secret", "occurred_at": "2026-06-01T09:00:00Z"},
    ).json()  # fmt: skip
    ledger.said("mira", "iban", "DE-1", provenance={"turn_id": "t1", "source_episode": kept["id"]}, status=202)
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    page = client.post(f"{asked_about(tenant, client)}/show/").content.decode()
    assert "x-ignore>DE-1</pre>" in page
    assert CANARY not in page


def test_hostile_text_is_escaped_and_what_hides_is_named(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    ledger.said("mira", "iban", "<script>alert(1)</script>\u202e{{x}}\u200b http://a.example", status=202)
    client = tenant.person(MemberRole.REVIEWER).signed_in()
    page = client.post(f"{asked_about(tenant, client)}/show/").content.decode()
    value = page[page.index('class="m-value"') : page.index("</pre>")]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in value
    assert '<span class="m-unseen">U+202E</span>' in value
    assert '<span class="m-unseen">U+200B</span>' in value
    assert "<a " not in value


def test_work_given_up_is_tried_again_by_whoever_may_and_audited(filled: Any, superuser: Any) -> None:
    superuser.execute(
        "UPDATE memory_outboxentry SET state = 'failed', attempts = 8, failure = 'broken' WHERE tenant_id = %s",
        [filled.id],
    )
    admin_of_it = filled.person(MemberRole.TENANT_ADMIN)
    client = admin_of_it.signed_in()
    entry = f"/admin/memory/outboxentry/{first_row(seen(client, '/admin/memory/outboxentry/?state=failed'), 'memory/outboxentry')}"
    assert "Try it again" in seen(client, f"{entry}/change/")
    reviewer = filled.person(MemberRole.REVIEWER).signed_in()
    assert "Try it again" not in seen(reviewer, f"{entry}/change/")
    assert reviewer.post(f"{entry}/retry/").status_code == 403
    assert client.get(f"{entry}/retry/").status_code == 405
    for _ in range(2):  # the second time there is nothing to be tried
        assert client.post(f"{entry}/retry/").status_code == 302
    (told,) = audited(filled, "outbox.retried")
    assert (told.actor_id, str(told.target_id)) == (admin_of_it.actor.id, entry.rsplit("/", 1)[1])
    with tenant_transaction(Role.STAFF, tenant=filled.id):
        row = OutboxEntry.objects.get(id=told.target_id)
    assert (row.state, row.attempts, row.failure) == ("pending", 0, None)


def test_who_saw_a_fact_is_told_by_receipts(filled: Any) -> None:
    reader = filled.agent("curious")
    found = Ledger(reader)
    client = filled.person(MemberRole.AUDITOR).signed_in()
    fact = first_row(seen(client, "/admin/memory/fact/?sensitivity=1"), "memory/fact")
    assert "nobody, as far as receipts tell" in seen(client, f"/admin/memory/fact/{fact}/change/")
    for _ in range(2):
        found.ok(f"/facts/{fact}/")
    page = seen(client, f"/admin/memory/fact/{fact}/change/")
    assert re.search(r"agent <strong>curious</strong>: 2 reads", page)
    receipts = seen(client, f"/admin/memory/receipt/?fact={fact}")
    rows = set(re.findall(r"/admin/memory/receipt/([0-9a-f-]{36})/change/", receipts))
    assert len(rows) >= 2
    assert client.get("/admin/memory/receipt/?fact=x").status_code == 302
    assert client.get(f"/admin/memory/receipt/?subject_ids__contains={fact}").status_code in (302, 400)


def test_a_subject_is_shown_as_it_was_known_then(tenant: Any) -> None:
    publish(tenant)
    ledger = Ledger(tenant.agent())
    for value, day in (("one", 1), ("two", 11)):
        ledger.said(
            "mira", "city", f"{CANARY}-{value}", valid_from="2026-03-01T00:00:00Z" if day == 1 else "2026-02-01T00:00:00Z",
            recorded_at=f"2026-03-{day + 1:02}T00:00:00Z",
        )  # fmt: skip
    client = tenant.person(MemberRole.AUDITOR).signed_in()
    path = f"/admin/memory/subject/{first_row(seen(client, '/admin/memory/subject/'), 'memory/subject')}/change/"
    now, then, before = (
        seen(client, f"{path}{query}") for query in ("", "?known_at=2026-03-05T00:00", "?known_at=2026-01-01")
    )
    assert now.count('<th scope="row">') == 2
    assert now.count('class="rec late"') == 1
    assert then.count('<th scope="row">') == 1
    assert 'class="known"' in then
    assert "Nothing was believed of this subject then." in before
    for wrong in ("yesterday", "9999-12-31", CANARY):
        answer = client.get(f"{path}?known_at={wrong}")
        assert answer.status_code == 400
        assert CANARY not in answer.content.decode()


def test_the_page_of_a_fact_names_its_attribute(filled: Any) -> None:
    client = filled.person(MemberRole.REVIEWER).signed_in()
    listed = client.get("/admin/memory/fact/").content.decode()
    where = re.search(r"/admin/memory/fact/[0-9a-f-]{36}/change/", listed)
    assert where is not None
    with tenant_transaction(Role.STAFF, tenant=filled.id):
        name = Fact.objects.select_related("key__attribute").get(id=where[0].split("/")[4]).key.attribute.name
    assert name in client.get(where[0]).content.decode()


def test_everything_that_was_said_under_a_key_is_on_its_page(filled: Any) -> None:
    client = filled.person(MemberRole.AUDITOR).signed_in()
    # The oldest: the newest has a candidate only.
    key = re.findall(r"/admin/memory/factkey/([0-9a-f-]{36})/change/", seen(client, "/admin/memory/factkey/"))[-1]
    page = seen(client, f"/admin/memory/factkey/{key}/change/")
    assert "Everything that was said" in page
    assert page.count('<th scope="row">') >= 2
    assert CANARY not in page
    assert client.post(f"/admin/memory/factkey/{key}/change/").status_code == 405
