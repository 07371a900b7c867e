"""Pages of signing in by an identity provider, and of showing there once more who one is.

Nobody is signed in by what they were sent: each answer fits one request that this very session began, once. What is
refused is told on the page of signing in, in a line, and in the audit chain by a code. They run as `Role.FRONT`.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from uuid import UUID

from allauth.account.utils import perform_login
from django.conf import settings
from django.contrib import admin
from django.core.cache import cache
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from tenants import oidc, saml
from tenants.audit import PLATFORM, Action
from tenants.errors import Clash
from tenants.examination import Check
from tenants.identities import admit, person_of, providers_of
from tenants.providers import Kept, Oidc, Provider, Saml, SingleSignOn, Told, Why, missing_libraries
from tenants.signing import begin_with_provider, confirm, record, record_refusal
from tenants.standing import REFUSED

#: The session's key for the one request to a provider that is open.
_OPEN = "sso_open"
_SIGN_IN, _AGAIN = "sign_in", "again"

Page = Callable[[HttpRequest, SingleSignOn, Provider], HttpResponseBase]


def _of_a_provider(*methods: str) -> Callable[[Page], Callable[..., HttpResponseBase]]:
    """Find the provider that a path names; there is no such page where none is configured."""

    def guard(page: Page) -> Callable[..., HttpResponseBase]:
        @wraps(page)
        def inside(request: HttpRequest, name: str) -> HttpResponseBase:
            known: SingleSignOn | None = settings.SINGLE_SIGN_ON
            provider = known.named(name) if known is not None else None
            if known is None or provider is None:
                raise Http404
            return page(request, known, provider)

        return require_http_methods(list(methods))(inside)

    return guard


@_of_a_provider("GET")
def begin(request: HttpRequest, known: SingleSignOn, provider: Provider) -> HttpResponseBase:
    """Send somebody who has not signed in to the provider."""
    if admin.site.has_permission(request):
        return HttpResponseRedirect(_next(request))
    return _sent_there(request, known, provider, _SIGN_IN)


@_of_a_provider("GET")
def begin_again(request: HttpRequest, known: SingleSignOn, provider: Provider) -> HttpResponseBase:
    """Send somebody who signed in to the provider, to show there anew who they are."""
    if not request.user.is_authenticated:
        return HttpResponseRedirect(reverse("admin:login"))
    if provider.name not in providers_of(request.user.id):
        raise Http404
    return _sent_there(request, known, provider, _AGAIN)


def again(request: HttpRequest) -> HttpResponseBase:
    """Name the providers by which somebody shows that it is them, who has neither a password nor a second factor."""
    known: SingleSignOn | None = settings.SINGLE_SIGN_ON
    if known is None:
        raise Http404
    if not request.user.is_authenticated:
        return HttpResponseRedirect(reverse("admin:login"))
    theirs = providers_of(request.user.id)
    context = {
        **admin.site.each_context(request),
        "title": _("Show that it is you"),
        "providers": [each for each in known.providers if each.name in theirs],
        "next": _next(request),
        "refused": request.session.pop(REFUSED, ""),
    }
    return TemplateResponse(request, "sso/again.html", context)


def _sent_there(request: HttpRequest, known: SingleSignOn, provider: Provider, purpose: str) -> HttpResponseBase:
    # Another site's page or frame does not begin it.
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return _told_why(request, provider, purpose, Why.UNSOLICITED)
    fresh, now = purpose == _AGAIN, datetime.now(UTC)
    try:
        if isinstance(provider, Oidc):
            where, asked = oidc.begin(provider, _back(known, provider), fresh=fresh, now=now)
            kept: dict[str, Any] = asdict(asked)
        else:
            where, requested = saml.begin(provider, _ours(known, provider), fresh=fresh, now=now)
            kept = asdict(requested)
    except Kept as refusal:
        return _told_why(request, provider, purpose, refusal.why)
    request.session[_OPEN] = {
        **kept,
        "began": now.timestamp(),
        "provider": provider.name,
        "purpose": purpose,
        "next": _next(request),
        "user": str(request.user.pk) if purpose == _AGAIN else "",
    }
    return HttpResponseRedirect(where)


@csrf_exempt  # from the provider's page; changes nothing where it is a POST
@_of_a_provider("GET", "POST")
def back(request: HttpRequest, known: SingleSignOn, provider: Provider) -> HttpResponseBase:
    """Take a provider's answer.

    A SAML response is posted from another site, without our cookies: our own page posts it once more, with them.
    """
    if isinstance(provider, Saml):
        if request.method != "POST":
            raise Http404
        context = {
            **admin.site.each_context(request),
            "title": _("Sign in"),
            "provider": provider,
            "response": request.POST.get("SAMLResponse", "")[: saml.LARGEST + 1],
            "state": request.POST.get("RelayState", "")[:200],
        }
        return TemplateResponse(request, "sso/continue.html", context)
    if request.method != "GET":
        raise Http404
    answered = {name: request.GET[name] for name in request.GET if len(request.GET.getlist(name)) == 1}

    def proved(kept: dict[str, Any], now: datetime) -> Told:
        asked = oidc.Asked(kept["state"], kept["nonce"], kept["verifier"], _began(kept), kept["fresh"])
        return oidc.finish(provider, asked, answered, _back(known, provider), now=now)

    return _finished(request, provider, proved)


@csrf_exempt  # what stands for the token is the request of this session that a signed assertion answers
@_of_a_provider("POST")
def finish(request: HttpRequest, known: SingleSignOn, provider: Provider) -> HttpResponseBase:
    """Take a SAML response from our own page, with the session that asked for it."""
    if not isinstance(provider, Saml):
        raise Http404

    def proved(kept: dict[str, Any], now: datetime) -> Told:
        asked = saml.Asked(kept["state"], kept["request"], _began(kept), kept["fresh"])
        response, state = request.POST.get("SAMLResponse", ""), request.POST.get("RelayState", "")
        told, number = saml.finish(provider, _ours(known, provider), asked, state, response, now=now)
        # It answers this session's request, which is spent: this is a second lock on the same door.
        if not cache.add(f"sso-{provider.name}-{number}", "used", timeout=24 * 3600):
            raise Kept(Why.REPLAYED)
        return told

    return _finished(request, provider, proved)


@_of_a_provider("GET")
def metadata(request: HttpRequest, known: SingleSignOn, provider: Provider) -> HttpResponseBase:
    """Say who we are to a SAML provider's admin."""
    if not isinstance(provider, Saml):
        raise Http404
    return HttpResponse(saml.metadata_of_ours(_ours(known, provider)), content_type="application/samlmetadata+xml")


