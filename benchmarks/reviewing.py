"""Work at the desk, in the process of the doors: proposals to seed, and a person who opens and decides."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
from django.test import Client

from benchmarks.bodies import said, value
from memory import remember, subjects
from memory.contracts import FactBody, parse
from tenants.actors import Actor, MemberRole
from tenants.isolation import Role, tenant_transaction
from tenants.registry import OPERATOR, create_member

#: Whose page is looked at.
SUBJECT = "known-for-long"
PASSWORD = "bench-horse-battery"
_AT_ONCE = 250

# What waits behind the real ones: their rows again, with ids and digests of their own, an hour younger.
_COPY = """
WITH one AS (SELECT * FROM memory_candidate WHERE tenant_id = %(tenant)s AND state = 'asked' ORDER BY id DESC LIMIT 1),
  said AS (SELECT s.* FROM memory_candidatesaying s JOIN one ON s.tenant_id = one.tenant_id AND s.candidate_id = one.id),
  ids AS (SELECT gen_random_uuid() AS id, number FROM generate_series(1, %(copies)s) number),
  made AS (INSERT INTO memory_candidate ({candidate}) SELECT {candidate_values} FROM one, ids RETURNING id)
INSERT INTO memory_candidatesaying ({saying}) SELECT {saying_values} FROM said, made
"""


def seed(actor: Actor, *, real: int, copies: int, url: str) -> None:
    """Let `real` proposals about as many subjects wait, and `copies` of the last of them behind."""
    for start in range(0, real, _AT_ONCE):
        bodies = [
            parse(FactBody, {"subject": f"waiting-{number}", "attribute": "passport_deadline", "value": "2031-06-30",
                             "confidence": 0.2, "valid_from": "2026-06-01T00:00:00Z", "provenance": {"turn_id": f"t{number}"}})
            for number in range(start, min(start + _AT_ONCE, real))
        ]  # fmt: skip
        with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
            remember.facts(actor, bodies, batch=True)
    with psycopg.connect(url) as session:
        session.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        columns = {
            table: [row[0] for row in session.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
                " AND attgenerated = ''", [f"memory_{table}"])]
            for table in ("candidate", "candidatesaying")
        }  # fmt: skip
        other = {
            "candidate": {"id": "ids.id", "value_digest": "decode(md5(ids.number::text) || md5(ids.id::text), 'hex')",
                          "created_at": "one.created_at + interval '1 hour'"},
            "candidatesaying": {"id": "gen_random_uuid()", "candidate_id": "made.id"},
        }  # fmt: skip
        values = {
            table: ", ".join(other[table].get(name, f"{alias}.{name}") for name in columns[table])
            for table, alias in (("candidate", "one"), ("candidatesaying", "said"))
        }
        sql = _COPY.format(
            candidate=", ".join(columns["candidate"]),
            candidate_values=values["candidate"],
            saying=", ".join(columns["candidatesaying"]),
            saying_values=values["candidatesaying"],
        )
        session.execute(sql.encode(), {"tenant": actor.tenant, "copies": copies})


def seed_subject(actor: Actor, *, attributes: int, changes: int) -> None:
    """Let one subject have `attributes` times `changes` facts, each the next value of its attribute, through the write door."""
    for change in range(changes):
        for start in range(0, attributes, _AT_ONCE):
            bodies = [
                parse(FactBody, said(SUBJECT, f"attribute_{number}", value(change + number), valid_from=f"2026-0{change + 1}-01T00:00:00Z"))
                for number in range(start, min(start + _AT_ONCE, attributes))
            ]  # fmt: skip
            with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
                remember.facts(actor, bodies, batch=True)


class Reviewer:
    """A person at the desk, signed in."""

    def __init__(self, tenant: UUID) -> None:
        name = f"reviewer-{uuid4().hex[:8]}"
        with tenant_transaction(Role.FRONT, tenant=tenant):
            create_member(tenant, name, MemberRole.REVIEWER, password=PASSWORD, by=OPERATOR, now=datetime.now(UTC))
        self.client = Client(headers={"host": "127.0.0.1"})
        self.client.post("/admin/login/", {"username": name, "password": PASSWORD})
        self.claimed: Any = None
        self.tenant = tenant

    def open(self, number: int) -> None:
        """Open the desk."""
        answer = self.client.get("/admin/desk/facts/")
        assert answer.status_code == 200, answer.status_code

    def next(self, number: int) -> None:
        """Confirm what is claimed, and take the next: what a person waits for between two items."""
        if self.claimed is None:
            self.claimed = self.client.post("/admin/desk/facts/claim/").json()
        sent = {"act": "confirm", "reason": "evidence_supports", "digest": self.claimed["digest"]}
        answer = self.client.post(f"/admin/desk/facts/{self.claimed['item']}/decide/", sent)
        assert answer.status_code == 200, answer.content
        self.claimed = self.client.post("/admin/desk/facts/claim/").json()
        assert self.claimed["clear"], self.claimed

    def subject(self, number: int) -> None:
        """Open the page of the subject with many facts."""
        with tenant_transaction(Role.WRITER, tenant=self.tenant, clearance=3):
            found = subjects.known(self.tenant, [SUBJECT])[SUBJECT].id
        answer = self.client.get(f"/admin/memory/subject/{found}/change/")
        assert answer.status_code == 200, answer.status_code
        assert b"<svg" in answer.content
