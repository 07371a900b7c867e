"""What stands in the admin's side bar: pages by what people do there, those alone that the reader may see."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse

from tenants.actors import MemberRole

_SECTIONS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        "Decide",
        (
            ("memory.candidate", "Candidates", "rule"),
            ("policies.decisionrequest", "Approvals", "how_to_reg"),
            ("policies.delegation", "Delegations", "swap_horiz"),
            ("retention.redactionrequest", "Redactions", "ink_eraser"),
            ("retention.subjectrequest", "Subjects' requests", "contact_mail"),
            ("retention.lifetimechange", "Lifetimes", "hourglass_bottom"),
            ("retention.erasure", "Erasures", "person_remove"),
        ),
    ),
    (
        "Keep",
        (
            ("retention.matter", "Matters", "gavel"),
            ("retention.hold", "Holds", "lock"),
            ("retention.refusedending", "Refused endings", "block"),
            ("retention.restriction", "Restrictions", "visibility_off"),
            ("memory.suppression", "Suppressions", "filter_alt_off"),
            ("retention.notice", "Notices", "campaign"),
        ),
    ),
    (
        "Memory",
        (
            ("memory.subject", "Subjects", "person"),
            ("memory.fact", "Facts", "check_circle"),
            ("memory.evidence", "Evidence", "format_quote"),
            ("memory.belief", "Beliefs", "history"),
            ("memory.factkey", "Keys of facts", "key"),
            ("memory.episode", "Episodes", "chat"),
        ),
    ),
    (
        "Rules",
        (
            ("policies.attribute", "Attributes", "category"),
            ("policies.attributeversion", "Versions of attributes", "layers"),
            ("policies.policy", "Policies", "policy"),
            ("policies.policyversion", "Versions of policies", "layers"),
            ("memory.procedure", "Procedures", "checklist"),
            ("memory.procedureversion", "Versions of procedures", "layers"),
            ("policies.consent", "Consents", "handshake"),
        ),
    ),
    (
        "Record",
        (
            ("retention.run", "Runs", "autorenew"),
            ("retention.certificate", "Certificates", "verified"),
            ("memory.receipt", "Receipts", "receipt_long"),
            ("memory.outboxentry", "Outbox", "outbox"),
            ("tenants.auditevent", "Audit", "link"),
        ),
    ),
    (
        "Organisation",
        (
            ("tenants.tenant", "Tenants", "domain"),
            ("tenants.membership", "Members", "group"),
            ("tenants.agent", "Agents", "smart_toy"),
            ("tenants.agentkey", "Agents' keys", "vpn_key"),
            ("tenants.user", "Users", "badge"),
        ),
    ),
)


#: Whoever decides about memory has a queue at the desk.
_AT_THE_DESK = (MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER, MemberRole.APPROVER)


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sections of the side bar for the reader of a page."""
    pages = {model._meta.label_lower: found for model, found in admin.site._registry.items()}
    overview = {"title": "Overview", "icon": "home", "link": reverse("admin:index")}
    first = [overview]
    standing = getattr(request, "standing", None)
    if standing is not None and standing.tenant is not None and standing.is_one_of(*_AT_THE_DESK):
        first.append({"title": "Review desk", "icon": "task_alt", "link": reverse("desk")})
    found: list[dict[str, Any]] = [{"items": first}]
    for title, entries in _SECTIONS:
        items = _of_everybody(title) if standing is not None and standing.tenant is not None else []
        items += [
            {"title": words, "icon": icon, "link": reverse(f"admin:{label.replace('.', '_')}_changelist")}
            for label, words, icon in entries
            if label in pages and pages[label].has_view_permission(request)
        ]
        if items:
            found.append({"title": title, "separator": True, "items": items})
    return found


def _of_everybody(title: str) -> list[dict[str, Any]]:
    """Return what a section begins with that is no list of rows, for every member."""
    if title != "Rules":
        return []
    return [{"title": "Records of processing", "icon": "description", "link": reverse("records_of_processing")}]


def own_account(request: HttpRequest) -> list[dict[str, Any]]:
    """Return what a person may do about their own sign-in."""
    links = [
        {"title": "Second factor", "link": reverse("mfa_index")},
        {"title": "Change password", "link": reverse("admin:password_change")},
    ]
    standing = getattr(request, "standing", None)
    if standing is not None and len(standing.choices) > 1:
        links.insert(0, {"title": "Choose another tenant", "link": reverse("choose_tenant")})
    return links