def _finished(
    request: HttpRequest, provider: Provider, proved: Callable[[dict[str, Any], datetime], Told]
) -> HttpResponseBase:
    now = datetime.now(UTC)
    # Spent by being looked at: an answer fits once, whether it was good or not.
    kept = request.session.pop(_OPEN, None)
    purpose = kept["purpose"] if kept else _AGAIN if request.user.is_authenticated else _SIGN_IN
    try:
        if kept is None or kept["provider"] != provider.name:
            raise Kept(Why.UNSOLICITED)
        if purpose == _AGAIN:
            return _shown_again(request, provider, kept, proved(kept, now), now)
        if request.user.is_authenticated:
            # Signed in by another window meanwhile: nobody becomes somebody else without signing out.
            return HttpResponseRedirect(reverse("admin:index"))
        return _signed_in(request, provider, kept, proved(kept, now), now)
    except Kept as refusal:
        return _told_why(request, provider, purpose, refusal.why, refusal.person)


def _signed_in(
    request: HttpRequest, provider: Provider, kept: dict[str, Any], told: Told, now: datetime
) -> HttpResponseBase:
    try:
        person = admit(provider, told, now=now)
    except Clash:
        # The same answer, in two windows at once: one of them is in.
        raise Kept(Why.REPLAYED) from None
    begin_with_provider(request.session, provider.kind, provider.name, person.id, told)
    answer: HttpResponse = perform_login(
        request, person, email_verification="none", redirect_url=_safe(kept.get("next"))
    )
    return answer


def _shown_again(
    request: HttpRequest, provider: Provider, kept: dict[str, Any], told: Told, now: datetime
) -> HttpResponseBase:
    person = request.user.pk
    # Whoever signs in there may be somebody else, and whoever sits here too by now.
    if person is None or kept["user"] != str(person) or person_of(provider, told) != person:
        raise Kept(Why.OTHER_PERSON)
    confirm(request.session, now)
    record(Action.CONFIRMED_AGAIN, person, reason=provider.kind)
    return HttpResponseRedirect(_safe(kept.get("next")))


