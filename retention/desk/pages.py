"""The desk's pages: translate, call a queue, claims or reveals, translate back. They run nothing but files of ours.

One page a queue; what changes in it comes as pieces of HTML in JSON, so that nothing reloads between items. What is
masked is in none of them before its claim or its reveal has been written down.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any
from uuid import UUID

from csp.constants import NONE, SELF
from csp.decorators import csp_replace
from django.conf import settings
from django.contrib.admin.views.decorators import staff_member_required
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from memory.models import Candidate, Episode, Fact, Subject
from policies import approvals
from policies.vocabulary import Sensitivity
from retention import redaction
from retention.desk import bulk, claims, pending, redacting, reveals
from retention.desk.queues import COUNTED, PAGE, Choice, Item, Place, Queue, Row, as_writer, due_in
from retention.desk.tabs import DELEGATED, QUEUES
from retention.models import RedactionRequest
from tenants.actors import MemberRole
from tenants.admin import standing
from tenants.audit import Action, Event, append
from tenants.errors import Clash, FieldError, Forbidden, Malformed, Missing, Problem, Refused
from tenants.identity import new_id, uuid_or_missing
from tenants.signing import confirmed_recently, require_recent
from tenants.standing import Standing
from tenants.words import gettext_lazy, in_words

#: What the desk's pages may load and run: files of ours, no more.
POLICY = {
    "default-src": [NONE],
    "script-src": [SELF],
    "style-src": [SELF],
    "img-src": [SELF],
    "font-src": [SELF],
    "connect-src": [SELF],
    "form-action": [SELF],
    "base-uri": [NONE],
    "object-src": [NONE],
    "frame-ancestors": [NONE],
}

View = Callable[..., HttpResponse]


class _At:
    """Who is at the desk, as what, and when."""

    def __init__(self, request: HttpRequest) -> None:
        self.standing: Standing = standing(request)
        self.roles = tuple(sorted(self.standing.roles))
        self.now = datetime.now(UTC)
        if self.standing.tenant is None:
            raise PermissionDenied
        handed = approvals.roles_of(self.standing.actor, now=self.now)
        self.queues = [
            queue
            for queue in QUEUES.values()
            if self.standing.is_one_of(*queue.roles) or (queue.name in DELEGATED and handed & queue.roles)
        ]
        if not self.queues:
            raise PermissionDenied
        self.tenant = self.standing.tenant
        self.actor = self.standing.actor

    def queue(self, name: str) -> Queue:
        """Return the queue of that name; Http404 for none, PermissionDenied for one that others work."""
        if name not in QUEUES:
            raise Http404
        if QUEUES[name] not in self.queues:
            raise PermissionDenied
        return QUEUES[name]


def _page(*methods: str) -> Callable[[View], View]:
    """Let a view be asked by these methods, of whoever has a queue; a problem is answered as JSON in plain words."""

    def wrapped(view: View) -> View:
        @wraps(view)
        def inner(request: HttpRequest, **named: str) -> HttpResponse:
            at = _At(request)
            if request.method not in methods:
                return HttpResponseNotAllowed(methods)
            try:
                return view(request, at, **named)
            except Problem as problem:
                return JsonResponse(_told(problem), status=problem.status)

        guarded: Any = staff_member_required(csp_replace(POLICY)(inner))
        return guarded  # type: ignore[no-any-return]

    return wrapped


#: What is told of a problem; a code that is not named here is told as it is.
_WORDS = {
    "claim_lapsed": gettext_lazy("Your claim has run out, or a colleague has taken it. Claim it again to go on."),
    "claimed_by_another": gettext_lazy("A colleague is deciding this one."),
    "changed_since": gettext_lazy("It changed since you looked. Look again before you decide."),
    "already_decided": gettext_lazy("It was decided already."),
    "attribute_retired": gettext_lazy(
        "The attribute has no version in force any more: nothing can be confirmed under it."
    ),
    "consent_withdrawn": gettext_lazy("The consent was withdrawn since: it cannot be confirmed."),
    "attribute_not_defined": gettext_lazy(
        "Nobody has put an attribute of that name in force yet. It can be confirmed once somebody has."
    ),
    "rejected": gettext_lazy("The policy gives content of that class no life on this basis: it can only be rejected."),
    "reveal_first": gettext_lazy("It is restricted: reveal it before you decide on it."),
    "reveal_budget_spent": gettext_lazy("Your reveals for today are used up. A privacy officer can decide on it."),
    "about_yourself": gettext_lazy("It is about yourself: somebody else looks at it."),
    "show_who_you_are": gettext_lazy("Show who you are first: it is more than ten minutes since you did."),
    "not_yours_to_decide": gettext_lazy("The policy leaves this to another role."),
    "needs_second_person": gettext_lazy(
        "A class is lowered by two people: confirm it as it is, and ask for that on the fact's page."
    ),
    "matter_closed": gettext_lazy("That matter is closed: nothing can be held for it."),
    "already_required": gettext_lazy("Part of it waits for a redaction already."),
    "held": gettext_lazy("A legal hold covers part of it. It cannot be taken out."),
    "own_request": gettext_lazy("You proposed it yourself: another person decides."),
    "role_missing": gettext_lazy("That is for another role."),
    "changed_since_shown": gettext_lazy("It changed since you looked. Look again before you decide."),
    "not_found": gettext_lazy("There is nothing here by that id."),
    "malformed": gettext_lazy("That is not of the shape that is asked for."),
    "reason_missing": gettext_lazy("A decision needs a reason that goes with it."),
    "value_missing": gettext_lazy("Give the value that is to be confirmed."),
    "credential": gettext_lazy("That is a credential. It is not kept, and nobody may confirm it."),
    "nothing_to_edit": gettext_lazy("There is no value to edit."),
    "undo_over": gettext_lazy("It has been carried out already: it cannot be taken back here any more."),
    "nothing_marked": gettext_lazy("Mark the words that are to go first."),
    "look_first": gettext_lazy("Look at what follows first."),
    "already_redacted": gettext_lazy("Nothing of it is left to take out."),
    "nothing_to_redact": gettext_lazy("It holds no content."),
    "request_refused": gettext_lazy(
        "That is not complete: a reason, and a case reference of letters, digits and . _ / -."
    ),
}
_PLACES = {
    "case": gettext_lazy("the case reference"),
    "reason": gettext_lazy("the reason"),
    "value": gettext_lazy("the value"),
    "matter": gettext_lazy("the matter"),
    "level": gettext_lazy("the class"),
    "scope": gettext_lazy("what is taken out"),
    "marked": gettext_lazy("the marked words"),
    "strategy": gettext_lazy("what stays in their place"),
    "shown": gettext_lazy("what follows"),
}


def _told(problem: Problem) -> dict[str, Any]:
    words = _WORDS.get(problem.code)
    if words is None:
        words = _("Nothing was changed: %(code)s.") % {"code": in_words(problem.code.replace("_", " "))}
    wrong = [f"{_PLACES.get(each.path, each.path)}: {in_words(each.code.replace('_', ' '))}" for each in problem.errors]
    return {"code": problem.code, "problem": words, "errors": wrong}


# the page -------------------------------------------------------------------------------------------------------------


@_page("GET", "HEAD")
def first(request: HttpRequest, at: _At) -> HttpResponse:
    """Lead to the first queue of the reader."""
    return HttpResponseRedirect(reverse("desk_queue", args=[at.queues[0].name]))


@_page("GET", "HEAD")
def desk(request: HttpRequest, at: _At, queue: str) -> HttpResponse:
    """Show a queue: tabs, rows, and room for an item. No content, and nothing is claimed by looking."""
    found = at.queue(queue)
    return render(
        request,
        "desk/desk.html",
        {
            "queue": found,
            "tabs": _tabs(at, found),
            "rows": _rows(at, found, None),
            "progress": claims.progress(at.actor, now=at.now),
            "single_keys": claims.single_keys(at.actor),
            "tenant": at.standing.slug,
            "roles": ", ".join(in_words(role.value.replace("_", " ")) for role in at.roles),
            "wanted": _id_or_none(request.GET.get("item")),
            "reveal_reasons": reveals.REASONS,
            "several": [_offer(choice) for choice in found.several],
        },
    )


def _tabs(at: _At, current: Queue) -> list[dict[str, Any]]:
    tabs = []
    for queue in at.queues:
        backlog = queue.backlog(at.tenant, now=at.now)
        overdue = f"{backlog.overdue:,}{'+' if backlog.overdue >= COUNTED else ''}"
        late = _("%(overdue)s overdue") % {"overdue": overdue} if backlog.overdue else ""
        count = f"{backlog.count:,}{'+' if backlog.count >= COUNTED else ''}"
        tabs.append({"queue": queue, "count": count, "late": late, "current": queue is current})
    return tabs


def _rows(at: _At, queue: Queue, after: Place | None) -> dict[str, Any]:
    found = list(queue.page(at.tenant, after))
    shown = found[:PAGE]
    more = f"{shown[-1].due_at.isoformat()},{shown[-1].id}" if len(found) > PAGE else ""
    return {"lines": [_line(at, row) for row in shown], "more": more}


def _line(at: _At, row: Row) -> dict[str, Any]:
    due, look = due_in(row.due_at, at.now)
    said = list(row.words)
    if row.claimed is not None:
        said.append(_("claimed by you") if row.claimed == at.actor.id else _("claimed by a colleague"))
    if row.deferred_until is not None:
        said.append(_("more was asked for"))
    return {"row": row, "due": due, "look": look, "said": said, "mine": row.claimed == at.actor.id}


@_page("GET", "HEAD")
def rows(request: HttpRequest, at: _At, queue: str) -> HttpResponse:
    """Return the next rows of a queue, after the place that `after` names."""
    found = at.queue(queue)
    page = _rows(at, found, _place(request.GET.get("after", "")))
    return JsonResponse(
        {"rows": render_to_string("desk/rows.html", {"rows": page, "queue": found}), "more": page["more"]}
    )


def _place(text: str) -> Place | None:
    if not text:
        return None
    due, _, item = text.partition(",")
    try:
        return datetime.fromisoformat(due.replace(" ", "+")), uuid_or_missing(item)
    except (ValueError, Missing):
        raise Malformed from None


@_page("GET", "HEAD")
def counts(request: HttpRequest, at: _At, queue: str) -> HttpResponse:
    """Return the tabs and the reader's progress as they are now."""
    progress = claims.progress(at.actor, now=at.now)
    context = {"tabs": _tabs(at, at.queue(queue)), "progress": progress}
    return JsonResponse(
        {
            "tabs": render_to_string("desk/tabs.html", context),
            "progress": render_to_string("desk/progress.html", context),
        }
    )


