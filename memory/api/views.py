"""The endpoints of memory: translate, call one door, translate back."""

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from memory import consent, context, derived, extracting, promotion, recall, remember, terms
from memory.api import answers
from memory.api.base import MemoryView, explained_json, screened
from memory.api.queries import (
    ActiveProcedureQuery,
    CandidatesQuery,
    FactsQuery,
    HistoryQuery,
    Paged,
    ProfileQuery,
    ProfileTextQuery,
)
from memory.api.schema import CONSENT_REF, PROCEDURE_NAME, SESSION_ID
from memory.contracts import (
    BatchBody,
    CloseBody,
    ConsentBody,
    EndBody,
    EpisodeBody,
    ExplainBody,
    FactBody,
    ProcedureVersionBody,
    RecallBody,
    RetractBody,
    SubjectBody,
    WithdrawBody,
    parse,
    procedure_name,
    reference,
)
from memory.outcomes import Denied
from tenants.actors import Scope
from tenants.api.base import MEGABYTE
from tenants.api.describe import ID, described
from tenants.errors import Malformed
from tenants.identity import uuid_or_missing
from tenants.isolation import Role


class Episodes(MemoryView):
    """Raw input as received."""

    scope = {"POST": Scope.WRITE}
    # An escape of six bytes may stand for every character of the longest content.
    body_limit = 7 * MEGABYTE

    @described(
        "keep_episode", {201: answers.EpisodeWritten, 200: answers.EpisodeWritten}, body=EpisodeBody, refusal="Refusal"
    )
    def post(self, request: Request) -> Response:
        """Keep what was said or returned, once; by default facts are drawn from it in the background."""
        body = parse(EpisodeBody, request.data)
        kept = extracting.keep(self.actor, body, repeat=self.repeat())
        if isinstance(kept, Denied):
            return self.refused(kept)
        if extracting.unfinished(body, kept) and (not kept.repeated or extracting.ask(self.actor, kept.id)):
            return self.drawn_afterwards(kept.id, status=kept.status, **screened(kept), receipt=kept.receipt)
        if kept.extraction == "done" or kept.again or kept.repeated:
            self.assume_reader()
            drawn = extracting.told(self.actor, kept.id)
            return Response({"id": kept.id, **drawn, **screened(kept), "receipt": kept.receipt}, status=kept.status)
        return self.told(kept)


class Episode(MemoryView):
    """One episode, with the ids of the facts that rest on it."""

    scope = {"GET": Scope.READ}

    @described("read_episode", answers.EpisodeAnswer, path=ID)
    def get(self, request: Request, id: str) -> Response:
        episode = uuid_or_missing(id)
        shown = recall.episode(self.actor, episode)
        drawn = extracting.told(self.actor, episode, whole=False)
        waiting = {name: drawn[name] for name in ("asked", "buffered", "rejected")}
        return Response({**shown, "extraction": drawn["extraction"], **waiting})


class ExtractEpisode(MemoryView):
    """Drawing from an episode again."""

    scope = {"POST": Scope.WRITE}

    @described("extract_episode", {200: answers.EpisodeDrawn, 202: answers.EpisodeDrawn}, path=ID)
    def post(self, request: Request, id: str) -> Response:
        """Draw from an episode where that failed or waits, or was not asked for; one that is done stays as it is."""
        episode = uuid_or_missing(id)
        if extracting.ask(self.actor, episode):
            return self.drawn_afterwards(episode)
        self.assume_reader()
        return Response({"id": episode, **extracting.told(self.actor, episode)})


class Facts(MemoryView):
    """What holds, and saying what holds."""

    scope = {"GET": Scope.READ, "POST": Scope.WRITE}
    opens_itself = frozenset({"GET"})
    asks = FactsQuery

    @described("read_facts", answers.FactsPage, query=FactsQuery)
    def get(self, request: Request) -> Response:
        """What holds at an instant, as believed at an instant. Both are now unless given."""
        asked: FactsQuery = self.asked()
        page = recall.facts(
            self.actor,
            subject=asked.subject,
            attribute=asked.attribute,
            kind=asked.kind,
            valid_at=asked.valid_at,
            known_at=asked.known_at,
            cursor=asked.cursor,
            limit=asked.limit,
            proof=self.proof,
        )
        return Response(page.as_json())

    @described(
        "write_fact",
        {201: (answers.WrittenAnswer, answers.Blind), 200: answers.WrittenAnswer, 202: answers.AskedAnswer},
        body=FactBody,
        refusal="Refusal",
    )
    def post(self, request: Request) -> Response:
        """Say what holds, or what no longer does."""
        return self.told(remember.facts(self.actor, [parse(FactBody, request.data)], repeat=self.repeat())[0])


class FactsBatch(MemoryView):
    """Many sayings at once, each answered on its own."""

    scope = {"POST": Scope.WRITE}
    body_limit = 8 * MEGABYTE

    @described("write_facts", answers.BatchAnswer, body=BatchBody)
    def post(self, request: Request) -> Response:
        items = parse(BatchBody, request.data).items
        bodies = [_item(place, item) for place, item in enumerate(items)]
        return self.told_all(remember.facts(self.actor, bodies, repeat=self.repeat(), batch=True))


