"""Runs and certificates, as members see them: how far an ending has come, and the file that proves it."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _

from retention import certificates
from retention.models import Certificate, Run
from tenants.admin import MetadataAdmin, instant, link_to, one_of, standing, words
from tenants.words import gettext_lazy, in_words

_STATES = ("pending", "running", "done", "failed", "stopped")
_KINDS = ("compaction", "erasure", "redaction", "rotation", "restore", "backup", "verification")
#: What is certified that is no run.
_HANDED_OVER = "portability"
_LOOKS = {"running": "warn", "pending": "warn", "done": "ok", "failed": "bad", "stopped": "warn"}


@admin.display(description=gettext_lazy("sums"))
def sums(run: Run) -> str:
    """Return what a run has come to so far, each sum with its word."""
    return format_html_join(
        " · ", "{} {}", ((f"{count:,}", in_words(name.replace("_", " "))) for name, count in run.counts.items())
    )


@admin.display(description=gettext_lazy("certificate"))
def proof(run: Run) -> str:
    """Return a link to the proof of a run, where there is one."""
    issued = Certificate.objects.filter(tenant_id=run.tenant_id, run_id=run.id).order_by("id").first()
    if issued is None:
        return _("none")
    return format_html(
        '<a href="{}">{}</a>', reverse("admin:retention_certificate_change", args=[issued.id]), str(issued)
    )


@admin.register(Run)
class RunAdmin(MetadataAdmin):
    """Work that ends memory, or proves that it ended, with its progress."""

    list_display = (
        "__str__",
        "kind",
        "shown_state",
        "step",
        sums,
        "refused_by_hold",
        instant("started_at"),
        instant("finished_at"),
    )
    list_filter = (one_of("kind", words(*_KINDS)), one_of("state", words(*_STATES)))
    fields = (
        *(
            "id",
            "kind",
            "shown_state",
            "code",
            "step",
            sums,
            "refused_by_hold",
            "target_kind",
            "target_id",
            "requested_by",
        ),
        *(instant("started_at"), instant("advanced_at"), instant("finished_at"), proof),
    )

    @admin.display(description=gettext_lazy("state"))
    def shown_state(self, run: Run) -> str:
        return format_html('<span class="m-state {}">{}</span>', _LOOKS[run.state], in_words(run.state))


@admin.display(description=gettext_lazy("what it says"))
def told(certificate: Certificate) -> str:
    """Return what a certificate says, line by line."""
    body = certificate.document.get("body", {})
    return format_html_join(
        "", '<div lang="en">{}: {}</div>', ((name.replace("_", " "), _plain(body[name])) for name in sorted(body))
    )


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {_plain(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return ", ".join(_plain(each) for each in value) or "none"
    return str(value).replace("_", " ")


@admin.register(Certificate)
class CertificateAdmin(MetadataAdmin):
    """Signed proof of what ended, to be kept as a file and checked by anybody who has the public key."""

    list_display = ("__str__", "kind", link_to("retention_run", "run_id"), instant("issued_at"), "chain_seq")
    list_filter = (one_of("kind", words(*_KINDS, _HANDED_OVER)),)
    fields = (
        *(
            "id",
            "kind",
            link_to("retention_run", "run_id"),
            link_to("retention_certificate", "follows_id", gettext_lazy("adds to")),
        ),
        *(instant("issued_at"), "issued_by", "chain_seq", told),
    )

    def acts(self, request: HttpRequest, row: str | None) -> Any:
        return (
            ()
            if row is None
            else ((_("Download"), reverse("admin:retention_certificate_download", args=[row]), False),)
        )

    def get_urls(self) -> list[Any]:
        download = path(
            "<path:object_id>/download/",
            self.admin_site.admin_view(self.download),
            name="retention_certificate_download",
        )
        return [download, *super().get_urls()]

    def download(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Answer with the certificate as the one file that `verify_certificate` takes."""
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        found = self.get_object(request, object_id)
        tenant = standing(request).tenant
        assert tenant is not None
        issued = certificates.find(tenant, found.id)
        name = f"certificate-{issued.kind}-{str(issued.id)[-8:]}.json"
        return HttpResponse(
            certificates.export(issued),
            content_type="application/json",
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )
