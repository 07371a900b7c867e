"""What stands in the admin's side bar: pages by what people do there, those alone that the reader may see."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from tenants.actors import MemberRole

_SECTIONS: tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...] = (
    (
        gettext_noop("Decide"),
        (
            ("memory.candidate", gettext_noop("Candidates"), "rule"),
            ("policies.decisionrequest", gettext_noop("Approvals"), "how_to_reg"),
            ("policies.delegation", gettext_noop("Delegations"), "swap_horiz"),
            ("retention.redactionrequest", gettext_noop("Redactions"), "ink_eraser"),
            ("retention.subjectrequest", gettext_noop("Subjects' requests"), "contact_mail"),
            ("retention.lifetimechange", gettext_noop("Lifetimes"), "hourglass_bottom"),
            ("retention.erasure", gettext_noop("Erasures"), "person_remove"),
        ),
    ),
    (
        gettext_noop("Keep"),
        (
            ("retention.matter", gettext_noop("Matters"), "gavel"),
            ("retention.hold", gettext_noop("Holds"), "lock"),
            ("retention.refusedending", gettext_noop("Refused endings"), "block"),
            ("retention.restriction", gettext_noop("Restrictions"), "visibility_off"),
            ("memory.suppression", gettext_noop("Suppressions"), "filter_alt_off"),
            ("retention.notice", gettext_noop("Notices"), "campaign"),
        ),
    ),
    (
        gettext_noop("Memory"),
        (
            ("memory.subject", gettext_noop("Subjects"), "person"),
            ("memory.fact", gettext_noop("Facts"), "check_circle"),
            ("memory.evidence", gettext_noop("Evidence"), "format_quote"),
            ("memory.belief", gettext_noop("Beliefs"), "history"),
            ("memory.factkey", gettext_noop("Keys of facts"), "key"),
            ("memory.episode", gettext_noop("Episodes"), "chat"),
        ),
    ),
    (
        gettext_noop("Rules"),
        (
            ("policies.attribute", gettext_noop("Attributes"), "category"),
            ("policies.attributeversion", gettext_noop("Versions of attributes"), "layers"),
            ("policies.policy", gettext_noop("Policies"), "policy"),
            ("policies.policyversion", gettext_noop("Versions of policies"), "layers"),
            ("memory.procedure", gettext_noop("Procedures"), "checklist"),
            ("memory.procedureversion", gettext_noop("Versions of procedures"), "layers"),
            ("policies.consent", gettext_noop("Consents"), "handshake"),
        ),
    ),
    (
        gettext_noop("Record"),
        (
            ("retention.run", gettext_noop("Runs"), "autorenew"),
            ("retention.certificate", gettext_noop("Certificates"), "verified"),
            ("memory.receipt", gettext_noop("Receipts"), "receipt_long"),
            ("memory.outboxentry", gettext_noop("Outbox"), "outbox"),
            ("tenants.auditevent", gettext_noop("Audit"), "link"),
        ),
    ),
    (
        gettext_noop("Organisation"),
        (
            ("tenants.tenant", gettext_noop("Tenants"), "domain"),
            ("tenants.membership", gettext_noop("Members"), "group"),
            ("tenants.agent", gettext_noop("Agents"), "smart_toy"),
            ("tenants.agentkey", gettext_noop("Agents' keys"), "vpn_key"),
            ("tenants.user", gettext_noop("Users"), "badge"),
        ),
    ),
)


#: Whoever decides about memory has a queue at the desk.
_AT_THE_DESK = (MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER, MemberRole.APPROVER)


def sections(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sections of the side bar for the reader of a page."""
    pages = {model._meta.label_lower: found for model, found in admin.site._registry.items()}
    overview = {"title": _("Overview"), "icon": "home", "link": reverse("admin:index")}
    first = [overview]
    standing = getattr(request, "standing", None)
    if standing is not None and standing.tenant is not None and standing.is_one_of(*_AT_THE_DESK):
        first.append({"title": _("Review desk"), "icon": "task_alt", "link": reverse("desk")})
    found: list[dict[str, Any]] = [{"items": first}]
    for title, entries in _SECTIONS:
        items = _of_everybody(title) if standing is not None and standing.tenant is not None else []
        items += [
            {"title": _(words), "icon": icon, "link": reverse(f"admin:{label.replace('.', '_')}_changelist")}
            for label, words, icon in entries
            if label in pages and pages[label].has_view_permission(request)
        ]
        if items:
            found.append({"title": _(title), "separator": True, "items": items})
    # Here too, and not in the menu of the person alone, which opens by the mouse.
    language = {"title": _("Language"), "icon": "translate", "link": reverse("choose_language")}
    found.append({"separator": True, "items": [language]})
    return found


def _of_everybody(title: str) -> list[dict[str, Any]]:
    """Return what a section begins with that is no list of rows, for every member."""
    if title != "Rules":
        return []
    return [{"title": _("Records of processing"), "icon": "description", "link": reverse("records_of_processing")}]


def own_account(request: HttpRequest) -> list[dict[str, Any]]:
    """Return what a person may do about their own sign-in."""
    links = [
        {"title": _("Second factor"), "link": reverse("mfa_index")},
        {"title": _("Change password"), "link": reverse("admin:password_change")},
    ]
    standing = getattr(request, "standing", None)
    if standing is not None and len(standing.choices) > 1:
        links.insert(0, {"title": _("Choose another tenant"), "link": reverse("choose_tenant")})
    return links
