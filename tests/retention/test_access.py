"""The access export: everything about a subject and nothing else, inert, signed, sealed, handed out once it is audited."""

import csv
import io
import json
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import Error

from memory import rows
from retention import access, certificates, expiry, requests
from retention.access import safe_cell, verify
from retention.models import AccessExport
from retention.requests import Kind
from tenants.errors import Clash, Forbidden, Refused
from tenants.isolation import Role, tenant_transaction
from tenants.secrets import provider
from tests.memory.background import publish, settle_all
from tests.policies.two_people import acting, now
from tests.retention.test_requests import Desk

pytestmark = pytest.mark.usefixtures("database")
HOSTILE = "<script>alert('x')</script>\u202e=1+1"


class About:
    """A subject with facts, episodes, proposals and a consent; another one is named in what was said."""

    def __init__(self, organisation: Any, api: Any) -> None:
        self.desk, self.api = Desk(organisation), api
        publish(organisation)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        answer = self.api.send("POST", f"/api/v1{path}", body)
        assert answer.status_code in (200, 201, 202), answer.json()
        return answer.json()

    def heard(self, content: str, turn: str, subject: str | None = "mira", role: str = "user") -> str:
        body = {
            "kind": "message", "role": role, "content": content, "session_id": "s1", "turn_id": turn, "extract": "no",
            "occurred_at": "2026-06-01T09:00:00Z", **({} if subject is None else {"subject": subject}),
        }  # fmt: skip
        found: str = self.post("/episodes/", body)["id"]
        return found

    def said(self, attribute: str, value: Any, subject: str = "mira", **provenance: Any) -> Any:
        body = {
            "subject": subject,
            "attribute": attribute,
            "value": value,
            "provenance": {"turn_id": "t", **provenance},
        }
        return self.post("/facts/", body)

    def fill(self) -> None:
        self.api.send("PUT", "/api/v1/subjects/", {"key": "Jonas Brandt", "aliases": ["Brandt the elder"]})
        episode = self.heard("I live in Lisbon with Jonas Brandt", "t1")
        self.said("city", "Lisbon", source_episode=episode, quote="Lisbon with Jonas Brandt")
        self.said("tag", HOSTILE)
        self.said("iban", "proposed-value")
        self.said("city", "not-of-mira", subject="jonas")
        self.heard("somebody else's words", "t2", subject="jonas")
        self.heard("an assistant's words", "t3", role="assistant")
        self.post("/consents/", {"subject": "mira", "ref": "form-1", "purposes": ["support"]})
        assert self.api.send("GET", "/api/v1/facts/?subject=mira").status_code == 200

    def ask(self, kind: Kind = Kind.ACCESS) -> Any:
        request = self.desk.identified(kind=kind)
        with acting(self.desk.reviewer) as actor:
            return access.ask(actor, request.id, now=now())

    def download(self, export: Any, by: Any = None) -> bytes:
        with acting(by or self.desk.officer) as actor:
            return access.download(actor, export.id, now=now())

    def made(self, kind: Kind = Kind.ACCESS) -> dict[str, bytes]:
        export = self.ask(kind)
        settle_all(self.desk.organisation)
        whole = self.download(export)
        assert verify(whole, provider().public_key_pem()) == []
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def about(tenant: Any, api: Any) -> About:
    found = About(tenant, api)
    found.fill()
    return found


def test_everything_about_the_subject_is_in_it_and_nothing_of_others(about: About) -> None:
    files = about.made()
    everything = json.loads(files["everything.json"])
    assert everything["subject"]["names"] == ["mira"]
    facts = {each["attribute"]: each for each in everything["facts"]}
    assert facts["city"]["value"] == "Lisbon"
    assert facts["tag"]["value"] == HOSTILE
    assert facts["city"]["held"][0]["valid_to"] is None
    assert facts["city"]["evidence"][0]["writer"]["name"] == "agent"
    assert [each["content"] for each in everything["episodes"]][-1] == "an assistant's words"
    assert everything["proposals"][0]["value"] == "proposed-value"
    assert everything["consents"][0]["ref"] == "form-1"
    assert everything["recipients"][0]["name"] == "agent"
    whole = b"".join(files.values()).decode()
    assert "not-of-mira" not in whole
    assert "somebody else" not in whole


