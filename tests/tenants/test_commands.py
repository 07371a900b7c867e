"""Operators' commands, through the same door as on the command line."""

import contextlib
import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.management import CommandError, call_command
from django.utils.dateparse import parse_datetime

from tenants.audit import PLATFORM
from tenants.isolation import Role, tenant_transaction
from tenants.models import AuditEvent
from tests.organisation import Api

pytestmark = pytest.mark.usefixtures("database")


def run(*arguments: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command(*arguments, "--json", stdout=out)
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def refusal(*arguments: str) -> str:
    with pytest.raises(CommandError) as refused:
        call_command(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def slug() -> str:
    return f"c-{uuid4().hex[:12]}"


def test_an_agent_is_made_whose_printed_key_works(tmp_path: Path) -> None:
    name = slug()
    tenant = run("create_tenant", name)
    found = run(
        *("create_agent", name, "bot", "--clearance", "personal", "--scope", "read", "write"),
        *("--scope", "import", "--purpose", "support", "--trust", "80", "--expires", "30"),
    )
    assert set(found) == {"agent", "key", "prefix"}
    told = Api(found["key"]).get("/api/v1/whoami/").json()
    expires = parse_datetime(told["key"].pop("expires_at"))
    assert expires is not None
    assert told == {
        "tenant": tenant["slug"],
        "agent": {"id": found["agent"], "name": "bot"},
        "clearance": "personal",
        "trust": 80,
        "scopes": ["import", "read", "write"],
        "purposes": ["support"],
        "key": {"prefix": found["prefix"]},
    }


def test_a_key_is_rotated_and_revoked_by_its_prefix(tenant: Any) -> None:
    agent = tenant.agent()
    rotated = run("rotate_key", agent.row.prefix, "--overlap", "0.5")
    assert rotated["old_prefix"] == agent.row.prefix
    assert {Api(key).get("/api/v1/whoami/").status_code for key in (agent.key, rotated["key"])} == {200}
    run("revoke_key", agent.row.prefix)
    assert Api(agent.key).get("/api/v1/whoami/").json()["code"] == "key_revoked"
    assert Api(rotated["key"]).get("/api/v1/whoami/").status_code == 200
    again = run("rotate_key", rotated["prefix"], "--overlap", "0")
    assert Api(rotated["key"]).get("/api/v1/whoami/").json()["code"] == "key_expired"
    assert Api(again["key"]).get("/api/v1/whoami/").status_code == 200


def test_a_members_password_is_printed_once_and_opens_the_admin(tenant: Any) -> None:
    from django.test import Client

    name = f"m-{uuid4().hex[:6]}"
    found = run("create_member", tenant.slug, name, "--role", "reviewer")
    again = run("create_member", tenant.slug, name, "--role", "approver")
    assert "password" not in again
    answer = Client().post("/admin/login/", {"username": name, "password": found["password"]})
    assert answer.status_code == 302


def test_a_password_from_a_file_is_not_printed(tenant: Any, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("a-long-pass-phrase\nand more\n")
    found = run("create_member", tenant.slug, f"m-{uuid4().hex[:6]}", "--role", "auditor", "--password-file", str(file))
    assert set(found) == {"user", "role", "created"}


def test_what_is_refused_is_one_line() -> None:
    name = slug()
    run("create_tenant", name)
    assert refusal("create_tenant", name) == "slug_taken"
    assert refusal("create_tenant", "Not A Slug") == "tenant_refused (slug: out_of_bounds)"
    assert refusal("create_agent", slug(), "b", "--clearance", "public", "--scope", "read") == "tenant_unknown"
    assert refusal("revoke_key", "nosuchkey0") == "key_unknown"
    assert refusal("create_member", name, "x", "--role", "auditor", "--password-file", "/nonexistent/file").startswith(
        "a file cannot be used"
    )
    with pytest.raises(CommandError):
        call_command("create_agent", name, "b", "--clearance", "secret", "--scope", "read")


def test_verifying_is_audited_and_exports_checkpoints_outside_the_database(tenant: Any, settings: Any) -> None:
    found = run("audit", "verify", "--tenant", tenant.slug, "--checkpoint")
    assert found["sound"] is True
    assert [(chain["tenant"], chain["first_bad"]) for chain in found["chains"]] == [(tenant.slug, None)]
    assert str(tenant.id) in (settings.ENVIRONMENT.home / "checkpoints.jsonl").read_text()
    with tenant_transaction(Role.FRONT, tenant=None):
        entry = AuditEvent.objects.filter(chain=PLATFORM, action="audit.verified").latest("seq")
    assert entry.target_id == tenant.id
    assert entry.numbers == {
        "chains": 1,
        "entries": found["chains"][0]["entries"],
        "receipts": 0,
        "bad": 0,
        "checkpoints": 1,
    }


def test_an_agent_out_of_bounds_is_refused_by_the_name_of_what_is(tenant: Any) -> None:
    def refused(*more: str) -> str:
        with pytest.raises(CommandError) as error:
            call_command("create_agent", tenant.slug, "b", "--clearance", "public", "--scope", "read", *more)
        return str(error.value)

    assert refused("--trust", "101") == "agent_refused (trust: out_of_bounds)"
    assert refused("--trust", "-1") == "agent_refused (trust: out_of_bounds)"


def test_arguments_that_a_command_does_not_take_are_one_line_and_code_1(database: Any, capfd: Any) -> None:
    from tenants.management.commands.create_agent import Command

    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "create_agent", "t", "b", "--scope", "read", "--clearance", "secret"])
    said = capfd.readouterr().err.strip()
    assert ended.value.code == 1
    assert said.startswith("CommandError: argument --clearance")
    assert "\n" not in said


def test_limits_are_set_and_lifted_by_a_command(tenant: Any) -> None:
    found = run("limit_rates", tenant.slug, "--requests", "100", "--writes", "10")
    assert (found["requests_a_minute"], found["writes_a_minute"]) == (100, 10)
    found = run("limit_rates", tenant.slug)
    assert (found["requests_a_minute"], found["writes_a_minute"]) == (None, None)
    assert refusal("limit_rates", tenant.slug, "--writes", "0") == "limit_refused (writes: out_of_bounds)"
    assert refusal("limit_rates", "no-such-tenant", "--writes", "1") == "tenant_unknown"


def test_a_bad_chain_is_named_with_exit_code_1_and_gets_no_checkpoint(tenant: Any, superuser: Any) -> None:
    with superuser.transaction():
        superuser.execute("SET LOCAL session_replication_role = 'replica'")
        superuser.execute("UPDATE tenants_auditevent SET reason = 'x' WHERE chain = %s AND seq = 1", [tenant.id])
    out = io.StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("audit", "verify", "--tenant", tenant.slug, "--checkpoint", stdout=out)
    assert ended.value.code == 1
    assert out.getvalue().startswith(f"{tenant.slug}: altered")
    assert "the first bad entry is 1" in out.getvalue()
    assert "checkpoints" not in out.getvalue()


def doctor() -> dict[str, dict[str, Any]]:
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command("doctor", "--json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["well"] == all(check["ok"] for check in found["checks"])
    return {check["name"]: check for check in found["checks"]}


STEADY = ["login role", "roles", "owner", "row-level security", "server", "server log", "migrations", "clock"]


def test_a_sound_installation_is_found_sound(superuser: Any) -> None:
    found = doctor()
    assert [found[name] for name in STEADY if not found[name]["ok"]] == []
    assert found["broker"]["ok"], found["broker"]


def test_a_model_that_cannot_be_asked_is_named_with_the_way_out(
    superuser: Any, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memory.extraction.model import Configuration, provider

    assert doctor()["model"] | {"mend": ""} == {
        "name": "model", "ok": True, "found": "none reads episodes", "mend": "",
    }  # fmt: skip
    settings.MODEL_EXTRACTOR = Configuration("openai:gpt-x", key="k-123")
    monkeypatch.setattr(provider, "find_spec", lambda name: None)
    found = doctor()["model"]
    assert (found["ok"], found["found"]) == (False, "openai:gpt-x, without its libraries")
    assert found["mend"] == "make run EXTRAS=llm"


def test_a_table_without_row_security_is_named(superuser: Any) -> None:
    superuser.execute("ALTER TABLE tenants_historicalagent NO FORCE ROW LEVEL SECURITY")
    try:
        found = doctor()["row-level security"]
        assert (found["ok"], found["found"]) == (False, "uncovered: tenants_historicalagent")
        assert found["mend"]
    finally:
        superuser.execute("ALTER TABLE tenants_historicalagent FORCE ROW LEVEL SECURITY")


def test_a_role_with_too_much_power_is_named(superuser: Any) -> None:
    superuser.execute("ALTER ROLE muniment_worker BYPASSRLS")
    try:
        assert doctor()["roles"]["found"] == "not as they must be: muniment_worker"
    finally:
        superuser.execute("ALTER ROLE muniment_worker NOBYPASSRLS")


def test_a_login_role_that_row_security_does_not_bind_is_named(superuser: Any) -> None:
    from tenants.fitness import unfit

    superuser.execute("ALTER ROLE muniment_app BYPASSRLS")
    try:
        assert unfit() == "bypasses_row_security"
        assert Api().get("/readyz").status_code == 503
    finally:
        superuser.execute("ALTER ROLE muniment_app NOBYPASSRLS")
    assert unfit() == ""
    assert Api().get("/readyz").json()["status"] == "ready"


def test_a_tenant_without_keys_is_counted(tenant: Any) -> None:
    from django.conf import settings

    home = settings.ENVIRONMENT.key_folder / "tenants" / str(tenant.id)
    moved = home.with_name(".moved")
    home.rename(moved)
    try:
        assert doctor()["keys"]["ok"] is False
    finally:
        moved.rename(home)


def test_the_bootstrap_sql_is_printed_as_it_is() -> None:
    out = io.StringIO()
    call_command("doctor", "--bootstrap-sql", stdout=out)
    assert out.getvalue() == (Path(__file__).parents[2] / "tenants" / "bootstrap.sql").read_text()


def test_the_metrics_count_requests_by_route_and_ask_the_database_for_the_rest(api: Any) -> None:
    api.get("/api/v1/whoami/?canary=1")
    text = api.get("/metrics").content.decode()
    assert 'muniment_request_seconds_count{method="GET",route="api/v1/whoami/",status="400"}' in text
    for name in ("outbox_pending", "outbox_failed", "outbox_lag_seconds", "audit_entries", "audit_chains", "tenants"):
        assert f"\nmuniment_{name} " in f"\n{text}"
    assert "canary" not in text


def test_the_description_of_the_api_is_public_and_names_key_and_problem(database: Any) -> None:
    found = json.loads(Api().get("/api/v1/schema/").content)
    assert found["openapi"].startswith("3.1")
    assert found["paths"]["/api/v1/whoami/"]["get"]["security"] == [{"ApiKey": []}]
    assert found["components"]["securitySchemes"]["ApiKey"]["name"] == "Authorization"
    assert "Problem" in found["components"]["schemas"]
    assert "default" in found["paths"]["/api/v1/whoami/"]["get"]["responses"]
    page = Api().get("/api/v1/docs/")
    assert page.status_code == 200
    assert b"http://" not in page.content.replace(b"http://www.w3.org", b"")
    for asset in (
        "drf_spectacular_sidecar/swagger-ui-dist/swagger-ui-bundle.js",
        "muniment/docs.js",
        "unfold/js/app.js",
    ):
        assert Api().get(f"/static/{asset}").status_code == 200


def test_an_old_key_ends_no_later_than_asked(tenant: Any) -> None:
    agent = tenant.agent()
    found = run("rotate_key", agent.row.prefix, "--overlap", "1")
    ends = parse_datetime(found["old_ends_at"])
    assert ends is not None
    assert timedelta(minutes=59) < ends - agent.row.created_at < timedelta(minutes=61)