def _item(place: int, item: Any) -> FactBody | Denied:
    try:
        return parse(FactBody, item, prefix=f"items[{place}]")
    except Malformed as malformed:
        return Denied(status=malformed.status, code=malformed.code, errors=malformed.errors)


class Fact(MemoryView):
    """One fact."""

    scope = {"GET": Scope.READ}

    @described("read_fact", answers.FactRead, path=ID)
    def get(self, request: Request, id: str) -> Response:
        return Response(recall.fact(self.actor, uuid_or_missing(id)))


class History(MemoryView):
    """All evidence and all stretches of a fact's key."""

    scope = {"GET": Scope.READ}
    asks = HistoryQuery

    @described("read_history", answers.HistoryPage, query=HistoryQuery, path=ID)
    def get(self, request: Request, id: str) -> Response:
        asked: HistoryQuery = self.asked()
        fact = uuid_or_missing(id)
        return Response(
            recall.history(self.actor, fact, known_at=asked.known_at, cursor=asked.cursor, limit=asked.limit)
        )


class Lineage(MemoryView):
    """What a fact rests on, and what rests on it."""

    scope = {"GET": Scope.READ}
    asks = Paged

    @described("read_lineage", answers.LineagePage, query=Paged, path=ID)
    def get(self, request: Request, id: str) -> Response:
        asked: Paged = self.asked()
        return Response(recall.lineage(self.actor, uuid_or_missing(id), cursor=asked.cursor, limit=asked.limit))


class RetractFact(MemoryView):
    """Taking back all evidence of a fact."""

    scope = {"POST": Scope.WRITE}

    @described(
        "retract_fact",
        {200: answers.RetractedAnswer, 202: answers.AskedAnswer},
        body=RetractBody,
        path=ID,
        refusal="Refusal",
    )
    def post(self, request: Request, id: str) -> Response:
        return self.taken_back("fact", uuid_or_missing(id), parse(RetractBody, request.data))


class RetractEvidence(MemoryView):
    """Taking back one piece of evidence."""

    scope = {"POST": Scope.WRITE}

    @described(
        "retract_evidence",
        {200: answers.RetractedAnswer, 202: answers.AskedAnswer},
        body=RetractBody,
        path=ID,
        refusal="Refusal",
    )
    def post(self, request: Request, id: str) -> Response:
        return self.taken_back("evidence", uuid_or_missing(id), parse(RetractBody, request.data))


class Candidates(MemoryView):
    """What was asked or buffered, and what became of it."""

    scope = {"GET": Scope.READ}
    asks = CandidatesQuery

    @described("read_candidates", answers.CandidatesPage, query=CandidatesQuery)
    def get(self, request: Request) -> Response:
        asked: CandidatesQuery = self.asked()
        return Response(recall.candidates(self.actor, state=asked.state, cursor=asked.cursor, limit=asked.limit))


class Candidate(MemoryView):
    """One proposal."""

    scope = {"GET": Scope.READ}

    @described("read_candidate", answers.CandidateRead, path=ID)
    def get(self, request: Request, id: str) -> Response:
        return Response(recall.candidate(self.actor, uuid_or_missing(id)))


class Profile(MemoryView):
    """Everything that holds about one subject."""

    scope = {"GET": Scope.READ}
    opens_itself = frozenset({"GET"})
    asks = ProfileQuery

    @described("read_profile", answers.FactsPage, query=ProfileQuery)
    def get(self, request: Request) -> Response:
        asked: ProfileQuery = self.asked()
        page = recall.profile(
            self.actor,
            asked.subject,
            valid_at=asked.valid_at,
            known_at=asked.known_at,
            cursor=asked.cursor,
            limit=asked.limit,
            proof=self.proof,
        )
        return Response(page.as_json())


class ProfileText(MemoryView):
    """Everything that holds about one subject, as text."""

    scope = {"GET": Scope.READ}
    asks = ProfileTextQuery

    @described("read_profile_text", answers.ProfileTextAnswer, query=ProfileTextQuery)
    def get(self, request: Request) -> Response:
        """A text made before is served only where nothing that it rests on has changed since."""
        asked: ProfileTextQuery = self.asked()
        return Response(derived.profile(self.actor, asked.subject).as_json())


class Recall(MemoryView):
    """The smallest cited context that answers a question."""

    scope = {"POST": Scope.READ}
    reads = frozenset({"POST"})

    @described("recall", answers.RecallAnswer, body=RecallBody)
    def post(self, request: Request) -> Response:
        """What answers a question, within a budget of tokens, each with its source. Changes nothing."""
        return Response(context.recalled(self.actor, parse(RecallBody, request.data), now=self.now))


class Subjects(MemoryView):
    """Naming a subject, and its further names."""

    scope = {"PUT": Scope.WRITE}

    @described("name_subject", answers.SubjectAnswer, body=SubjectBody)
    def put(self, request: Request) -> Response:
        named = remember.subject(self.actor, parse(SubjectBody, request.data))
        return Response({"id": named.id, "taken": named.taken})


