"""Pages of redaction: a person picks what is to be taken out, sees what follows, proposes; another one applies or refuses."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.translation import gettext as _

from memory.legible import Piece, pieces
from retention import redaction
from retention.models import RedactionRequest
from retention.redaction import Kind, Pick, Preview, Shown
from retention.strategies import Strategy
from tenants.actors import MemberRole
from tenants.admin import PageAdmin, instant, one_of, standing, words
from tenants.errors import Clash, Forbidden, Missing, Problem, Refused
from tenants.identity import uuid_or_missing
from tenants.words import gettext_lazy, in_words

_STRATEGIES = {
    Strategy.NULL.value: gettext_lazy("leave nothing"),
    Strategy.MASK.value: gettext_lazy("leave a mark"),
    Strategy.MASK_TAIL.value: gettext_lazy("leave the last characters"),
    Strategy.GENERALISE.value: gettext_lazy("leave the coarse part (the year, the range, the domain)"),
    Strategy.PSEUDONYM.value: gettext_lazy("leave a pseudonym"),
}
#: Of evidence and candidates nothing can be left.
_ALL_OF = frozenset({Kind.EVIDENCE, Kind.CANDIDATE})
_REASONS = words(*redaction.REASONS)
_BECAUSE = {**_REASONS, redaction.QUOTE_FELL: gettext_lazy("its last quote was redacted")}
_TOLD = {
    "changed_since_shown": gettext_lazy("It changed since you looked. Look again."),
    "already_required": gettext_lazy("A redaction of this is proposed already."),
    "already_redacted": gettext_lazy("Nothing of it is left to take out."),
    "nothing_to_redact": gettext_lazy("It holds no content."),
    "already_decided": gettext_lazy("It was decided already."),
    "own_request": gettext_lazy("Another member decides: nobody applies what they proposed."),
    "role_missing": gettext_lazy("Your roles in this tenant do not allow it."),
    "not_the_requester": gettext_lazy("A proposal is taken back by whoever made it."),
    "redaction_refused": gettext_lazy("That cannot be redacted like this. Pick something, and give a reason."),
    "decision_refused": gettext_lazy("A decision needs a reason that goes with it."),
}
_PROPOSERS = (MemberRole.REVIEWER, MemberRole.PRIVACY_OFFICER)


@admin.register(RedactionRequest)
class RedactionAdmin(PageAdmin):
    """Proposals to take content out, and what became of them."""

    list_display = ("__str__", "state", "reason", "requester", instant("requested_at"), instant("decided_at"))
    list_filter = (
        one_of("state", words("required", "applied", "refused", "withdrawn")),
        one_of("reason", words(*redaction.REASONS, redaction.QUOTE_FELL)),
    )
    seen_by = frozenset({*_PROPOSERS, MemberRole.AUDITOR})

    @admin.display(description=gettext_lazy("proposed by"))
    def requester(self, proposal: RedactionRequest) -> str:
        return f"{in_words(proposal.requester_kind)} {str(proposal.requested_by)[-8:]}"

    def get_urls(self) -> list[Any]:
        def acting(name: str, view: Any) -> Any:
            return path(
                f"<path:object_id>/{name}/",
                self.admin_site.admin_view(view),
                name=f"retention_redactionrequest_{name}",
            )

        return [
            path(
                "propose/",
                self.admin_site.admin_view(self.propose_view),
                name="retention_redactionrequest_propose",
            ),
            acting("show", self.show_view),
            acting("apply", self.apply_view),
            acting("refuse", self.refuse_view),
            acting("withdraw", self.withdraw_view),
            *super().get_urls(),
        ]

    # proposing --------------------------------------------------------------------------------------------------------

    def propose_view(self, request: HttpRequest) -> HttpResponse:
        """Pick what to take out of one record, see what follows, and propose it."""
        if request.method not in ("GET", "HEAD", "POST"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        found = standing(request)
        if found.tenant is None or not found.is_one_of(*_PROPOSERS):
            raise PermissionDenied
        given = request.POST if request.method == "POST" else request.GET
        try:
            kind, target = Kind(given.get("kind", "")), uuid_or_missing(given.get("id", ""))
        except (ValueError, Missing):
            raise Http404 from None
        step = request.POST.get("step", "")
        shown: Shown | None = None
        foreseen: Preview | None = None
        problem, status = "", 200
        pick = Pick(kind=kind, target=target)
        try:
            if step == "show":
                shown = redaction.show(found.actor, kind, target)
            else:
                pick = self._pick(request, kind, target)
                if step == "propose":
                    proposal = redaction.propose(
                        found.actor,
                        [pick],
                        reason=request.POST.get("reason", ""),
                        now=datetime.now(UTC),
                        shown=_digest(request.POST.get("shown", "")),
                    )
                    messages.success(
                        request, _("%(proposal)s is proposed. No agent reads it any more.") % {"proposal": proposal}
                    )
                    return HttpResponseRedirect(reverse("admin:retention_redactionrequest_change", args=[proposal.id]))
                foreseen = redaction.preview(found.actor, [pick])
        except Missing:
            raise Http404 from None
        except (Clash, Refused, Forbidden) as refused:
            problem, status = _TOLD.get(refused.code, refused.code), refused.status
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": _("Redact %(kind)s %(target)s") % {"kind": in_words(kind.value), "target": str(target)[-8:]},
            "kind": kind.value,
            "target": target,
            "short": str(target)[-8:],
            "step": step,
            "shown": shown,
            "marked": () if shown is None else _marked(shown),
            "found": () if shown is None else _found(shown),
            "pick": pick,
            "spans": " ".join(f"{start}-{end}" for start, end in pick.spans),
            "chosen": " ".join(pick.fields),
            "foreseen": foreseen,
            "digest": "" if foreseen is None else foreseen.digest.hex(),
            "strategies": {"null": _STRATEGIES["null"]} if kind in _ALL_OF else _STRATEGIES,
            "reasons": _REASONS,
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/redact.html", context, status=status)

    def _pick(self, request: HttpRequest, kind: Kind, target: UUID) -> Pick:
        """Read what was picked: boxes that were ticked, and words to be taken out wherever the text says them."""
        spans: list[tuple[int, int]] = []
        for text in " ".join(request.POST.getlist("spans")).split()[: redaction.MOST_SPANS + 1]:
            start, _, end = text.partition("-")
            if start.isdecimal() and end.isdecimal() and len(text) < 20:
                spans.append((int(start), int(end)))
        said = request.POST.get("words", "")
        if kind is Kind.EPISODE and said.strip():
            words_found = redaction.spans_of(standing(request).actor, target, said[:1_000])
            if not words_found and not spans:
                # Not found is not "everything".
                raise Refused("redaction_refused")
            spans += words_found
        try:
            strategy = Strategy(request.POST.get("strategy", "null"))
        except ValueError:
            raise Refused("redaction_refused") from None
        fields = " ".join(request.POST.getlist("fields")).split()
        return Pick(kind=kind, target=target, strategy=strategy, fields=tuple(fields), spans=tuple(spans))

    # deciding ---------------------------------------------------------------------------------------------------------

    def show_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show in clear what a proposal would take out, once the chain says so."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        proposal = self._acting_on(request, object_id)
        found = standing(request)
        if not found.is_one_of(*_PROPOSERS):
            raise PermissionDenied
        shown = [
            (pick, redaction.show(found.actor, pick.kind, pick.target))
            for pick in redaction.picked([proposal]).get(proposal.id, ())
        ]
        return self.page(request, proposal, shown=shown)

    def apply_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take the content out, as the person who is signed in."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        proposal = self._acting_on(request, object_id)
        try:
            outcome = redaction.apply(
                standing(request).actor,
                proposal.id,
                shown=_digest(request.POST.get("shown", "")) or b"",
                reason=request.POST.get("reason", ""),
                now=datetime.now(UTC),
            )
        except (Clash, Refused, Forbidden) as refused:
            return self._refused(request, proposal, refused)
        if not outcome.applied:
            # Answered below 400, so that the record of the attempt is kept.
            return self.page(
                request,
                proposal,
                problem=_("A hold is in the way. Nothing was taken out; that it was tried is recorded."),
            )
        messages.success(request, _("%(proposal)s was applied.") % {"proposal": proposal})
        if outcome.asked:
            messages.warning(
                request,
                _("Facts that lost their last quote wait for a decision: %(number)s.") % {"number": len(outcome.asked)},
            )
        return HttpResponseRedirect(reverse("admin:retention_redactionrequest_change", args=[proposal.id]))

    def refuse_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Refuse a proposal: what it hid shows again."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        proposal = self._acting_on(request, object_id)
        try:
            reason = request.POST.get("reason", "")
            redaction.refuse(standing(request).actor, proposal.id, reason=reason, now=datetime.now(UTC))
        except (Clash, Refused, Forbidden) as refused:
            return self._refused(request, proposal, refused)
        messages.success(request, _("%(proposal)s was refused: what it hid shows again.") % {"proposal": proposal})
        return HttpResponseRedirect(reverse("admin:retention_redactionrequest_changelist"))

    def withdraw_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take one's own proposal back."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        proposal = self._acting_on(request, object_id)
        try:
            redaction.withdraw(standing(request).actor, proposal.id)
        except (Clash, Refused, Forbidden) as refused:
            return self._refused(request, proposal, refused)
        messages.success(request, _("%(proposal)s was taken back: what it hid shows again.") % {"proposal": proposal})
        return HttpResponseRedirect(reverse("admin:retention_redactionrequest_changelist"))

    def _acting_on(self, request: HttpRequest, object_id: str) -> RedactionRequest:
        proposal: RedactionRequest | None = self.get_object(request, object_id)
        if proposal is None:
            raise Http404
        return proposal

    def _refused(self, request: HttpRequest, proposal: RedactionRequest, refused: Problem) -> HttpResponse:
        told = _TOLD.get(refused.code, refused.code)
        return self.page(request, proposal, problem=told, status=refused.status)

    def page(
        self,
        request: HttpRequest,
        proposal: RedactionRequest,
        *,
        shown: Sequence[tuple[Pick, Shown | None]] = (),
        problem: str = "",
        status: int = 200,
    ) -> HttpResponse:
        found = standing(request)
        waits = proposal.state == "required"
        foreseen = redaction.examine(found.actor, proposal.id) if waits and problem == "" else None
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": str(proposal),
            "proposal": proposal,
            "waits": waits,
            "mine": proposal.requested_by == found.person,
            "picks": [
                (pick, _link(pick.kind, pick.target), _STRATEGIES[pick.strategy.value])
                for pick in redaction.picked([proposal]).get(proposal.id, ())
            ],
            "because": _BECAUSE.get(proposal.reason, proposal.reason),
            "foreseen": foreseen,
            "digest": "" if foreseen is None else foreseen.digest.hex(),
            "shown": [(pick, () if each is None else _marked(each, pick)) for pick, each in shown],
            "may_show": waits and found.is_one_of(*_PROPOSERS) and not shown,
            "may_decide": waits and redaction.may_decide(found.actor, proposal, now=datetime.now(UTC)),
            "apply_reasons": words(*redaction.APPLY_REASONS),
            "refuse_reasons": words(*redaction.REFUSE_REASONS),
            "problem": problem,
        }
        return TemplateResponse(request, "admin/retention/redaction.html", context, status=status)


def _digest(text: str) -> bytes | None:
    try:
        return bytes.fromhex(text) or None
    except ValueError:
        return None


def _link(kind: Kind, target: UUID) -> str:
    return reverse(f"admin:memory_{kind.value}_change", args=[target])


def _marked(shown: Shown, pick: Pick | None = None) -> list[Piece]:
    """Cut a text into pieces that a page can show, with what was picked, or else what was found, marked."""
    spans = [span for span, _ in shown.found] if pick is None else list(pick.spans)
    cut: list[Piece] = []
    at = 0
    for start, end in sorted(spans):
        if start < at:
            continue
        cut += pieces(shown.text[at:start], around=len(shown.text))
        cut += pieces(shown.text[start:end], shown.text[start:end], around=len(shown.text))
        at = end
    return cut + pieces(shown.text[at:], around=len(shown.text))


def _found(shown: Shown) -> list[tuple[str, str, list[Piece]]]:
    """Return what was found in a text, each as the box to tick: where it stands, what it is, and its words."""
    return [(f"{start}-{end}", label, pieces(shown.text[start:end], around=200)) for (start, end), label in shown.found]
