"""Records of processing (GDPR Art. 30), made from what is in force: attributes, purposes, recipients, lifetimes, policies.

Nothing is written for them by hand, so they say what the application does. They speak of kinds of data and of programs, and
of nobody: there is no content in them. Needs `Role.STAFF`.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.utils.translation import gettext as _

from memory import rows
from policies import wording
from policies.catalogue import catalogue
from policies.rules import PolicyDocument
from policies.vocabulary import Basis, Occasion, Sensitivity
from retention.access import safe_cell
from tenants.words import gettext_lazy, in_words


@dataclass(frozen=True, slots=True)
class Activity:
    """One kind of data: what is kept, of which class and on which basis, for how long, for which purposes, and who may read it."""

    attribute: str
    description: str
    version: int
    kind: str
    sensitivity: str
    basis: str
    legal: str
    kept: str
    afterwards: str
    purposes: tuple[str, ...]
    recipients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one organisation, as of an instant."""

    organisation: str
    made_at: datetime
    policy: str
    subjects: tuple[str, ...]
    purposes: tuple[str, ...]
    recipients: tuple[tuple[str, str, tuple[str, ...]], ...]
    model: str
    activities: tuple[Activity, ...]


#: What a basis is in the words of Art. 6(1).
_LEGAL = {
    Basis.SESSION: gettext_lazy("Art. 6(1)(b) or (f): what the session is for"),
    Basis.CONSENT: gettext_lazy("Art. 6(1)(a): consent"),
    Basis.CONTRACT: gettext_lazy("Art. 6(1)(b): contract"),
    Basis.INDEFINITE: gettext_lazy("Art. 6(1)(c) or (f): reviewed"),
}
#: What protects it (Art. 32), as far as the application sees to it.
MEASURES = (
    gettext_lazy(
        "Content from the class personal upwards is sealed under a key of its subject, wrapped by keys outside the database."
    ),
    gettext_lazy(
        "The database itself keeps organisations apart, hides what has ended, and refuses what is above a reader's clearance."
    ),
    gettext_lazy("Every act is in a chain of audit entries that nobody can change unseen; reads leave receipts."),
    gettext_lazy("People see content masked; what needs a second person is decided by another one."),
)
_SLUG = "SELECT t.slug FROM tenants_tenant t WHERE t.id = %s::uuid"
_AGENTS = """
SELECT a.name, a.clearance, a.purposes FROM tenants_agent a
WHERE a.tenant_id = %s::uuid AND a.state = 'active' ORDER BY a.name LIMIT 1000
"""
_PURPOSES = """
SELECT DISTINCT unnest(c.purposes) FROM policies_consent c WHERE c.tenant_id = %s::uuid AND c.withdrawn_at IS NULL ORDER BY 1
LIMIT 1000
"""
_KINDS = "SELECT DISTINCT s.kind FROM memory_subject s WHERE s.tenant_id = %s::uuid ORDER BY 1 LIMIT 100"


def records(tenant: UUID, *, now: datetime) -> Records:
    """Return the records of processing of a tenant. Raises `Clash("no_policy")` where no policy is in force."""
    in_force = catalogue(tenant)
    agents = rows.fetch(_AGENTS, [tenant])
    consented = [row[0] for row in rows.fetch(_PURPOSES, [tenant])]
    purposes = sorted({*consented, *(word for _, _, words in agents for word in words)})
    activities = []
    for attribute in sorted(in_force.attributes.values(), key=lambda each: each.name):
        said = attribute.definition
        readers = tuple(name for name, clearance, _ in agents if clearance >= said.sensitivity)
        serve = {word for name, clearance, words in agents if clearance >= said.sensitivity for word in words}
        activities.append(
            Activity(
                attribute=attribute.name,
                description=said.description or "",
                version=attribute.number,
                kind=said.kind.value,
                sensitivity=said.sensitivity.label,
                basis=said.basis.value,
                legal=_LEGAL[said.basis],
                kept=_kept(in_force.policy, said.basis, said.sensitivity),
                afterwards=_afterwards(in_force.policy, said.basis, said.sensitivity),
                purposes=tuple(sorted(serve & set(consented) if said.basis is Basis.CONSENT and consented else serve)),
                recipients=readers,
            )
        )
    use = in_force.policy.model
    return Records(
        organisation=rows.fetch(_SLUG, [tenant])[0][0],
        made_at=now,
        policy=in_force.policy_version,
        subjects=tuple(row[0] for row in rows.fetch(_KINDS, [tenant])),
        purposes=tuple(purposes),
        recipients=tuple((name, Sensitivity(clearance).label, tuple(words)) for name, clearance, words in agents),
        model=_("none")
        if use is None
        else _("a model may read what is said, up to the class %(level)s") % {"level": in_words(use.up_to.label)},
        activities=tuple(activities),
    )


def _kept(policy: PolicyDocument, basis: Basis, level: Sensitivity) -> str:
    if basis is Basis.INDEFINITE:
        return (
            _("no end, reviewed after %(life)s") % {"life": wording.lifetime(policy.review_after)}
            if level.encrypted
            else _("no end")
        )
    life = policy.lifetime(basis, level)
    return _("not kept") if life is None else _("at most %(life)s from the writing") % {"life": wording.lifetime(life)}


def _afterwards(policy: PolicyDocument, basis: Basis, level: Sensitivity) -> str:
    occasion = Occasion.of(basis)
    life = None if occasion is None else policy.life_after(occasion, level)
    if basis is Basis.CONSENT:
        return _("nothing once the consent is withdrawn")
    return (
        ""
        if life is None or occasion is None
        else _("at most %(life)s once the %(basis)s is over")
        % {"life": wording.lifetime(life), "basis": in_words(basis.value)}
    )


COLUMNS = (
    *(
        "attribute",
        "description",
        "version",
        "kind",
        "class",
        "basis",
        "legal ground",
        "kept",
        "afterwards",
        "purposes",
    ),
    *("recipients", "categories of subjects", "policy", "made at"),
)


def table(found: Records) -> Iterator[str]:
    """Yield the records as lines of CSV, one kind of data a line; no cell is a formula."""
    yield _line(COLUMNS)
    for each in found.activities:
        yield _line(
            (
                *(
                    each.attribute,
                    each.description,
                    str(each.version),
                    each.kind,
                    each.sensitivity,
                    each.basis,
                    each.legal,
                ),
                *(each.kept, each.afterwards, ", ".join(each.purposes), ", ".join(each.recipients)),
                *(", ".join(found.subjects), found.policy, f"{found.made_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"),
            )
        )


def _line(cells: tuple[str, ...]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerow([safe_cell(cell) for cell in cells])
    return out.getvalue()
