"""That everything which an operator or a client can meet is written down: the code is the list, the documents follow."""

import re
import tomllib

import pytest

from tests.docs import sources
from tests.docs.sources import ROOT, table_under, text_of, words_in_code

RUNBOOK = ROOT / "docs" / "runbook.md"
CODES = ROOT / "docs" / "codes.md"
LIBRARIES = ROOT / "docs" / "decisions" / "0006-libraries.md"


def _first_words(heading: str) -> set[str]:
    found: set[str] = set()
    for row in table_under(CODES, heading):
        found.update(re.findall(r"`([^`]+)`", row[0]))
    return found


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("Problems", sources.problem_codes),
        ("Fields", sources.field_codes),
        ("Reasons", sources.reasons),
    ],
)
def test_every_code_is_explained_and_nothing_else_is(heading, said) -> None:
    said_by_code, explained = said(), _first_words(heading)
    assert len(said_by_code) > 20
    assert sorted(said_by_code - explained) == [], "not explained"
    assert sorted(explained - said_by_code - _of_the_starter_policy()) == [], "explained, but no code says it"


def _of_the_starter_policy() -> set[str]:
    text = text_of(ROOT / "policies" / "starter.json")
    return set(re.findall(r'"(?:reason|id)": "([^"]+)"', text))


def test_the_reasons_of_the_starter_policy_are_explained() -> None:
    assert sorted(_of_the_starter_policy() - _first_words("Reasons")) == []


def test_every_audit_action_is_explained_and_nothing_else_is() -> None:
    assert sources.enum_values("tenants/audit.py", "Action") == _first_words("Audit actions")


def test_every_failure_of_a_model_is_explained_with_whether_it_is_tried_again() -> None:
    from memory.extraction.model import FAILURES

    told = {row[0].strip("`"): row[1] for row in table_under(CODES, "Extraction by a model") if len(row) == 3}
    assert told == {code: "yes" if again else "no" for code, again in FAILURES.items()}


def test_every_detector_is_listed_in_its_group_and_nothing_else_is() -> None:
    from policies.detection import DETECTORS

    listed = {
        (row[0].strip("`"), name)
        for row in table_under(CODES, "Detectors")
        for name in re.findall(r"`([^`]+)`", row[1])
    }
    assert listed == {(group.value, name) for name, group in DETECTORS.items()}


def test_every_management_command_has_its_line_in_the_runbook() -> None:
    listed = {row[0].strip("`").split()[0] for row in table_under(RUNBOOK, "Commands")}
    assert listed == sources.commands()


def test_every_variable_of_the_environment_is_in_the_runbook() -> None:
    rows = [re.findall(r"`([A-Z_]+)`", row[0]) for row in table_under(RUNBOOK, "Settings")]
    listed = {name for names in rows for name in names}
    assert sorted(sources.variables() - listed) == []
    assert sorted(name for name in listed - sources.variables() if name.startswith("MUNIMENT_")) == []


def test_defaults_of_the_environment_are_told_as_they_are() -> None:
    from config.environment import Environment

    told = {row[0].strip("`"): row[1] for row in table_under(RUNBOOK, "Settings")}
    for name, field in Environment.model_fields.items():
        variable = str(field.validation_alias or f"MUNIMENT_{name.upper()}")
        default = field.default
        if isinstance(default, str | int) and not isinstance(default, bool) and default != "":
            assert f"`{default}`" in told[variable], variable
        elif isinstance(default, bool):
            assert f"`{str(default).lower()}`" in told[variable], variable


def test_every_metric_is_in_the_runbook_and_nothing_else_is() -> None:
    listed = {row[0].strip("`") for row in table_under(RUNBOOK, "Metrics")}
    assert listed == sources.metrics()


def test_every_check_of_doctor_is_in_the_runbook() -> None:
    found = {
        text
        for path, node in sources.nodes(under=("tenants",))
        if path.name == "examination.py" and sources.called(node) == "Check"
        for text in sources.texts(sources.argument(node, 0, "name"))  # type: ignore[arg-type]
    }
    listed = {row[0].strip("`") for row in table_under(RUNBOOK, "What doctor checks")}
    assert len(found) > 8
    assert sorted(found - listed) == []


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]
    wanted = [
        *project["dependencies"],
        *(each for extra in project["optional-dependencies"].values() for each in extra),
    ]
    names = {re.split(r"[\[<>=!~ ;]", each, maxsplit=1)[0] for each in wanted}
    listed = {
        name
        for heading in ("To run", "To develop")
        for row in table_under(LIBRARIES, heading)
        for name in re.findall(r"`([^`]+)`", row[0])
    }
    assert sorted(names - listed) == [], "no reason is given"
    assert sorted(listed - names) == [], "not a dependency"


def test_every_library_that_was_refused_is_absent_from_the_locks() -> None:
    refused = {name for row in table_under(LIBRARIES, "Refused") for name in re.findall(r"`([^`]+)`", row[0])}
    locked = {
        re.split(r"[=\[ ]", line, maxsplit=1)[0].lower()
        for lock in ("requirements.lock", "requirements-dev.lock")
        for line in text_of(ROOT / lock).splitlines()
        if re.match(r"[A-Za-z]", line)
    }
    assert len(refused) >= 5
    assert refused & locked == set()


def test_scopes_roles_and_classes_are_all_named() -> None:
    from policies.vocabulary import Basis, Cardinality, Confirm, Conflict, Kind, Sensitivity, SourceKind
    from tenants.actors import MemberRole, Scope

    said = words_in_code(ROOT / "docs" / "api.md")
    for kind in (Basis, Cardinality, Confirm, Conflict, Kind, Scope, SourceKind):
        assert [each.value for each in kind if each.value not in said] == [], kind.__name__  # type: ignore[attr-defined]
    assert [each.label for each in Sensitivity if each.label not in said] == []
    runbook = words_in_code(RUNBOOK)
    assert [each.value for each in MemberRole if each.value not in runbook] == []


def test_every_database_role_is_explained() -> None:
    roles = set(re.findall(r"'(muniment_[a-z]+)'", text_of(ROOT / "tenants" / "bootstrap.sql")))
    listed = words_in_code(ROOT / "docs" / "decisions" / "0003-roles-and-row-level-security.md")
    assert len(roles) >= 10
    assert sorted(roles - listed) == []


def test_what_the_hash_of_an_audit_entry_covers_is_told_column_by_column() -> None:
    sql = text_of(ROOT / "tenants" / "migrations" / "0002_isolation.sql")
    signature = re.search(r"CREATE FUNCTION audit_hash\((.*?)\) RETURNS", sql, re.DOTALL)
    assert signature is not None
    columns = [each.split()[0] for each in signature[1].split(",")]
    rows = table_under(ROOT / "docs" / "decisions" / "0007-audit-chain-and-receipts.md", "What the hash covers")
    assert [row[1].strip("`") for row in rows] == columns
