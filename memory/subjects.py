"""Subjects as the write door meets them: found by HMAC of their key or an alias, locked, and made where they are new."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from memory import rows
from memory.rows import PayloadRow, SubjectKeyRow, SubjectRow
from tenants.errors import Missing
from tenants.identity import new_id
from tenants.secrets import keyring

#: A subject's names live as long as the subject: they end by its erasure, not by a date.
_NAME_CLASS = 1


@dataclass(frozen=True, slots=True)
class SubjectState:
    """A locked subject with its data key in clear, for the length of one transaction."""

    id: UUID
    key_id: UUID
    data_key: bytes
    #: Look-up digests of its names, where it was found by one of them.
    names: frozenset[bytes] = frozenset()
    #: Its processing is restricted: what is written about it is kept, and no agent sees it.
    restricted: bool = False

    def digest(self, value: str) -> bytes:
        """Return what equal values of this subject have in common; it dies with the subject's key."""
        return keyring().digest(self.data_key, "value", value.encode("utf-8"))


def payload_context(tenant: UUID, payload: UUID, purpose: str) -> bytes:
    """Return what a sealed payload is bound to: its tenant, its own id and its purpose. Another row's content fails."""
    return tenant.bytes + payload.bytes + purpose.encode("ascii")


def opened(
    tenant: UUID, payload: UUID, purpose: str, clear: str | None, sealed: Any, wrapped: Any, version: int | None
) -> str:
    """Return what a payload says, unsealed where it is sealed. Raises `KeyUnavailable`, `Unsealable`."""
    if sealed is None or version is None:
        return clear or ""
    ring = keyring()
    key = ring.unwrap(tenant, bytes(wrapped), version)
    return ring.open(key, bytes(sealed), payload_context(tenant, payload, purpose)).decode("utf-8")


# Each step goes by a full key and stays a step of its own: a plan made while the tables were nearly empty would else
# hold every subject of the tenant against every name. Locks are taken in the order of the subjects' ids.
_FIND = """
WITH named AS MATERIALIZED (
  SELECT i.subject_id FROM unnest(%(digests)s::bytea[]) AS w (digest)
    CROSS JOIN LATERAL (SELECT i.subject_id FROM memory_subjectidentifier i
      WHERE i.tenant_id = %(tenant)s::uuid AND i.digest = w.digest OFFSET 0) i
), locked AS MATERIALIZED (
  SELECT s.id, s.key_id, s.restricted FROM memory_subject s
  WHERE s.tenant_id = %(tenant)s::uuid AND s.id = ANY (ARRAY(SELECT n.subject_id FROM named n)) AND s.ended_at IS NULL
  ORDER BY s.id FOR KEY SHARE
)
SELECT i.digest, l.id, l.key_id, k.wrapped, k.version, l.restricted
FROM locked l
  CROSS JOIN LATERAL (SELECT i.digest FROM memory_subjectidentifier i
    WHERE i.tenant_id = %(tenant)s::uuid AND i.subject_id = l.id OFFSET 0) i
  CROSS JOIN LATERAL (SELECT k.wrapped, k.version FROM tenants_subjectkey k
    WHERE k.tenant_id = %(tenant)s::uuid AND k.id = l.key_id OFFSET 0) k
"""


# The same for one name: one lock has no order to keep.
_FIND_ONE = """
SELECT n.digest, s.id, s.key_id, k.wrapped, k.version, s.restricted
FROM (SELECT i.digest, i.subject_id FROM memory_subjectidentifier i
    WHERE i.tenant_id = %(tenant)s::uuid AND i.digest = %(digest)s::bytea OFFSET 0) i
  JOIN memory_subject s ON s.tenant_id = %(tenant)s::uuid AND s.id = i.subject_id AND s.ended_at IS NULL
  CROSS JOIN LATERAL (SELECT n.digest FROM memory_subjectidentifier n
    WHERE n.tenant_id = %(tenant)s::uuid AND n.subject_id = s.id OFFSET 0) n
  CROSS JOIN LATERAL (SELECT k.wrapped, k.version FROM tenants_subjectkey k
    WHERE k.tenant_id = %(tenant)s::uuid AND k.id = s.key_id OFFSET 0) k
FOR KEY SHARE OF s
"""