class Consents(MemoryView):
    """Consents that the organisation holds."""

    scope = {"POST": Scope.WRITE}

    @described("grant_consent", {201: answers.ConsentAnswer, 200: answers.ConsentAnswer}, body=ConsentBody)
    def post(self, request: Request) -> Response:
        outcome = consent.grant(self.actor, parse(ConsentBody, request.data), repeat=self.repeat())
        return Response(consent.shown(self.actor, outcome.id), status=outcome.status)


class WithdrawConsent(MemoryView):
    """Withdrawing a consent: what depends on it is hidden at once."""

    scope = {"POST": Scope.WRITE}

    @described("withdraw_consent", answers.ConsentAnswer, body=WithdrawBody, path=CONSENT_REF)
    def post(self, request: Request, ref: str) -> Response:
        named = reference(ref)
        parse(WithdrawBody, request.data)
        outcome = consent.withdraw(self.actor, named, repeat=self.repeat())
        return Response(consent.shown(self.actor, outcome.id), status=200)


class CloseSession(MemoryView):
    """Closing a session: what was kept for it starts to run out."""

    scope = {"POST": Scope.WRITE}

    @described("close_session", answers.TermAnswer, body=CloseBody, path=SESSION_ID)
    def post(self, request: Request, id: str) -> Response:
        """What this agent wrote in the session is kept no longer than the policy says after its close."""
        named = reference(id)
        body = parse(CloseBody, request.data)
        outcome = terms.close_session(self.actor, named, subject=body.subject, repeat=self.repeat())
        return Response(terms.shown(self.actor, outcome.id))


class EndContract(MemoryView):
    """That a contract has ended: what was kept on it starts to run out."""

    scope = {"POST": Scope.WRITE}

    @described("end_contract", answers.TermAnswer, body=EndBody, path=CONSENT_REF)
    def post(self, request: Request, ref: str) -> Response:
        """What was written on the contract is kept no longer than the policy says after its end."""
        named = reference(ref)
        parse(EndBody, request.data)
        return Response(terms.shown(self.actor, terms.end_contract(self.actor, named, repeat=self.repeat()).id))


class Explain(MemoryView):
    """Which verdict a write would get, without the act."""

    scope = {"POST": Scope.WRITE}

    @described("explain_fact", answers.ExplainAnswer, body=ExplainBody)
    def post(self, request: Request) -> Response:
        return Response(explained_json(remember.explain(self.actor, parse(ExplainBody, request.data).fact)))


class Procedures(MemoryView):
    """How things are done, as far as it is approved."""

    scope = {"GET": Scope.READ}
    asks = Paged

    @described("list_procedures", answers.ProceduresPage, query=Paged)
    def get(self, request: Request) -> Response:
        """Which procedures are active for the agent, without their texts."""
        asked: Paged = self.asked()
        return Response(promotion.listed(self.actor, cursor=asked.cursor, limit=asked.limit))


class ActiveProcedure(MemoryView):
    """The version of a procedure that agents act by."""

    scope = {"GET": Scope.READ}
    opens_itself = frozenset({"GET"})
    asks = ActiveProcedureQuery

    @described("read_active_procedure", answers.ActiveProcedureAnswer, query=ActiveProcedureQuery, path=PROCEDURE_NAME)
    def get(self, request: Request, name: str) -> Response:
        """The active version for the most specific scope that applies to the agent. Nothing else is ever read."""
        asked: ActiveProcedureQuery = self.asked()
        return Response(promotion.active(self.actor, procedure_name(name), scope=asked.scope, proof=self.proof))


class ProcedureVersions(MemoryView):
    """Proposing how something is done."""

    scope = {"GET": Scope.PROPOSE, "POST": Scope.PROPOSE}
    # What became of a proposal that nobody has approved is not the reading role's to see.
    role = {"GET": Role.WRITER}
    asks = Paged

    @described("list_own_proposals", answers.ProposalsPage, query=Paged, path=PROCEDURE_NAME)
    def get(self, request: Request, name: str) -> Response:
        """What became of the agent's own proposals, without their texts."""
        asked: Paged = self.asked()
        return Response(promotion.own(self.actor, procedure_name(name), cursor=asked.cursor, limit=asked.limit))

    @described(
        "propose_procedure_version",
        {201: answers.ProposedAnswer, 200: answers.ProposedAnswer},
        body=ProcedureVersionBody,
        path=PROCEDURE_NAME,
    )
    def post(self, request: Request, name: str) -> Response:
        """Propose a version. Nobody acts by it before a person has approved it and made it the active one."""
        named = procedure_name(name)
        body = parse(ProcedureVersionBody, request.data)
        try:
            proposed = promotion.propose(self.actor, named, body, now=self.now, repeat=self.repeat())
        except promotion.BaseMoved as moved:
            response = self.handle_exception(moved)
            # What the proposal was to be made against, as far as the agent may read it.
            response.data.update(active=moved.active)
            return response
        version = promotion.proposal(self.actor, named, proposed.version)
        told = {"outcome": proposed.outcome, "version": version, "receipt": proposed.receipt}
        return Response(told, status=proposed.status)