def test_names_of_others_are_masked_in_what_was_said_and_in_what_is_quoted(about: About) -> None:
    files = about.made()
    everything = json.loads(files["everything.json"])
    assert everything["episodes"][0]["content"].startswith("I live in Lisbon with ‹")
    assert b"Brandt" not in b"".join(files.values())


def test_hostile_text_is_inert_on_the_page_and_in_the_table(about: About) -> None:
    files = about.made()
    page = files["page.html"].decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    table = list(csv.reader(io.StringIO(files["facts.csv"].decode())))
    assert {row[0] for row in table[1:]} == {"city", "tag"}


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r"])
def test_a_cell_that_begins_like_a_formula_is_none(begin: str) -> None:
    assert safe_cell(f"{begin}cmd|'/c calc'!A1") == f"'{begin}cmd|'/c calc'!A1"
    assert safe_cell("plain") == "plain"


def test_for_portability_only_what_the_subject_provided_is_in_it(about: About) -> None:
    files = about.made(Kind.PORTABILITY)
    assert set(files) == {"provided.json", "facts.csv", "manifest.json"}
    part = json.loads(files["provided.json"])
    assert [each["attribute"] for each in part["facts"]] == ["city"]
    assert [each["role"] for each in part["episodes"]] == ["user"]


def test_c138_what_may_no_longer_be_shown_is_a_tombstone_and_the_manifest_counts_it(
    about: About, superuser: Any
) -> None:
    past = "UPDATE memory_payload p SET expires_at = now() - interval '1 second' FROM memory_fact f WHERE p.id = f.payload_id AND f.id = %s"
    city = about.api.send("GET", "/api/v1/facts/?subject=mira&attribute=city").json()["results"][0]
    superuser.execute(past, [city["id"]])
    files = about.made()
    fact = next(each for each in json.loads(files["everything.json"])["facts"] if each["attribute"] == "city")
    assert (fact["value"], fact["withheld"]) == (None, "expired")
    assert json.loads(files["manifest.json"])["manifest"]["withheld"]["expired"] >= 1


def test_a_manifest_tells_of_every_change(about: About) -> None:
    export = about.ask()
    settle_all(about.desk.organisation)
    whole = about.download(export)
    public = provider().public_key_pem()
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}

    def packed(changed: dict[str, bytes]) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in changed.items():
                archive.writestr(name, content)
        return out.getvalue()

    assert verify(packed(files), public) == []
    assert verify(packed({**files, "facts.csv": b"x"}), public) == ["changed facts.csv"]
    assert verify(packed({**files, "more.txt": b"x"}), public) == ["added more.txt"]
    assert verify(packed({**files, "manifest.json": files["manifest.json"].replace(b"access", b"excess")}), public) == [
        "bad_signature"
    ]
    assert verify(b"x", public) == ["malformed"]


def test_it_is_made_only_for_whom_is_known_to_be_the_subject(about: About) -> None:
    request = about.desk.lodge()
    with acting(about.desk.reviewer) as actor, pytest.raises(Clash, match="identity_not_confirmed"):
        access.ask(actor, request.id, now=now())
    other = about.desk.identified(kind=Kind.ERASURE)
    with acting(about.desk.reviewer) as actor, pytest.raises(Clash, match="not_about_access"):
        access.ask(actor, other.id, now=now())
    nobody = about.desk.identified(subject="nobody we know")
    with acting(about.desk.reviewer) as actor, pytest.raises(Clash, match="subject_not_known"):
        access.ask(actor, nobody.id, now=now())