# an item --------------------------------------------------------------------------------------------------------------


@_page("GET", "HEAD")
def item(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Return an item as everybody at the desk may see it: without content, and unclaimed."""
    found = at.queue(queue)
    return JsonResponse(_panes(request, at, found, _waiting(at, found, _id(item))))


def _waiting(at: _At, queue: Queue, item: UUID) -> Item:
    found = queue.item(at.actor, [MemberRole(role) for role in at.roles], item)
    if found is None:
        raise Clash("already_decided")
    return found


def _panes(
    request: HttpRequest,
    at: _At,
    queue: Queue,
    item: Item,
    *,
    held: claims.Held | None = None,
    shown: Mapping[str, Any] | None = None,
    revealed: reveals.Revealed | None = None,
) -> dict[str, Any]:
    due, look = due_in(item.due_at, at.now)
    context = {
        **item.facts,
        "queue": queue,
        "item": item,
        "level": item.level.label if item.classed else "",
        "due": due,
        "look": look,
        "held_by_me": held,
        "shown": shown or {},
        "clear": shown is not None,
        "revealed": revealed,
        "choices": [_offer(choice) for choice in item.choices],
        "reveal_reasons": reveals.REASONS,
        "now": at.now,
    }
    return {
        "item": str(item.id),
        "subject": "" if item.subject is None else str(item.subject),
        "digest": item.digest.hex(),
        "claimed": held is not None,
        "clear": shown is not None,
        "barred": item.barred,
        "reveal": item.reveal,
        "until": None if held is None else held.expires_at.isoformat(),
        "masks_at": None if revealed is None else revealed.until.isoformat(),
        "seconds": None if revealed is None else max(1, round((revealed.until - at.now).total_seconds())),
        "pane": render_to_string(f"desk/{queue.template}/item.html", context, request),
        "consequences": render_to_string(f"desk/{queue.template}/consequences.html", context, request),
        "acts": render_to_string("desk/acts.html", context, request),
    }


def _offer(choice: Choice) -> dict[str, Any]:
    return {"choice": choice, "reasons": list(choice.reasons.items())}


@_page("POST")
def claim(request: HttpRequest, at: _At, queue: str) -> HttpResponse:
    """Claim an item, or the next that nobody holds, and return it in clear as far as a claim goes."""
    found = at.queue(queue)
    wanted = _id_or_none(request.POST.get("item"))
    before = _id_or_none(request.POST.get("previous"))
    if before is not None and before != wanted:
        claims.release(at.actor, before)
    if wanted is not None:
        held = claims.take(at.actor, found.name, [wanted])
        if held is None:
            raise Clash("claimed_by_another")
        return JsonResponse(_claimed(request, at, found, held, _waiting(at, found, wanted)))
    roles = [MemberRole(role) for role in at.roles]
    left = [each for each in found.following(at.tenant, roles, None) if each != before]
    while left:
        held = claims.take(at.actor, found.name, left)
        if held is None:
            break
        taken = found.item(at.actor, roles, held.item)
        if taken is not None:
            return JsonResponse(_claimed(request, at, found, held, taken))
        # It was decided between the looking and the taking.
        claims.release(at.actor, held.item)
        left.remove(held.item)
    return JsonResponse({"empty": True, "pane": render_to_string("desk/empty.html", {"queue": found}, request)})


def _claimed(request: HttpRequest, at: _At, queue: Queue, held: claims.Held, item: Item) -> dict[str, Any]:
    carried = pending.changes(at.actor, item.id)
    if carried:
        # What is shown as holding now is how it stands after what was decided on it just before.
        pending.carry_out(at.actor, [MemberRole(role) for role in at.roles], now=at.now, due=False)
        item = _waiting(at, queue, item.id)
    claims.showed(at.actor, held.id, item.digest)
    shown = None
    if not item.reveal:
        with as_writer(at.actor):
            shown = queue.show(at.actor, item, up_to=Sensitivity.PERSONAL)
    return {**_panes(request, at, queue, item, held=held, shown=shown), "carried": carried}


@_page("POST")
def renew(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Let the reader's claim last another quarter of an hour."""
    at.queue(queue)
    held = claims.renew(at.actor, _id(item))
    return JsonResponse({"until": held.expires_at.isoformat()})


@_page("POST")
def release(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Give an item back."""
    at.queue(queue)
    claims.release(at.actor, _id(item))
    return JsonResponse({"released": True})


@_page("POST")
def decide(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Carry out an act on a claimed item that is as it was shown; `later`, where it can be taken back for a while.

    What was decided before and can still be taken back is carried out first: one decision at a time can.
    """
    found, wanted = at.queue(queue), _id(item)
    try:
        digest = bytes.fromhex(request.POST.get("digest", ""))
    except ValueError:
        raise Malformed from None
    made = pending.carry_out(at.actor, [MemberRole(role) for role in at.roles], now=at.now, due=False)
    if not made:
        return _decided(request, at, found, wanted, digest, "")
    try:
        with transaction.atomic():
            return _decided(request, at, found, wanted, digest, _earlier(made))
    except Problem as problem:
        # Answered below 400, so that what was decided before stays carried out.
        return JsonResponse({**_told(problem), "earlier": _earlier(made)})


def _decided(request: HttpRequest, at: _At, found: Queue, wanted: UUID, digest: bytes, earlier: str) -> HttpResponse:
    held = claims.require(at.actor, wanted, digest)
    waiting = _waiting(at, found, wanted)
    if waiting.digest != digest:
        raise Clash("changed_since")
    if waiting.barred:
        raise Forbidden("not_yours_to_decide")
    act, reason = request.POST.get("act", ""), request.POST.get("reason", "")
    choice = next((each for each in waiting.choices if each.act == act), None)
    if choice is None:
        raise Malformed
    if reason not in choice.reasons:
        raise Refused("reason_missing")
    if waiting.reveal and held.revealed_until is None and act not in ("reject", "redact", "hold", "ask_more"):
        raise Forbidden("reveal_first")
    given = {name: str(value) for name, value in request.POST.items()}
    if choice.undo and request.POST.get("later"):
        level = _level(given)
        found.check(waiting, act, given)
        pending.put_off(at.actor, held, act=act, reason=reason, level=level)
        return JsonResponse({**_done(at, f"{choice.undo}: {waiting.title}.", wanted, earlier), "undo": _while()})
    if act == "ask_more":
        claims.defer(at.actor, held.id, reason=reason, now=at.now)
        told = _("More was asked for: %(title)s. It comes back in a day.") % {"title": waiting.title}
        append([Event(actor=at.actor, action=Action.MORE_ASKED, target_kind="claim", target_id=held.id, reason=reason)])
        return JsonResponse(_done(at, told, wanted, earlier))
    if choice.keeps:
        told = found.decide(at.actor, waiting, act, reason, given, now=at.now)
        return JsonResponse({"told": told, "stays": True, "earlier": earlier})
    told = found.decide(at.actor, waiting, act, reason, given, now=at.now)
    undo = {}
    if choice.form == "scope":
        roles = [MemberRole(role) for role in at.roles]
        mine = RedactionRequest.objects.filter(tenant_id=at.tenant, requested_by=at.actor.id, state="required")
        proposed = mine.order_by("-id").first()
        undo = {} if proposed is None or not choice.withdraw else {"undo": {**_while(), "proposal": str(proposed.id)}}
        if found.item(at.actor, roles, wanted) is not None:
            # Words beside the evidence were taken out: what is to be decided still waits, under the same claim.
            return JsonResponse({"told": told, "item": str(wanted), "stays": True, "earlier": earlier, **undo})
    claims.decided(at.actor, held.id, act=act, reason=reason)
    return JsonResponse({**_done(at, told, wanted, earlier), **undo})


def _while() -> dict[str, Any]:
    return {"seconds": int(claims.UNDO.total_seconds())}


def _done(at: _At, told: str, item: UUID, earlier: str) -> dict[str, Any]:
    context = {"progress": claims.progress(at.actor, now=at.now)}
    progress = render_to_string("desk/progress.html", context)
    return {"told": told, "item": str(item), "earlier": earlier, "progress": progress}


def _level(given: Mapping[str, str]) -> int | None:
    if "level" not in given:
        return None
    if given["level"] not in {str(int(each)) for each in Sensitivity}:
        raise Refused("request_refused", errors=[FieldError("level", "not_in_enum")])
    return int(given["level"])


def _earlier(made: Sequence[pending.Carried]) -> str:
    """Say of what was decided before that it could not be carried out; nothing where all of it was."""
    left = [each for each in made if each.code]
    if not left:
        return ""
    words = _WORDS.get(left[0].code, left[0].code.replace("_", " "))
    title = left[0].title or _("What you decided before")
    return _("%(title)s: it was not carried out, and waits again. %(why)s") % {"title": title, "why": in_words(words)}


@_page("POST")
def undo(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Take back what was decided on an item, while that can be; or a redaction that was proposed. The claim goes on."""
    at.queue(queue)
    if request.POST.get("proposal"):
        # It hid at once, and shows again by an act of its own.
        redaction.withdraw(at.actor, _id(request.POST["proposal"]))
    else:
        pending.take_back(at.actor, _id(item))
    return JsonResponse({"item": item, "told": _("Taken back: nothing was decided.")})


@_page("POST")
def settle(request: HttpRequest, at: _At, queue: str) -> HttpResponse:
    """Carry out what can no longer be taken back."""
    at.queue(queue)
    made = pending.carry_out(at.actor, [MemberRole(role) for role in at.roles], now=at.now, due=True)
    return JsonResponse({"carried": [str(each.item) for each in made if not each.code], "earlier": _earlier(made)})


@_page("POST")
def foresee(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Return what would follow from taking out what was picked of a claimed item, as numbers; nothing changes."""
    found, wanted = at.queue(queue), _id(item)
    if claims.mine(at.actor, wanted) is None:
        raise Clash("claim_lapsed")
    waiting = _waiting(at, found, wanted)
    if waiting.barred or not any(choice.form == "scope" for choice in waiting.choices):
        raise Forbidden("not_yours_to_decide")
    foreseen = redacting.foresee(at.actor, waiting, {name: str(value) for name, value in request.POST.items()})
    context = redacting.told(foreseen)
    return JsonResponse(
        {"foreseen": render_to_string("desk/foreseen.html", context, request), "shown": foreseen.digest.hex()}
    )


@_page("POST")
def reveal(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Show in clear, for a minute, what a claim leaves masked; once it is in the chain."""
    found, wanted = at.queue(queue), _id(item)
    held = claims.mine(at.actor, wanted)
    if held is None:
        raise Clash("claim_lapsed")
    if not confirmed_recently(request.session, at.now):
        raise Forbidden("show_who_you_are")
    waiting = _waiting(at, found, wanted)
    if waiting.barred:
        raise Forbidden("not_yours_to_decide")
    if waiting.subject is not None:
        with as_writer(at.actor):
            own = reveals.is_about(at.actor, waiting.subject, [str(request.user.get_username())])
        if own:
            raise Forbidden("about_yourself")
    target = reveals.Target("candidate", waiting.id, waiting.subject, waiting.level, ["value", "episode"])
    claims.showed(at.actor, held.id, waiting.digest)
    made = reveals.reveal(
        at.actor,
        target,
        reason=request.POST.get("reason", ""),
        case=request.POST.get("case", ""),
        budget=settings.REVEALS_A_DAY,
        now=at.now,
    )
    claims.revealed(at.actor, held.id, made.until)
    with as_writer(at.actor):
        shown = found.show(at.actor, waiting, up_to=Sensitivity.RESTRICTED)
    return JsonResponse(_panes(request, at, found, waiting, held=held, shown=shown, revealed=made))


@_page("POST")
def several(request: HttpRequest, at: _At, queue: str) -> HttpResponse:
    """Look what an act on several items would come to, or carry a part of it out."""
    found = at.queue(queue)
    act, reason = request.POST.get("act", ""), request.POST.get("reason", "")
    bulk.choice_of(found, found.several, act, reason)
    sent = [each for each in request.POST.get("items", "").split(",") if each]
    if not 0 < len(sent) <= bulk.CHUNK:
        raise Malformed
    roles = [MemberRole(role) for role in at.roles]
    if request.POST.get("bulk"):
        number = _id(request.POST["bulk"])
        try:
            wanted = {_id(item): bytes.fromhex(digest) for item, _, digest in (each.partition(":") for each in sent)}
        except ValueError:
            raise Malformed from None
        lines = bulk.carry_out(at.actor, found, roles, wanted, act, reason, bulk=number, now=at.now)
    else:
        number = new_id()
        lines = bulk.look(at.actor, found, roles, [_id(each) for each in sent], act, reason)
    return JsonResponse(
        {
            "bulk": str(number),
            "lines": [
                {"item": str(line.item), "outcome": line.outcome, "digest": line.digest.hex(),
                 "words": _OUTCOMES[line.outcome], "why": _WORDS.get(line.code, "")}
                for line in lines
            ],
        }
    )  # fmt: skip


_OUTCOMES = {
    bulk.WILL_CHANGE: gettext_lazy("will change"),
    bulk.CHANGED: gettext_lazy("done"),
    bulk.HELD: gettext_lazy("blocked by a hold"),
    bulk.ANOTHER: gettext_lazy("needs another role"),
    bulk.CLAIMED: gettext_lazy("claimed by a colleague"),
    bulk.OUT_OF_DATE: gettext_lazy("out of date"),
    bulk.REFUSED: gettext_lazy("refused"),
}


@_page("GET", "HEAD")
def find(request: HttpRequest, at: _At, queue: str) -> HttpResponse:
    """Return where the row of an id is shown. Ids alone are looked for, never content."""
    at.queue(queue)
    wanted = _id_or_none(request.GET.get("id", "").strip())
    if wanted is None:
        raise Malformed
    roles = [MemberRole(role) for role in at.roles]
    for each in at.queues:
        if each.item(at.actor, roles, wanted) is not None:
            return JsonResponse({"address": f"{reverse('desk_queue', args=[each.name])}?item={wanted}"})
    for model in (Candidate, Subject, Fact, Episode):
        if model.objects.filter(tenant_id=at.tenant, id=wanted).exists():
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
            return JsonResponse({"address": reverse(name, args=[wanted])})
    raise Missing


@_page("GET", "HEAD")
def again(request: HttpRequest, at: _At, queue: str, item: str) -> HttpResponse:
    """Ask the reader to show who they are, and lead back to the item."""
    found = at.queue(queue)
    require_recent(request.session, at.now)
    return HttpResponseRedirect(f"{reverse('desk_queue', args=[found.name])}?item={_id(item)}")


@_page("POST")
def keys(request: HttpRequest, at: _At) -> HttpResponse:
    """Keep whether single keys act for the reader."""
    wanted = request.POST.get("single", "")
    if wanted not in ("on", "off"):
        raise Malformed
    claims.prefer(at.actor, single_keys=wanted == "on")
    return JsonResponse({"single": wanted})


def _id(text: str) -> UUID:
    try:
        return uuid_or_missing(text)
    except Missing:
        raise Http404 from None


def _id_or_none(text: str | None) -> UUID | None:
    if not text:
        return None
    try:
        return uuid_or_missing(text)
    except Missing:
        raise Malformed from None


def urls() -> list[URLPattern]:
    """Return where these pages stand, under `/admin/desk/`."""
    return [
        path("", first, name="desk"),
        path("keys/", keys, name="desk_keys"),
        path("<slug:queue>/", desk, name="desk_queue"),
        path("<slug:queue>/rows/", rows, name="desk_rows"),
        path("<slug:queue>/counts/", counts, name="desk_counts"),
        path("<slug:queue>/claim/", claim, name="desk_claim"),
        path("<slug:queue>/settle/", settle, name="desk_settle"),
        path("<slug:queue>/several/", several, name="desk_several"),
        path("<slug:queue>/find/", find, name="desk_find"),
        path("<slug:queue>/<str:item>/", item, name="desk_item"),
        path("<slug:queue>/<str:item>/renew/", renew, name="desk_renew"),
        path("<slug:queue>/<str:item>/release/", release, name="desk_release"),
        path("<slug:queue>/<str:item>/decide/", decide, name="desk_decide"),
        path("<slug:queue>/<str:item>/undo/", undo, name="desk_undo"),
        path("<slug:queue>/<str:item>/foresee/", foresee, name="desk_foresee"),
        path("<slug:queue>/<str:item>/reveal/", reveal, name="desk_reveal"),
        path("<slug:queue>/<str:item>/again/", again, name="desk_again"),
    ]
