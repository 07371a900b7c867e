"""Attributes, policies and consents, to look at. What changes them are doors and commands, not forms."""

import json
from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.utils.html import format_html

from policies.models import Attribute, AttributeVersion, Consent, Policy, PolicyVersion
from tenants.actors import MemberRole
from tenants.admin import HistoryAdmin, MetadataAdmin, instant, link_to, one_of, words

_STATES = words("draft", "active", "retired")


def _as_text(document: Any) -> str:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return format_html('<pre class="document" tabindex="0" dir="auto">{}</pre>', text)


@admin.register(Attribute)
class AttributeAdmin(HistoryAdmin, MetadataAdmin):
    """What may be known of a subject, by name."""

    seen_by = frozenset(MemberRole)
    list_display = ("name", "cardinality", instant("created_at"))
    list_filter = (one_of("cardinality", words("single", "multi")),)
    fields = ("id", "name", "cardinality", instant("created_at"), "versions")

    @admin.display(description="versions")
    def versions(self, attribute: Attribute) -> str:
        return _versions(AttributeVersion.objects.filter(attribute_id=attribute.id), "policies_attributeversion")


@admin.register(AttributeVersion)
class AttributeVersionAdmin(MetadataAdmin):
    """The rules of an attribute, as published."""

    list_display = ("__str__", "attribute_name", "number", "state", instant("created_at"))
    list_filter = (one_of("state", _STATES),)
    list_select_related = ("attribute",)
    fields: Sequence[Any] = (
        *("id", link_to("policies_attribute", "attribute_id"), "number", "state", instant("created_at")),
        "definition_text",
    )

    @admin.display(description="attribute")
    def attribute_name(self, version: AttributeVersion) -> str:
        name: str = version.attribute.name
        return name

    @admin.display(description="definition")
    def definition_text(self, version: AttributeVersion) -> str:
        return _as_text(version.definition)


@admin.register(Policy)
class PolicyAdmin(HistoryAdmin, MetadataAdmin):
    """A tenant's write policies."""

    seen_by = frozenset(MemberRole)
    list_display = ("name", instant("created_at"))
    fields = ("id", "name", instant("created_at"), "versions")

    @admin.display(description="versions")
    def versions(self, policy: Policy) -> str:
        return _versions(PolicyVersion.objects.filter(policy_id=policy.id), "policies_policyversion")


@admin.register(PolicyVersion)
class PolicyVersionAdmin(MetadataAdmin):
    """The rules of a policy, as published."""

    list_display = ("__str__", "policy_name", "number", "state", instant("created_at"))
    list_filter = (one_of("state", _STATES),)
    list_select_related = ("policy",)
    fields: Sequence[Any] = (
        *("id", link_to("policies_policy", "policy_id"), "number", "state", instant("created_at"), "rules_text"),
    )

    @admin.display(description="policy")
    def policy_name(self, version: PolicyVersion) -> str:
        name: str = version.policy.name
        return name

    @admin.display(description="rules")
    def rules_text(self, version: PolicyVersion) -> str:
        return _as_text(version.rules)


@admin.register(Consent)
class ConsentAdmin(MetadataAdmin):
    """Subjects' consents, by the organisation's own reference."""

    list_display = ("__str__", "ref", link_to("memory_subject", "subject_id"), "standing", instant("granted_at"))
    fields: Sequence[Any] = (
        *("id", "ref", link_to("memory_subject", "subject_id"), "purposes", "standing"),
        *(instant("granted_at"), instant("withdrawn_at"), instant("created_at")),
    )

    @admin.display(description="standing")
    def standing(self, consent: Consent) -> str:
        return "stands" if consent.withdrawn_at is None else "withdrawn"


def _versions(found: Any, model: str) -> str:
    shown = link_to(model, "id")
    newest = list(found.order_by("-number").only("id", "number", "state", "created_at")[:50])
    rows = [format_html("<li>version {} · {} · {}</li>", row.number, row.state, shown(row)) for row in newest]
    return format_html("<ul>{}</ul>", format_html("{}" * len(rows), *rows))