def _told_why(
    request: HttpRequest, provider: Provider, purpose: str, why: Why, person: UUID | None = None
) -> HttpResponseBase:
    """Record a refusal, and lead back to where it is said. A redirect: an answer of 400 would take the record back."""
    here = request.user.pk if request.user.is_authenticated else PLATFORM
    record_refusal(provider.kind, why, datetime.now(UTC), person or here)
    request.session[REFUSED] = _words(why, provider)
    return HttpResponseRedirect(reverse("sso_again" if purpose == _AGAIN else "admin:login"))


def _words(why: Why, provider: Provider) -> str:
    named = {"provider": provider.title}
    if why in (Why.UNKNOWN_PERSON, Why.PERSON_ENDED):
        # The same words: whoever tries learns nothing of who there is. The audit chain tells them apart.
        return _("%(provider)s knows you, and nobody here gave you a role. Ask a tenant admin.") % named
    if why is Why.OTHER_PERSON:
        return _("At %(provider)s you are somebody else. Sign in there as yourself.") % named
    if why is Why.NO_ANSWER:
        return _("%(provider)s does not answer as it should. Try again later.") % named
    if why is Why.PROVIDER_REFUSED:
        return _("%(provider)s did not sign you in.") % named
    if why is Why.NOT_FRESH:
        return _("%(provider)s did not ask you anew who you are. Sign out there, and try again.") % named
    return _("That sign-in by %(provider)s cannot be used. Begin again.") % named


def _next(request: HttpRequest) -> str:
    return _safe(request.GET.get("next"))


def _safe(where: object) -> str:
    """Return a path of ours; the first page for whatever leads elsewhere."""
    if isinstance(where, str) and where.startswith("/admin/") and url_has_allowed_host_and_scheme(where, None):
        return where
    return reverse("admin:index")


def _began(kept: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(kept["began"], UTC)


def _back(known: SingleSignOn, provider: Provider) -> str:
    return known.at(reverse("sso_back", args=[provider.name]))


def _ours(known: SingleSignOn, provider: Provider) -> saml.Ours:
    return saml.Ours(known.at(reverse("sso_metadata", args=[provider.name])), _back(known, provider))


def checks() -> Iterator[Check]:
    """Yield what doctor says of providers: whether there are any, what speaks to them is installed, and they answer."""
    known: SingleSignOn | None = settings.SINGLE_SIGN_ON
    if known is None:
        yield Check(
            "single sign-on", None, "no provider", "see Signing in by a provider in docs/runbook.md, if one is to"
        )
        return
    missing = missing_libraries(known)
    if missing:
        yield Check("single sign-on", False, "its libraries are not installed", missing)
        return
    for provider in known.providers:
        try:
            said = oidc.discovered(provider) if isinstance(provider, Oidc) else saml.described_by(provider)
        except Kept as refusal:
            yield Check(
                "single sign-on",
                False,
                f"{provider.name}: {refusal.why.value}",
                "see MUNIMENT_SSO_FILE and the provider",
            )
        else:
            yield Check("single sign-on", bool(said), f"{provider.name} answers", "")


def sign_out_link(name: object) -> dict[str, str] | None:
    """Return where whoever signed in by a provider ends their session there too, where it has such a page."""
    known: SingleSignOn | None = settings.SINGLE_SIGN_ON
    provider = known.named(name) if known is not None and isinstance(name, str) else None
    if known is None or not isinstance(provider, Oidc):
        return None
    try:
        where = oidc.sign_out_address(provider, known.at(reverse("admin:login")))
    except Kept:
        return None
    return {"title": provider.title, "where": where} if where else None


#: Under `/admin/`.
urlpatterns = [
    path("login/with/<str:name>/", begin, name="sso_begin"),
    path("login/with/<str:name>/back/", back, name="sso_back"),
    path("login/with/<str:name>/finish/", finish, name="sso_finish"),
    path("login/with/<str:name>/metadata/", metadata, name="sso_metadata"),
    path("again/with/", require_http_methods(["GET"])(again), name="sso_again"),
    path("again/with/<str:name>/", begin_again, name="sso_again_begin"),
]
