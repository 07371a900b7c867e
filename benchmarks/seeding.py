"""Facts in bulk, as the write door would have left them: its own row of a probe is copied, with what differs put in.

Straight into the tables by a superuser, since no other may COPY under row-level security. Ids, digests, seals and
chains are real and differ a fact; receipts are as of one batch a subject. Left out: the audit chain and the outbox.
"""

from typing import Any

import psycopg

from benchmarks.bodies import said, value
from memory import remember
from memory.contracts import FactBody, parse
from memory.subjects import payload_context
from policies.values import canonical_text
from tenants.actors import Actor
from tenants.identity import new_id
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import keyring

EACH = 20
_TOGETHER = 500


def seed(actor: Actor, *, first: int, subjects: int, url: str) -> dict[str, int]:
    """Seed the subjects `seeded-<first>` and on, each with 20 facts; return how many facts that made."""
    name = f"probe-{first}"
    probing = parse(FactBody, said(name, "attribute_0", value(0)))
    with tenant_transaction(Role.WRITER, tenant=actor.tenant, clearance=actor.clearance, actor=actor.id):
        remember.facts(actor, [probing])
    with psycopg.connect(url) as session:
        # Links and guards hold by construction; the exclusion of a second value is an index, and is kept up.
        session.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        probe = _Probe(session, actor, name)
        for start in range(first, first + subjects, _TOGETHER):
            rows: dict[str, list[str]] = {table: [] for table in probe.tables}
            for number in range(start, min(start + _TOGETHER, first + subjects)):
                _subject(actor, probe, number, rows)
            for table, lines in rows.items():
                with session.cursor().copy(f"COPY {table} ({probe.columns[table]}) FROM STDIN") as copy:
                    copy.write("".join(lines))
            session.commit()
    return {"facts": subjects * EACH}


class _Probe:
    """The rows of one fact that the door wrote, as COPY's text."""

    _WHERE = {
        "tenants_subjectkey": "id = (SELECT key_id FROM memory_subject WHERE id = %(subject)s)",
        "memory_subject": "id = %(subject)s",
        "memory_subjectidentifier": "subject_id = %(subject)s",
        "memory_factkey": "id = %(key)s",
        "memory_fact": "key_id = %(key)s",
        "memory_evidence": "key_id = %(key)s",
        "memory_belief": "key_id = %(key)s",
        "memory_receipt": "%(fact)s = ANY (fact_ids)",
    }

    def __init__(self, session: psycopg.Connection[Any], actor: Actor, name: str) -> None:
        digest = keyring().identifier(actor.tenant, name)
        found = session.execute(
            "SELECT i.subject_id, f.key_id, f.id, s.payload_id, f.payload_id FROM memory_subjectidentifier i"
            " JOIN memory_subject s ON s.id = i.subject_id JOIN memory_fact f ON f.subject_id = s.id"
            " WHERE i.tenant_id = %s AND i.digest = %s",
            [actor.tenant, digest],
        ).fetchone()
        assert found is not None
        ids = dict(zip(("subject", "key", "fact", "name", "value"), found, strict=True))
        self.columns: dict[str, str] = {}
        self.tables: dict[str, dict[str, str]] = {}
        for table, where in self._WHERE.items():
            self._read(session, table, table, where, ids)
        self._read(session, "memory_payload", "memory_payload", "id = %(value)s", ids)
        self.name = dict(self.tables["memory_payload"])
        self._read(session, "memory_payload", "name", "id = %(name)s", ids)
        self.name = self.tables.pop("name")
        self.columns.pop("name")
        attributes = session.execute(
            "SELECT a.name, a.id, v.id FROM policies_attribute a JOIN policies_attributeversion v ON v.attribute_id = a.id"
            " WHERE a.tenant_id = %s",
            [actor.tenant],
        ).fetchall()
        self.attributes = {name: (str(attribute), str(version)) for name, attribute, version in attributes}

    def _read(self, session: psycopg.Connection[Any], table: str, name: str, where: str, ids: dict[str, Any]) -> None:
        columns = [
            row[0]
            for row in session.execute(
                "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
                " ORDER BY attnum",
                [table],
            )
        ]
        cursor = psycopg.ClientCursor(session)
        with cursor.copy(f"COPY (SELECT {', '.join(columns)} FROM {table} WHERE {where}) TO STDOUT", ids) as copy:
            text = b"".join(bytes(part) for part in copy).decode()
        lines = text.splitlines()
        assert len(lines) == 1, table
        self.columns[name] = ", ".join(columns)
        self.tables[name] = dict(zip(columns, lines[0].split("\t"), strict=True))

    def line(self, table: str, **differs: str) -> str:
        return _line(self.tables[table], differs)


def _line(row: dict[str, str], differs: dict[str, str]) -> str:
    return "\t".join((row | differs).values()) + "\n"


def _bytes(content: bytes) -> str:
    return "\\\\x" + content.hex()


def _subject(actor: Actor, probe: _Probe, number: int, rows: dict[str, list[str]]) -> None:
    ring, tenant = keyring(), actor.tenant
    name = f"seeded-{number}"
    data_key, wrapped, version = ring.new_data_key(tenant)
    subject, key_id, payload = str(new_id()), str(new_id()), new_id()
    rows["tenants_subjectkey"].append(
        probe.line("tenants_subjectkey", id=key_id, wrapped=_bytes(wrapped), version=str(version))
    )
    sealed = ring.seal(data_key, name.encode(), payload_context(tenant, payload, "subject"))
    rows["memory_payload"].append(_line(probe.name, {"id": str(payload), "key_id": key_id, "sealed": _bytes(sealed)}))
    rows["memory_subject"].append(probe.line("memory_subject", id=subject, payload_id=str(payload), key_id=key_id))
    rows["memory_subjectidentifier"].append(
        probe.line(
            "memory_subjectidentifier",
            id=str(new_id()),
            subject_id=subject,
            digest=_bytes(ring.identifier(tenant, name)),
            payload_id=str(payload),
        )
    )
    facts = [_fact(actor, probe, number * EACH + each, each, subject, key_id, data_key, rows) for each in range(EACH)]
    attributes = ",".join(probe.attributes[f"attribute_{each}"][0] for each in range(EACH))
    rows["memory_receipt"].append(
        probe.line(
            "memory_receipt",
            id=str(new_id()),
            act="fact.batch",
            subject_ids=f"{{{subject}}}",
            attribute_ids=f"{{{attributes}}}",
            fact_ids="{" + ",".join(facts) + "}",
        )
    )


def _fact(
    actor: Actor,
    probe: _Probe,
    number: int,
    place: int,
    subject: str,
    key_id: str,
    data_key: bytes,
    rows: dict[str, list[str]],
) -> str:
    ring = keyring()
    attribute, version = probe.attributes[f"attribute_{place}"]
    key, fact, evidence, payload = str(new_id()), str(new_id()), str(new_id()), new_id()
    chain_no = str(1_000_000_000 + number)
    text = canonical_text(value(number)).encode()
    sealed = ring.seal(data_key, text, payload_context(actor.tenant, payload, "value"))
    rows["memory_payload"].append(probe.line("memory_payload", id=str(payload), key_id=key_id, sealed=_bytes(sealed)))
    rows["memory_factkey"].append(
        probe.line("memory_factkey", id=key, subject_id=subject, attribute_id=attribute, chain_no=chain_no)
    )
    rows["memory_fact"].append(
        probe.line(
            "memory_fact",
            id=fact,
            key_id=key,
            subject_id=subject,
            chain_no=chain_no,
            value_digest=_bytes(ring.digest(data_key, "value", text)),
            payload_id=str(payload),
            attribute_version_id=version,
        )
    )
    rows["memory_evidence"].append(
        probe.line("memory_evidence", id=evidence, key_id=key, fact_id=fact, attribute_version_id=version)
    )
    rows["memory_belief"].append(
        probe.line("memory_belief", id=str(new_id()), key_id=key, chain_no=chain_no, evidence_id=evidence, fact_id=fact)
    )
    return fact
