"""`python -m config.demo`: prepare the demo tenant, send its episodes and facts by HTTP, print the stale-fact trace.

Run by the launcher once the server answers. What it made is kept in MUNIMENT_HOME/demo.json (0600), so that a second
start finds the same tenant, people and key. Every request carries an idempotency key: a second start writes nothing new.
"""

import http.client
import json
import os
import secrets
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

HERE = Path(__file__).parent
TENANT = "demo"
SUBJECT = "mira"
PEOPLE = {"reviewer": ["reviewer", "privacy_officer"], "approver": ["approver", "tenant_admin"]}
QUESTION = "passport deadline"


class DemoFailed(Exception):
    """The demonstration did not come to what it must; the message is one line for the operator."""


class TraceDiffers(DemoFailed):
    """The product answered, and the demo tenant holds something else than the trace is about."""


def prepare(home: Path) -> dict[str, Any]:
    """Return the demo tenant's logins and agent key, making tenant, policy and attributes at the first start."""
    kept = home / "demo.json"
    if kept.is_file():
        found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
        return found
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    import django

    django.setup()
    from policies.definitions import load_definitions, starters
    from policies.publishing import publish_attributes, publish_policy
    from policies.rules import STARTER, load_policy
    from tenants.actors import Actor, ActorKind, MemberRole, Scope
    from tenants.errors import Clash
    from tenants.isolation import Role, tenant_transaction
    from tenants.registry import OPERATOR, create_agent, create_member, create_tenant, issue_key

    now = datetime.now(UTC)
    # A start that was cut off left a tenant whose key nobody has: the next one takes another name.
    slug = TENANT
    while True:
        try:
            with tenant_transaction(Role.FRONT, tenant=None):
                tenant = create_tenant(slug, by=OPERATOR, now=now)
                agent = create_agent(tenant.id, "concierge", clearance=3, by=OPERATOR, now=now)
                key = issue_key(agent, scopes=list(Scope), expires_at=None, by=OPERATOR, now=now)
                people, ids = {}, {}
                for person, roles in PEOPLE.items():
                    password = secrets.token_urlsafe(12)
                    name = person if slug == TENANT else f"{person}-{slug}"
                    for place, role in enumerate(roles):
                        joined = create_member(
                            tenant.id,
                            name,
                            MemberRole(role),
                            by=OPERATOR,
                            now=now,
                            password=password if place == 0 else None,
                        )
                    people[name] = password
                    ids[person] = joined.membership.user_id
            break
        except Clash:
            slug = f"{TENANT}-{secrets.token_hex(3)}"
    operator = Actor(kind=ActorKind.OPERATOR, id=OPERATOR.id, tenant=tenant.id)
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=operator.id):
        publish_policy(operator, load_policy(STARTER.read_text(encoding="utf-8")), now=now)
    with tenant_transaction(Role.STAFF, tenant=tenant.id, actor=operator.id):
        # What a support agent begins with; what the trace is about has rules of its own.
        files = (starters()["support-agent"], HERE / "attributes.json")
        read = [load_definitions(file.read_text(encoding="utf-8")) for file in files]
        wanted = {each.name: each for definitions in read for each in definitions}
        publish_attributes(operator, list(wanted.values()), now=now)
    _procedure(tenant.id, agent.id, ids["approver"])
    made = {"tenant": slug, "people": people, "agent": "concierge", "key": key.text}
    draft = home / "demo.json.new"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(made, file)
    draft.rename(kept)
    return made


def _procedure(tenant: UUID, agent: UUID, approver: UUID) -> None:
    """Let the agent propose a procedure, the approver make it active, and a further version wait for a decision."""
    from memory import promotion
    from memory.contracts import ProcedureVersionBody, parse
    from policies.approvals import Answer
    from tenants.actors import Actor, ActorKind, Scope
    from tenants.isolation import Role, tenant_transaction

    said = json.loads((HERE / "procedure.json").read_text(encoding="utf-8"))
    proposer = Actor(kind=ActorKind.AGENT, id=agent, tenant=tenant, clearance=3, scopes=frozenset(Scope))
    person = Actor(kind=ActorKind.PERSON, id=approver, tenant=tenant, clearance=3)
    for which in ("active", "proposed"):
        body = parse(ProcedureVersionBody, said[which])
        with tenant_transaction(Role.WRITER, tenant=tenant, clearance=3, actor=agent):
            version = promotion.propose(proposer, said["name"], body, now=datetime.now(UTC)).version
            digest = bytes.fromhex(promotion.proposal(proposer, said["name"], version)["digest"])
        if which == "active":
            with tenant_transaction(Role.STAFF, tenant=tenant, clearance=3, actor=approver):
                now = datetime.now(UTC)
                promotion.decide(person, version, Answer.APPROVE, shown=digest, reason="tested", now=now)
                promotion.activate(person, version, shown=digest, now=now)