def query(tenant: UUID, names: Iterable[str]) -> rows.Query | None:
    """Return what asks for the subjects of `names`, locked against their erasure; None where there are no names."""
    digests = sorted(keyring().identifier(tenant, name) for name in names)
    if len(digests) == 1:
        return _FIND_ONE, {"digest": digests[0], "tenant": tenant}
    return (_FIND, {"digests": digests, "tenant": tenant}) if digests else None


def by_name(tenant: UUID, names: Iterable[str], answer: Sequence[tuple[Any, ...]]) -> dict[str, SubjectState]:
    """Read the answer to `query`: the subject of each name that has one."""
    ring = keyring()
    by_digest = {ring.identifier(tenant, name): name for name in names} if answer else {}
    names_of: dict[UUID, set[bytes]] = {}
    for digest, subject, *_ in answer:
        names_of.setdefault(subject, set()).add(bytes(digest))
    found: dict[str, SubjectState] = {}
    opened: dict[UUID, SubjectState] = {}
    for digest, subject, key, wrapped, version, restricted in answer:
        name = by_digest.get(bytes(digest))
        if name is None:
            continue  # a name of the same subject that nobody asked for
        if subject not in opened:
            opened[subject] = SubjectState(
                subject, key, ring.unwrap(tenant, bytes(wrapped), version), frozenset(names_of[subject]), restricted
            )
        found[name] = opened[subject]
    return found


def ids_of(tenant: UUID, names: Collection[str]) -> dict[str, UUID]:
    """Return the id of each name that has a subject, locked against nothing: for whoever only points at it."""
    by_digest = {keyring().identifier(tenant, name): name for name in names}
    if not by_digest:
        return {}
    found = rows.fetch(
        "SELECT i.digest, i.subject_id FROM memory_subjectidentifier i"
        " WHERE i.tenant_id = %s::uuid AND i.digest = ANY (%s::bytea[])",
        [tenant, list(by_digest)],
    )
    return {by_digest[bytes(digest)]: subject for digest, subject in found}


def known(tenant: UUID, names: Collection[str]) -> dict[str, SubjectState]:
    """Return the subject of each name that has one, locked against its erasure; nothing is made."""
    return by_name(tenant, names, rows.fetch_all([query(tenant, names)])[0])


def resolve(
    tenant: UUID,
    names: Iterable[str],
    *,
    now: datetime,
    kind: str = "entity",
    found: Mapping[str, SubjectState] | None = None,
) -> dict[str, SubjectState]:
    """Return the subject of each name, locked against its erasure; unknown names become subjects.

    `found` are those that `query` found of these names already. Two writers who meet a new name at once get one subject:
    identifiers are inserted in the order of their digests, and what another transaction made in the meantime is read
    again.
    """
    names = set(names)
    subjects = dict(known(tenant, names) if found is None else found)
    missing = {keyring().identifier(tenant, name): name for name in names if name not in subjects}
    if missing:
        subjects.update(_create(tenant, sorted(missing.items()), now=now, kind=kind))
        subjects.update(known(tenant, [name for name in missing.values() if name not in subjects]))
    return {name: subjects[name] for name in names}


_OF_ID = """
SELECT s.key_id, k.wrapped, k.version, s.restricted,
  ARRAY(SELECT i.digest FROM memory_subjectidentifier i WHERE i.tenant_id = s.tenant_id AND i.subject_id = s.id)
FROM memory_subject s CROSS JOIN LATERAL (SELECT * FROM tenants_subjectkey x WHERE x.tenant_id = s.tenant_id AND x.id = s.key_id OFFSET 0) k
WHERE s.tenant_id = %s::uuid AND s.id = %s::uuid AND s.ended_at IS NULL FOR KEY SHARE OF s
"""


def of_id(tenant: UUID, subject: UUID) -> SubjectState:
    """Return a subject that is there, locked against its erasure. Raises `Missing` for one that is being erased."""
    found = rows.fetch(_OF_ID, [tenant, subject])
    if not found:
        raise Missing
    ((key, wrapped, version, restricted, names),) = found
    data_key = keyring().unwrap(tenant, bytes(wrapped), version)
    return SubjectState(subject, key, data_key, frozenset(map(bytes, names)), restricted)