def test_a_reviewer_has_it_made_and_a_privacy_officer_fetches_it_audited(about: About, superuser: Any) -> None:
    export = about.ask()
    with pytest.raises(Clash, match="export_not_there"):
        about.download(export)
    settle_all(about.desk.organisation)
    with pytest.raises(Forbidden):
        about.download(export, by=about.desk.reviewer)
    about.download(export)
    found = superuser.execute(
        "SELECT action FROM tenants_auditevent WHERE chain = %s AND target_id = %s ORDER BY seq",
        [about.desk.id, export.id],
    ).fetchall()
    assert found == [("export.asked",), ("export.made",), ("export.downloaded",)]


def test_a_worker_that_is_cut_off_or_comes_twice_makes_one(about: About, monkeypatch: pytest.MonkeyPatch) -> None:
    export = about.ask()

    def cut(*_: Any, **__: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(access, "pack", cut)
        with pytest.raises(RuntimeError):
            access.work(about.desk.id, export.id)
    count = "SELECT count(*) FROM memory_payload WHERE purpose = 'export'"

    def exports() -> int:
        with tenant_transaction(Role.WRITER, tenant=about.desk.id):
            return int(rows.fetch(count, [])[0][0])

    assert exports() == 0
    for _ in range(2):
        access.work(about.desk.id, export.id)
    assert exports() == 1
    settle_all(about.desk.organisation)
    assert exports() == 1


def test_it_ends_by_its_expiry_and_with_the_subject(about: About, superuser: Any) -> None:
    export = about.ask()
    settle_all(about.desk.organisation)
    payload = superuser.execute("SELECT payload_id FROM retention_accessexport WHERE id = %s", [export.id]).fetchone()[
        0
    ]
    superuser.execute(
        "UPDATE retention_accessexport SET expires_at = now() - interval '1 second' WHERE id = %s", [export.id]
    )
    with pytest.raises(Clash, match="export_not_there"):
        about.download(export)
    assert expiry.end_exports_of(about.desk.id) == 1
    assert superuser.execute("SELECT sealed FROM memory_payload WHERE id = %s", [payload]).fetchone() in (None, (None,))
    with tenant_transaction(Role.STAFF, tenant=about.desk.id):
        found = AccessExport.objects.get(id=export.id)
    assert (found.state, found.payload_id) == ("ended", None)
    with acting(about.desk.reviewer) as actor:
        second = access.ask(actor, found.asked_id, now=now())
    settle_all(about.desk.organisation)
    with tenant_transaction(Role.WORKER, tenant=about.desk.id):
        assert access.end_of_subject(about.desk.id, second.subject_id) == 1


def test_it_is_asked_for_and_fetched_by_pages(about: About) -> None:
    request = about.desk.identified()
    reviewer, officer = about.desk.reviewer.signed_in(), about.desk.officer.signed_in()
    here = f"/admin/retention/subjectrequest/{request.id}/"
    assert reviewer.post(f"{here}export/").status_code == 302
    settle_all(about.desk.organisation)
    assert reviewer.post(f"{here}download/").status_code == 403
    assert "Download" in officer.get(f"{here}change/").content.decode()
    answer = officer.post(f"{here}download/")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/zip")
    assert "no-store" in answer["Cache-Control"]
    assert verify(answer.content, provider().public_key_pem()) == []
    assert officer.post(f"{here}complete/", {"outcome": "done"}).status_code == 302


def test_an_erasure_is_put_before_a_second_person_by_the_page(about: About) -> None:
    request = about.desk.identified(kind=Kind.ERASURE)
    here = f"/admin/retention/subjectrequest/{request.id}/"
    assert about.desk.reviewer.signed_in().post(f"{here}erase/").status_code == 403
    assert about.desk.officer.signed_in().post(f"{here}erase/").status_code == 302
    with acting(about.desk.officer):
        found = requests.get(about.desk.id, request.id)
    assert found.led_to_kind == "erasure"


def test_a_request_of_portability_ends_with_a_signed_certificate_of_the_hand_over(about: About, superuser: Any) -> None:
    export = about.ask(Kind.PORTABILITY)
    settle_all(about.desk.organisation)
    with acting(about.desk.officer) as actor, pytest.raises(Clash, match="not_handed_over"):
        access.hand_over(actor, export.asked_id, "subject", now=now())
    whole = about.download(export)
    with acting(about.desk.officer) as actor, pytest.raises(Clash, match="not_handed_over"):
        requests.complete(actor, export.asked_id, "done", now=now())
    for wrong in ({"to": "anybody"}, {"to": "subject", "outcome": "nothing_held"}):
        with acting(about.desk.officer) as actor, pytest.raises(Refused):
            access.hand_over(actor, export.asked_id, now=now(), **wrong)
    with acting(about.desk.reviewer) as actor, pytest.raises(Forbidden):
        access.hand_over(actor, export.asked_id, "subject", now=now())
    with acting(about.desk.officer) as actor:
        issued = access.hand_over(actor, export.asked_id, "other_controller", now=now())
        found = requests.get(about.desk.id, export.asked_id)
    assert (found.state, found.outcome, found.led_to_kind, found.led_to_id) == (
        "completed",
        "done",
        "certificate",
        issued.id,
    )
    document = certificates.export(issued)
    verdict = certificates.verify(document, provider().public_key_pem())
    assert verdict.sound
    assert verdict.certificate is not None
    body = verdict.certificate["body"]
    assert body["export_digest"] == sha256(whole).hexdigest()
    assert (body["export"], body["request"]) == (str(export.id), str(export.asked_id))
    assert (body["handed_over_to"], body["handed_over_by"]) == ("other_controller", str(about.desk.officer.actor.id))
    for content in (b"Lisbon", b"mira", b"city", HOSTILE.encode()):
        assert content not in document
    with acting(about.desk.officer) as actor, pytest.raises(Clash, match="subject_request_closed"):
        access.hand_over(actor, export.asked_id, "subject", now=now())


def test_a_hand_over_is_certified_for_portability_alone(about: About) -> None:
    export = about.ask()
    with acting(about.desk.officer) as actor, pytest.raises(Clash, match="not_about_access"):
        access.hand_over(actor, export.asked_id, "subject", now=now())


def test_the_database_closes_no_request_of_portability_without_a_certificate(about: About) -> None:
    export = about.ask(Kind.PORTABILITY)
    close = (
        "UPDATE retention_subjectrequest SET state = 'completed', outcome = 'done', closed_at = now(), closed_by = %s::uuid"
        " WHERE id = %s::uuid"
    )
    with pytest.raises(Error, match="subjectrequest_handed_over"), acting(about.desk.officer) as actor:
        rows.execute(close, [actor.id, export.asked_id])


def test_a_hand_over_is_recorded_by_the_page_and_its_certificate_checked_by_the_command(
    about: About, tmp_path: Path, capsys: Any
) -> None:
    export = about.ask(Kind.PORTABILITY)
    settle_all(about.desk.organisation)
    officer, here = about.desk.officer.signed_in(), f"/admin/retention/subjectrequest/{export.asked_id}/"
    assert officer.post(f"{here}download/").status_code == 200
    assert about.desk.reviewer.signed_in().post(f"{here}handover/", {"to": "subject"}).status_code == 403
    assert "went to" in officer.get(f"{here}change/").content.decode()
    assert officer.post(f"{here}handover/", {"to": "subject"}).status_code == 302
    with acting(about.desk.officer):
        issued = requests.get(about.desk.id, export.asked_id).led_to_id
    assert f"/admin/retention/certificate/{issued}/change/" in officer.get(f"{here}change/").content.decode()
    file, key = tmp_path / "certificate.json", tmp_path / "key.pem"
    file.write_bytes(officer.get(f"/admin/retention/certificate/{issued}/download/").content)
    key.write_bytes(provider().public_key_pem())
    call_command("verify_certificate", str(file), "--public-key", str(key))
    said = capsys.readouterr().out
    assert said.startswith("sound")
    assert "handed_over_to: subject" in said