class Api:
    """The demo agent's client: plain HTTP, one connection."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._key = key

    def call(self, method: str, path: str, body: Any = None, *, once: str | None = None) -> dict[str, Any]:
        """Send one request and return the answer. Raises `DemoFailed` for any answer of 400 and more."""
        headers = {"Authorization": f"Api-Key {self._key}", "Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if once is not None:
            headers["Idempotency-Key"] = once
        self._connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._connection.getresponse()
        data: dict[str, Any] = json.loads(answer.read() or b"{}")
        if answer.status >= 400:
            raise DemoFailed(f"{method} {path.split('?')[0]} answered {answer.status} {data.get('code', '')}")
        return data

    def fact(self, attribute: str, valid_at: str | None = None) -> dict[str, Any]:
        """Return the one fact that holds, now or at an instant."""
        query = {"subject": SUBJECT, "attribute": attribute, **({} if valid_at is None else {"valid_at": valid_at})}
        found = self.call("GET", f"/api/v1/facts/?{urlencode(query)}")["results"]
        if len(found) != 1:
            raise TraceDiffers(f"expected one fact, got {len(found)}")
        fact: dict[str, Any] = found[0]
        return fact


def send(api: Api) -> dict[str, dict[str, Any]]:
    """Send the trace's episodes and facts; return each episode's id and text by its name, in order of arrival."""
    trace = json.loads((HERE / "trace.json").read_text(encoding="utf-8"))
    episodes: dict[str, dict[str, Any]] = {}
    for episode in trace["episodes"]:
        name, facts = episode["name"], episode["facts"]
        body = {key: value for key, value in episode.items() if key not in ("name", "facts")}
        body |= {"subject": SUBJECT, "session_id": "demo", "extract": "no", "retention": {"basis": "contract"}}
        kept = api.call("POST", "/api/v1/episodes/", body, once=f"demo-{name}")
        episodes[name] = {"id": kept["id"], "content": episode["content"]}
        for place, fact in enumerate(facts):
            provenance = {"turn_id": name, "source_episode": kept["id"], "quote": fact["quote"]}
            if "tool_call_id" in episode:
                provenance |= {"tool_call_id": episode["tool_call_id"], "source": "tool_result"}
            saying = {"subject": SUBJECT, "attribute": fact["attribute"], "value": fact["value"]}
            api.call("POST", "/api/v1/facts/", saying | {"provenance": provenance}, once=f"demo-{name}-{place}")
    return episodes


def told(api: Api, episodes: dict[str, dict[str, Any]]) -> list[str]:
    """Ask what the trace is about and return it as lines. Raises `DemoFailed` where an answer is not the right one."""
    by_id = {episode["id"]: name for name, episode in episodes.items()}
    naive = next(
        name
        for name in sorted(episodes)
        if QUESTION in api.call("GET", f"/api/v1/episodes/{episodes[name]['id']}/")["content"]
    )
    lines = [
        f"Naive text memory, searched for '{QUESTION}':",
        f"  returned {naive}: {episodes[naive]['content']}",
        "",
        "Governed current state:",
    ]
    current = api.fact("passport_deadline")
    lines += [
        f"  {SUBJECT}.passport_deadline = {current['value']}",
        f"  valid_from={current['valid_from']}, source={_source(current, by_id)}",
        "",
        "Governed point-in-time state:",
    ]
    asked = [
        ("2026-06-04", "2026-06-30", "e2"),
        ("2026-06-02", "2026-07-15", "e1"),
        ("2026-05-31", "2026-08-01", "e0"),
    ]
    answers = {}
    for day, value, source in asked:
        fact = answers[source] = api.fact("passport_deadline", f"{day}T00:00:00Z")
        lines.append(f"  on {day}, {SUBJECT}.passport_deadline = {fact['value']}, source={_source(fact, by_id)}")
        if (fact["value"], _source(fact, by_id)) != (value, source):
            raise TraceDiffers(f"on {day} another value holds than must")
    if naive != "e1" or (current["value"], _source(current, by_id)) != ("2026-06-30", "e2"):
        raise TraceDiffers("the current answer is not the right one")
    if answers["e2"]["supersedes"] != answers["e1"]["id"] or answers["e1"]["supersedes"] != answers["e0"]["id"]:
        raise TraceDiffers("the facts do not supersede each other as they must")
    lines += ["", "Stretches, with e0 arrived last:"]
    for source in ("e0", "e1", "e2"):
        fact = answers[source]
        until = fact["valid_to"] or "open"
        lines.append(f"  {fact['value']}  [{fact['valid_from']}, {until})  {source}")
    return lines


def conversed(api: Api) -> list[str]:
    """Send ordinary episodes to be drawn from at once, and return what came of them as lines."""
    lines = ["", "Ordinary episodes, drawn from in the request that sent them:"]
    for episode in json.loads((HERE / "conversation.json").read_text(encoding="utf-8")):
        answer = api.call("POST", "/api/v1/episodes/", episode | {"extract": "now"}, once=f"demo-{episode['turn_id']}")
        said = episode["content"]
        lines.append(f"  {episode['kind']}: {said if isinstance(said, str) else json.dumps(said)}")
        for each in answer["facts"]:
            fact = each["fact"]
            lines.append(
                f"    {each['change']:<10} {fact['subject']}.{each['attribute']} = {json.dumps(fact['value'])}"
            )
        for name in ("asked", "buffered", "rejected"):
            lines += [f"    {name:<10} {each['attribute']}: {', '.join(each['reasons'])}" for each in answer[name]]
        if not any(answer[name] for name in ("facts", "asked", "buffered", "rejected")):
            lines.append("    nothing    it says nothing that an attribute asks for")
    return lines


def left_waiting(api: Api) -> list[str]:
    """Send what a person has to decide on: uncertain and restricted facts, a conflict, a message that speaks to the agent."""
    given = json.loads((HERE / "waiting.json").read_text(encoding="utf-8"))
    for each in given["consents"]:
        api.call("POST", "/api/v1/consents/", each, once=f"demo-{each['ref']}")
    waits = 0
    for each in given["said"]:
        turn, subject = each["turn"], each["subject"]
        episode = {"kind": "message", "role": "user", "session_id": "demo-3", "turn_id": turn, "subject": subject,
                   "content": each["text"], "occurred_at": "2026-06-10T09:00:00Z", "extract": "no"}  # fmt: skip
        kept = api.call("POST", "/api/v1/episodes/", episode, once=f"demo-{turn}")
        provenance = {"turn_id": turn, "source_episode": kept["id"], "source": "quote", "quote": each["quote"]}
        if "consent" in each:
            provenance["consent_ref"] = each["consent"]
        fact = {"subject": subject, "attribute": each["attribute"], "value": each["value"], "provenance": provenance}
        fact |= {name: each[name] for name in ("confidence", "valid_from") if name in each}
        waits += "candidate" in api.call("POST", "/api/v1/facts/", fact, once=f"demo-{turn}-0")
    episode = {"kind": "message", "role": "user", "session_id": "demo-3", "turn_id": "w8", "subject": "mira",
               "content": given["quarantined"], "occurred_at": "2026-06-10T09:05:00Z", "extract": "no"}  # fmt: skip
    api.call("POST", "/api/v1/episodes/", episode, once="demo-w8")
    return ["", f"{waits} proposals and a quarantined message wait for a person at the review desk."]


def _source(fact: dict[str, Any], by_id: dict[str, str]) -> str:
    return by_id.get(fact["provenance"]["source_episode"], "?")


def main() -> int:
    """Prepare, send, tell; return the exit code."""
    home = Path(os.environ["MUNIMENT_HOME"])
    port = int(os.environ.get("MUNIMENT_PORT", "8000"))
    first = not (home / "demo.json").is_file()
    made = prepare(home)
    api = Api(port, made["key"])
    try:
        lines = [*told(api, send(api)), *conversed(api), *left_waiting(api)]
    except DemoFailed as failed:
        if first or not isinstance(failed, TraceDiffers):
            print(f"muniment: the demonstration failed: {failed}", file=sys.stderr)
            return 1
        # Whoever tried the product may have written over what the trace is about; that is no reason not to serve.
        lines = [
            f"The demo tenant was written to since its first start ({failed}); a new MUNIMENT_HOME shows the trace."
        ]
    base, key = f"http://127.0.0.1:{port}", made["key"]
    print("\n".join(["", *lines, ""]))
    if os.environ.get("MUNIMENT_DEMO_ENDS"):
        print("That was all. `make run` tells the same and then serves: the admin, the API and its description.\n")
        return 0
    print(f"Admin: {base}/admin/   review desk: {base}/admin/desk/")
    for name, password in made["people"].items():
        roles = " and ".join(role.replace("_", " ") for role in PEOPLE[name])
        print(f"  {name:<10} {password}  ({roles})")
    auth = f'-H "Authorization: Api-Key {key}"'
    as_of = f"{base}/api/v1/facts/?subject={SUBJECT}&attribute=passport_deadline&valid_at=2026-06-02T00:00:00Z"
    body = {
        "subject": SUBJECT,
        "attribute": "answer_style",
        "value": "detailed",
        "provenance": {"turn_id": "try-1"},
    }
    print(f"\nAPI: {base}/api/v1/docs/  agent key: {key}")
    print(f'  curl {auth} "{as_of}"')
    print(f'  curl {auth} "{base}/api/v1/profile/?subject={SUBJECT}"')
    print(f"  curl {auth} -H 'Content-Type: application/json' -d '{json.dumps(body)}' {base}/api/v1/facts/\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