_CLAIMED = [("digest", "bytea"), ("id", "uuid"), ("subject_id", "uuid"), ("payload_id", "uuid")]
# A name is claimed before the rows that it points at (those links are checked at the commit): whoever loses has made
# nothing.
_CLAIM = f"""
INSERT INTO memory_subjectidentifier (tenant_id, id, subject_id, digest, payload_id, is_key, created_at)
SELECT %(tenant)s::uuid, w.id, w.subject_id, w.digest, w.payload_id, %(is_key)s::boolean, %(now)s::timestamptz
FROM {rows.recordset("names", _CLAIMED)}
ORDER BY w.digest
ON CONFLICT (tenant_id, digest) DO NOTHING RETURNING digest, subject_id
"""


def _of_those(table: rows.Table[Any], source: str) -> str:
    # Not a join: the doors' settings leave a nested loop only, which for a thousand names is a million steps.
    return f"{table.sql} WHERE (w.id IN ({source})) IS TRUE"


_MAKE = f"""
WITH claimed AS ({_CLAIM}),
  made AS ({_of_those(rows.SUBJECTS, "SELECT c.subject_id FROM claimed c")} RETURNING id, key_id, payload_id),
  keys AS ({_of_those(rows.SUBJECT_KEYS, "SELECT m.key_id FROM made m")}),
  names AS ({_of_those(rows.PAYLOADS, "SELECT m.payload_id FROM made m")})
SELECT m.id FROM made m
"""


def _claims(tenant: UUID, names: Iterable[tuple[bytes, UUID, UUID]], *, is_key: bool, now: datetime) -> dict[str, Any]:
    claims = [(digest, new_id(), subject, payload) for digest, subject, payload in names]
    return {
        "tenant": tenant,
        "is_key": is_key,
        "now": now,
        "names": rows.as_json([name for name, _ in _CLAIMED], claims),
    }


def _create(tenant: UUID, names: Sequence[tuple[bytes, str]], *, now: datetime, kind: str) -> dict[str, SubjectState]:
    """Make subjects of names (digest, name), but for what another transaction makes at the same time; return those made."""
    ring = keyring()
    states: dict[str, SubjectState] = {}
    claims: list[tuple[bytes, UUID, UUID]] = []
    keys: list[SubjectKeyRow] = []
    payloads: list[PayloadRow] = []
    subjects: list[SubjectRow] = []
    for digest, name in names:
        key, wrapped, version = ring.new_data_key(tenant)
        state, payload = SubjectState(new_id(), new_id(), key), new_id()
        states[name] = state
        claims.append((digest, state.id, payload))
        keys.append(SubjectKeyRow(state.key_id, wrapped, version, now))
        payloads.append(_name_payload(tenant, payload, "subject", name, key, state.key_id, now))
        subjects.append(SubjectRow(state.id, kind, payload, state.key_id, now))
    asked = _claims(tenant, claims, is_key=True, now=now)
    asked |= rows.parameters([(rows.SUBJECTS, subjects), (rows.SUBJECT_KEYS, keys), (rows.PAYLOADS, payloads)])
    made = {row[0] for row in rows.fetch(_MAKE, asked)}
    return {name: state for name, state in states.items() if state.id in made}


def add_aliases(tenant: UUID, subject: SubjectState, aliases: Iterable[str], *, now: datetime) -> list[str]:
    """Let `aliases` name `subject` too; return those that name another subject already, which stay as they are."""
    ring = keyring()
    wanted = {ring.identifier(tenant, alias): (alias, new_id()) for alias in aliases}
    if not wanted:
        return []
    claims = [(digest, subject.id, payload) for digest, (_, payload) in sorted(wanted.items())]
    won = {bytes(row[0]) for row in rows.fetch(_CLAIM, _claims(tenant, claims, is_key=False, now=now))}
    rows.PAYLOADS.insert(
        tenant,
        [
            _name_payload(tenant, wanted[d][1], "alias", wanted[d][0], subject.data_key, subject.key_id, now)
            for d in won
        ],
    )
    lost = [alias for digest, (alias, _) in wanted.items() if digest not in won]
    held = known(tenant, lost)
    return [alias for alias in lost if held[alias].id != subject.id]


def _name_payload(
    tenant: UUID, payload: UUID, purpose: str, name: str, key: bytes, key_id: UUID, now: datetime
) -> PayloadRow:
    sealed = keyring().seal(key, name.encode("utf-8"), payload_context(tenant, payload, purpose))
    return PayloadRow(
        id=payload,
        purpose=purpose,
        key_id=key_id,
        clear=None,
        sealed=sealed,
        sensitivity=_NAME_CLASS,
        basis="indefinite",
        expires_at=None,
        consent_ids=None,
        written_at=now,
    )
