"""Pages by which a tenant's admins hand out access and take it away: agents, their keys, members.

Each is a form, a check that whoever sends it has shown recently who they are, one door of `tenants.registry`, and one page
afterwards. A secret is shown in the answer to the form and nowhere else: not in an address, a session, a log or a history.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from tenants.actors import Actor, MemberRole, Scope
from tenants.errors import Missing, Problem
from tenants.identities import Known, KnownBy
from tenants.identity import new_id, uuid_or_missing
from tenants.isolation import Role, assume
from tenants.models import Agent, AgentKey, Membership
from tenants.registry import (
    CLEARANCES,
    Issued,
    create_agent,
    issue_key,
    join,
    remove_member,
    revoke_key,
    rotate_key,
)
from tenants.signing import require_recent
from tenants.standing import Standing
from tenants.words import gettext_lazy, in_words, pgettext_lazy

_ENDED_BECAUSE = [
    ("no_longer_needed", gettext_lazy("no longer needed")),
    ("leaked", gettext_lazy("may have leaked")),
    ("other", pgettext_lazy("code", "other")),
]
_LEFT_BECAUSE = [
    ("left", gettext_lazy("left, or does other work")),
    ("granted_wrongly", gettext_lazy("was given by mistake")),
    ("other", pgettext_lazy("code", "other")),
]
_LIVES = [
    ("30", gettext_lazy("30 days")),
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("a year")),
    ("", gettext_lazy("until it is ended")),
]
_OVERLAPS = [
    ("0", gettext_lazy("at once")),
    ("1", gettext_lazy("after an hour")),
    ("24", gettext_lazy("after a day")),
    ("168", gettext_lazy("after a week")),
]


def _chosen(choices: Iterable[tuple[str, str]], label: str, **more: Any) -> forms.ChoiceField:
    return forms.ChoiceField(choices=list(choices), label=label, widget=UnfoldAdminSelectWidget(), **more)


def _typed(label: str, most: int, **more: Any) -> forms.CharField:
    return forms.CharField(max_length=most, label=label, widget=UnfoldAdminTextInputWidget(), **more)


class AgentForm(forms.Form):
    """A program to register."""

    name = _typed(gettext_lazy("Name"), 100)
    clearance = _chosen(
        [(str(n), pgettext_lazy("code", word)) for n, word in enumerate(CLEARANCES)],
        gettext_lazy("Clearance"),
        initial="1",
    )
    clearance.help_text = gettext_lazy("The highest class that it may read.")
    trust = forms.IntegerField(min_value=0, max_value=100, initial=50, label=gettext_lazy("Trust"))
    trust.widget = UnfoldAdminTextInputWidget(attrs={"inputmode": "numeric"})
    trust.help_text = gettext_lazy(
        "0 to 100: how much it weighs against others that say something else of the same instant."
    )
    purposes = _typed(gettext_lazy("Purposes"), 1_000, required=False)
    purposes.help_text = gettext_lazy("What it may use memory for, separated by commas: support, travel.")


class KeyForm(forms.Form):
    """A key to issue. `number` is that of the key to be: the same form, sent twice, makes one."""

    number = forms.UUIDField(widget=forms.HiddenInput())
    scopes = forms.MultipleChoiceField(
        choices=[(scope.value, scope.value) for scope in Scope],
        initial=["read", "write"],
        label=gettext_lazy("May"),
        widget=forms.CheckboxSelectMultiple(),
    )
    lives = _chosen(_LIVES, gettext_lazy("Lives for"), initial="90", required=False)


class RotationForm(forms.Form):
    """A key to put in another's place."""

    number = forms.UUIDField(widget=forms.HiddenInput())
    overlap = _chosen(_OVERLAPS, gettext_lazy("The old key ends"), initial="24")


class RevocationForm(forms.Form):
    """Why a key ends."""

    reason = _chosen(_ENDED_BECAUSE, gettext_lazy("Reason"))


class MemberForm(forms.Form):
    """Somebody to let in, in a role."""

    username = _typed(gettext_lazy("Name to sign in with"), 150)
    role = _chosen(
        [(role.value, pgettext_lazy("code", role.value.replace("_", " "))) for role in MemberRole], gettext_lazy("Role")
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = settings.SINGLE_SIGN_ON
        if known is None:
            return
        ways = [("", _("a password, which is shown once"))]
        for provider in known.providers:
            ways.append((f"{provider.name}:email", _("%(provider)s, by address") % {"provider": provider.title}))
            ways.append((f"{provider.name}:subject", _("%(provider)s, by subject id") % {"provider": provider.title}))
        self.fields["way"] = _chosen(ways, _("Somebody new signs in by"), required=False)
        self.fields["known_as"] = _typed(_("Address or subject id there"), 255, required=False)

    def known_as(self) -> Known | None:
        """Return as whom a provider knows the person, None where they sign in by a password."""
        way = self.cleaned_data.get("way", "")
        if not way:
            return None
        provider, known_by = way.split(":")
        return Known(provider, KnownBy(known_by), self.cleaned_data.get("known_as", ""))


class RemovalForm(forms.Form):
    """Why somebody's role ends."""

    reason = _chosen(_LEFT_BECAUSE, gettext_lazy("Reason"))


Page = Callable[..., HttpResponseBase]


def _of_admins(page: Page) -> Page:
    """Let in a tenant's admins who have shown recently who they are, inside a tenant only."""

    @wraps(page)
    def inside(request: HttpRequest, **ids: str) -> HttpResponseBase:
        standing: Standing = request.standing  # type: ignore[attr-defined]
        if standing.tenant is None or not standing.is_one_of(MemberRole.TENANT_ADMIN):
            raise PermissionDenied
        require_recent(request.session, _now())
        return page(request, standing, **ids)

    guarded: Page = staff_member_required(require_http_methods(["GET", "HEAD", "POST"])(inside))
    return guarded


_WORDS = {
    "name_taken": gettext_lazy("There is an agent of that name already."),
    "key_revoked": gettext_lazy("That key was ended already."),
    "key_expired": gettext_lazy("That key has expired: issue a new one instead."),
    "key_issued_already": gettext_lazy(
        "This form was sent already. A key is shown once: if nobody kept it, end it and issue another."
    ),
    "user_exists": gettext_lazy("Somebody of that name signs in already, in their own way: leave that as it is."),
    "identity_taken": gettext_lazy("The provider's address or subject id stands for somebody already."),
    "identity_refused": gettext_lazy("An address, or a subject id, as the provider has it."),
    "role_taken": gettext_lazy("That person has that role already."),
    "member_refused": gettext_lazy("That is no name to sign in with: letters, digits and @.+-_ only."),
    "agent_refused": gettext_lazy("A field is out of its bounds."),
    "own_role": gettext_lazy("Nobody gives a role to themselves, or takes one of their own away."),
    "last_admin": gettext_lazy("A tenant keeps at least one tenant admin."),
}


def _asked(request: HttpRequest, form: forms.Form, status: int = 200, **words: Any) -> HttpResponse:
    context = {**admin.site.each_context(request), **words, "form": form}
    return TemplateResponse(request, "admin/tenants/act.html", context, status=status)


def _refused(request: HttpRequest, form: forms.Form, problem: Problem, **words: Any) -> HttpResponse:
    return _asked(request, form, problem.status, problem=_WORDS.get(problem.code, problem.code), **words)


def _shown(request: HttpRequest, secret: str, **words: Any) -> HttpResponse:
    context = {**admin.site.each_context(request), **words, "secret": secret}
    return TemplateResponse(request, "admin/tenants/shown_once.html", context)


def _found(model: type[Any], number: str) -> Any:
    try:
        found = model.objects.filter(id=uuid_or_missing(number)).first()
    except Missing:
        raise Http404 from None
    if found is None:
        raise Http404
    return found


def _now() -> datetime:
    return datetime.now(UTC)


@_of_admins
def register_agent(request: HttpRequest, standing: Standing) -> HttpResponse:
    """Register a program; its key is issued on the next page."""
    assert standing.tenant is not None
    words = {
        "title": _("Register an agent"),
        "lead": _("A program that may read or write this tenant's memory, once it has a key."),
        "act": _("Register"),
        "back": reverse("admin:tenants_agent_changelist"),
    }
    form = AgentForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return _asked(request, form, 400 if form.is_bound else 200, **words)
    given = form.cleaned_data
    try:
        agent = create_agent(
            standing.tenant,
            given["name"],
            clearance=int(given["clearance"]),
            trust=given["trust"],
            purposes=[each.strip() for each in given["purposes"].split(",") if each.strip()],
            by=standing.actor,
            now=_now(),
        )
    except Problem as problem:
        return _refused(request, form, problem, **words)
    messages.success(request, _("%(agent)s is registered. It needs a key.") % {"agent": agent})
    return HttpResponseRedirect(reverse("issue_key", kwargs={"agent": agent.id}))


@_of_admins
def issue(request: HttpRequest, standing: Standing, agent: str) -> HttpResponse:
    """Issue a further key of an agent, and show it this once."""
    found: Agent = _found(Agent, agent)
    back = reverse("admin:tenants_agent_change", args=[found.id])
    words = {
        "title": _("Issue a key for %(found)s") % {"found": found.name},
        "lead": _("The key is shown once, on the next page. Only its digest is kept."),
        "act": _("Issue the key"),
        "back": back,
    }
    form = KeyForm(request.POST or None, initial={"number": new_id()})
    if request.method != "POST" or not form.is_valid():
        return _asked(request, form, 400 if form.is_bound else 200, **words)
    given, now = form.cleaned_data, _now()
    lives = given["lives"]
    try:
        issued = issue_key(
            found,
            scopes=[Scope(each) for each in given["scopes"]],
            expires_at=now + timedelta(days=int(lives)) if lives else None,
            by=standing.actor,
            now=now,
            number=given["number"],
        )
    except Problem as problem:
        return _refused(request, form, problem, **words)
    return _shown_key(request, issued, title=_("Key for %(found)s") % {"found": found.name}, back=back)


@_of_admins
def rotate(request: HttpRequest, standing: Standing, key: str) -> HttpResponse:
    """Issue a key like this one, and let this one end after an overlap."""
    found: AgentKey = _found(AgentKey, key)
    back = reverse("admin:tenants_agentkey_change", args=[found.id])
    words = {
        "title": _("Rotate key %(prefix)s") % {"prefix": found.prefix},
        "lead": _("A new key with the same scopes and lifetime is shown once. Both work until the old one ends."),
        "act": _("Rotate"),
        "back": back,
    }
    form = RotationForm(request.POST or None, initial={"number": new_id()})
    if request.method != "POST" or not form.is_valid():
        return _asked(request, form, 400 if form.is_bound else 200, **words)
    given = form.cleaned_data
    try:
        issued = rotate_key(
            found,
            overlap=timedelta(hours=int(given["overlap"])),
            by=standing.actor,
            now=_now(),
            number=given["number"],
        )
    except Problem as problem:
        return _refused(request, form, problem, **words)
    return _shown_key(request, issued, title=_("Key in place of %(prefix)s") % {"prefix": found.prefix}, back=back)


def _shown_key(request: HttpRequest, issued: Issued, *, title: str, back: str) -> HttpResponse:
    until = issued.key.expires_at
    return _shown(
        request,
        issued.text,
        title=title,
        back=back,
        what=_("What goes after Authorization: Api-Key"),
        note=_("May %(scopes)s.") % {"scopes": ", ".join(issued.key.scopes)}
        + " "
        + (
            _("It lives until it is ended.")
            if until is None
            else _("It lives until %(until)s UTC.") % {"until": format(until, "%Y-%m-%d %H:%M")}
        ),
    )


@_of_admins
def revoke(request: HttpRequest, standing: Standing, key: str) -> HttpResponse:
    """End a key at once, with a reason."""
    found: AgentKey = _found(AgentKey, key)
    back = reverse("admin:tenants_agentkey_change", args=[found.id])
    words = {
        "title": _("End key %(prefix)s") % {"prefix": found.prefix},
        "lead": _("From then on every request with it is refused. This cannot be undone."),
        "act": _("End it"),
        "stop": True,
        "back": back,
    }
    form = RevocationForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return _asked(request, form, 400 if form.is_bound else 200, **words)
    revoke_key(found, by=standing.actor, now=_now(), reason=form.cleaned_data["reason"])
    messages.success(request, _("Key %(prefix)s ended.") % {"prefix": found.prefix})
    return HttpResponseRedirect(back)


@_of_admins
def invite(request: HttpRequest, standing: Standing) -> HttpResponse:
    """Give somebody a role; a new person's password is shown this once."""
    assert standing.tenant is not None
    back = reverse("admin:tenants_membership_changelist")
    words = {
        "title": _("Add a member"),
        "lead": _("Somebody new gets a password, which is shown once. Somebody who signs in already keeps theirs."),
        "act": _("Add"),
        "back": back,
    }
    form = MemberForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return _asked(request, form, 400 if form.is_bound else 200, **words)
    given = form.cleaned_data
    try:
        with _at_the_front(standing) as actor:
            joined, password = join(
                standing.tenant,
                given["username"],
                MemberRole(given["role"]),
                by=actor,
                now=_now(),
                known_as=form.known_as(),
            )
    except Problem as problem:
        return _refused(request, form, problem, **words)
    if password is None:
        messages.success(request, _("%(membership)s was added.") % {"membership": joined.membership})
        return HttpResponseRedirect(back)
    return _shown(
        request,
        password,
        title=_("A new member"),
        back=back,
        what=_("Password of %(given)s") % {"given": given["username"]},
        note=_("Hand it over by a way of your own. They change it after signing in, and set up their second factor."),
    )


@_of_admins
def remove(request: HttpRequest, standing: Standing, membership: str) -> HttpResponse:
    """End somebody's role, with a reason."""
    found: Membership = _found(Membership, membership)
    back = reverse("admin:tenants_membership_changelist")
    words = {
        "title": _("End the role %(role)s of %(username)s")
        % {"role": in_words(found.role.replace("_", " ")), "username": found.user.username},
        "lead": _("They see nothing more of this tenant by this role, from their next page on."),
        "act": _("End it"),
        "stop": True,
        "back": back,
    }
    form = RemovalForm(request.POST or None)
    if request.method != "POST" or not form.is_valid():
        return _asked(request, form, 400 if form.is_bound else 200, **words)
    try:
        with _at_the_front(standing) as actor:
            remove_member(found, by=actor, now=_now(), reason=form.cleaned_data["reason"])
    except Problem as problem:
        return _refused(request, form, problem, **words)
    messages.success(request, _("%(found)s ended.") % {"found": found})
    return HttpResponseRedirect(back)


class _at_the_front:
    """Take the role that makes users and memberships for one act, and the page's role again after it, refused or not."""

    def __init__(self, standing: Standing) -> None:
        self.standing = standing

    def __enter__(self) -> Actor:
        assume(Role.FRONT, tenant=self.standing.tenant, actor=self.standing.person)
        return self.standing.actor

    def __exit__(self, *error: object) -> None:
        assume(Role.STAFF, tenant=self.standing.tenant, clearance=3, actor=self.standing.person)


def urls() -> list[Any]:
    """Return where these pages stand, under `/admin/tenants/`."""
    return [
        path("agent/register/", register_agent, name="register_agent"),
        path("agent/<str:agent>/key/", issue, name="issue_key"),
        path("agentkey/<str:key>/rotate/", rotate, name="rotate_key"),
        path("agentkey/<str:key>/revoke/", revoke, name="revoke_key"),
        path("membership/invite/", invite, name="add_member"),
        path("membership/<str:membership>/remove/", remove, name="remove_member"),
    ]
