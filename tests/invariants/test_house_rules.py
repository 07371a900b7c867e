"""House rules that a reader of one file cannot see broken: read from the syntax trees of all of them."""

import ast
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
APPS = ("tenants", "policies", "memory", "retention")
#: What translates between us and the outside; everything else lies below.
FACES = (
    "api",
    "management",
    "admin",
    "admin.py",
    "tasks.py",
    "access.py",
    "pages.py",
    "second_factor.py",
    "single_sign_on.py",
    "signing.py",
)
LAUNCHERS = ("config/launch.py", "config/install.py", "config/demo/__main__.py", "config/watchdog.py")


@dataclass(frozen=True)
class Source:
    """One of our Python files."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def parts(self) -> tuple[str, ...]:
        return PurePosixPath(self.path).parts

    @property
    def is_app(self) -> bool:
        return self.parts[0] in APPS

    @property
    def is_migration(self) -> bool:
        return "migrations" in self.parts

    @property
    def is_face(self) -> bool:
        return self.parts[0] == "config" or any(part in FACES for part in self.parts[1:])

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Every call with the dotted name that is called, as far as it is one (`?` for the rest)."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, dotted(node.func)

    def imported(self) -> dict[str, str]:
        """What each imported name stands for, in full."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found.update({(each.asname or each.name.split(".")[0]): each.name for each in node.names})
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.update({(each.asname or each.name): f"{node.module}.{each.name}" for each in node.names})
        return found

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def texts(self) -> Iterator[tuple[int, str]]:
        """Every string in the code, docstrings aside, with its line."""
        documents = {
            id(node.body[0].value)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documents:
                yield node.lineno, node.value

    def at(self, line: int) -> str:
        return f"{self.path}:{line}"


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return "?"


def tracked() -> list[str]:
    """Every file that belongs to the project: known to git, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("needs the repository: install git and run in a clone of it")
    return sorted(name for name in set(listed.stdout.splitlines()) if (ROOT / name).is_file())


@pytest.fixture(scope="module")
def files() -> list[str]:
    return tracked()


@pytest.fixture(scope="module")
def sources(files: list[str]) -> list[Source]:
    return [Source(name, (ROOT / name).read_text(encoding="utf-8")) for name in files if name.endswith(".py")]


@pytest.fixture(scope="module")
def ours(sources: list[Source]) -> list[Source]:
    """What runs: apps and wiring, without tests, benchmarks and migrations."""
    return [each for each in sources if (each.is_app or each.parts[0] == "config") and not each.is_migration]


# one door per write ---------------------------------------------------------------------------------------------------

#: Which file may write which tables of memory, and nobody else.
DOORS = {
    "memory/rows.py": {"belief", "evidence", "fact", "payload"},
    "memory/factkeys.py": {"factkey"},
    "memory/subjects.py": {"subjectidentifier"},
    "memory/drawing.py": {"extraction"},
    "memory/proposals.py": {"candidate"},
    "memory/recall.py": {"receipt"},
    "memory/context.py": {"receipt"},
    "memory/receipts.py": {"receipt"},
    "memory/idempotency.py": {"idempotencyrecord"},
    "memory/suppression.py": {"suppression", "preventedreturn"},
    "memory/outbox.py": {"outboxentry"},
    "memory/checking.py": {"factkey"},
    "memory/endings.py": {"fact"},
    "memory/quarantine.py": {"episode"},
    "memory/lifetimes.py": {"candidate", "candidatesaying", "episode", "evidence", "fact", "payload"},
    "memory/terms.py": {"term"},
    "memory/derived.py": {"derived"},
    "memory/kept.py": {"derived", "derivedsource"},
    "memory/indexing.py": {"searchentry", "searchstate"},
    "memory/spending.py": {"modelbudget", "modelspending"},
    "memory/redacted.py": {"fact", "episode", "candidate", "evidence", "payload"},
    "memory/restriction.py": {"subject", "fact", "evidence", "episode", "candidate", "payload"},
    "memory/erasure.py": {
        *(
            "payload",
            "searchentry",
            "idempotencyrecord",
            "fact",
            "evidence",
            "belief",
            "factkey",
            "episode",
            "extraction",
            "procedureversion",
        ),
        *("candidate", "candidatesaying", "subject", "subjectidentifier", "derived"),
    },
    "memory/promotion.py": {"procedure", "procedureversion", "procedureevidence", "receipt"},
}
_WRITES = re.compile(
    r"\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM|MERGE\s+INTO|TRUNCATE|COPY)\s+memory_(\w+)", re.IGNORECASE
)
_ORM_WRITES = frozenset(
    [
        "create",
        "acreate",
        "save",
        "asave",
        "update",
        "aupdate",
        "delete",
        "adelete",
        "bulk_create",
        "abulk_create",
        "bulk_update",
        "abulk_update",
        "get_or_create",
        "aget_or_create",
        "update_or_create",
        "aupdate_or_create",
    ]
)


def test_rows_of_memory_are_written_by_their_doors_alone(ours: list[Source]) -> None:
    found = [
        f"{source.at(line)} writes memory_{table}"
        for source in ours
        for line, text in source.texts()
        for table in _WRITES.findall(text)
        if table.lower() not in DOORS.get(source.path, set())
    ]
    assert not found, "\n".join(found)


_PAST_HISTORY = re.compile(r"\b(\w+)\.objects\b[^\n]*\.a?(?:update|bulk_update|bulk_create)\(")
#: What counts, and says nothing about who did what.
COUNTERS = {("policies/publishing.py", "Tenant")}


def test_what_has_a_history_is_not_changed_past_it(ours: list[Source]) -> None:
    tracked = set(re.findall(r"\bclass (\w+)\((?:(?!\nclass ).)*?= HistoricalRecords\(", models_text(ours), re.DOTALL))
    assert {"Hold", "Matter", "Membership", "ProcedureVersion"} <= tracked
    found = {
        (source.path, model) for source in ours for model in _PAST_HISTORY.findall(source.text) if model in tracked
    }
    assert found == COUNTERS


def models_text(ours: list[Source]) -> str:
    return "\n".join(source.text for source in ours if source.path.endswith("/models.py"))


def test_sets_of_rows_are_declared_in_one_place(ours: list[Source]) -> None:
    found = [
        source.at(call.lineno)
        for source in ours
        if source.path != "memory/rows.py"
        for call, name in source.calls()
        if name.split(".")[-1] == "Table"
    ]
    assert not found, "\n".join(found)


def test_every_door_that_is_named_still_writes(ours: list[Source]) -> None:
    written = {
        source.path: {table.lower() for _, text in source.texts() for table in _WRITES.findall(text)} for source in ours
    }
    surplus = {
        path: sorted(tables - written.get(path, set()))
        for path, tables in DOORS.items()
        if tables - written.get(path, set())
    }
    assert surplus == {}


def test_rows_of_memory_are_never_made_or_changed_through_the_mapper(ours: list[Source]) -> None:
    found = []
    for source in ours:
        names = {name for name, full in source.imported().items() if full.startswith("memory.models.")}
        for call, name in source.calls():
            parts = name.split(".")
            if (parts[0] in names and len(parts) == 1) or (parts[0] in names and parts[-1] in _ORM_WRITES):
                found.append(source.at(call.lineno))
    assert not found, "\n".join(found)


def test_what_writes_through_the_mapper_is_a_door(ours: list[Source]) -> None:
    doors = {
        *("tenants/registry.py", "tenants/signing.py", "tenants/identities.py"),
        *("policies/publishing.py", "policies/approvals.py"),
        *(
            "retention/matters.py",
            "retention/restricting.py",
            "retention/requests.py",
            "retention/access.py",
            "retention/keeping.py",
        ),
        "retention/redaction.py",
    }
    found = [
        f"{source.at(call.lineno)} {name}"
        for source in ours
        if source.is_app and source.path not in doors
        for call, name in source.calls()
        if (name.rsplit(".", 1)[-1] in _ORM_WRITES and "." in name and ".objects" in ast.unparse(call.func))
        or name.endswith((".save", ".asave", ".adelete"))
    ]
    assert not found, "\n".join(found)


def test_no_trigger_or_policy_is_ever_set_aside(ours: list[Source]) -> None:
    forbidden = re.compile(r"session_replication_role|DISABLE\s+(TRIGGER|ROW)|row_security|BYPASSRLS", re.IGNORECASE)
    # They ask whether it is so, and see to it that it is.
    allowed = {"tenants/examination.py", "tenants/fitness.py", "config/embedded.py", "retention/backups.py"}
    found = [
        source.at(line)
        for source in ours
        if source.path not in allowed
        for line, text in source.texts()
        if forbidden.search(text)
    ]
    assert not found, "\n".join(found)


# time is an argument --------------------------------------------------------------------------------------------------

_CLOCKS = frozenset(
    [
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
        "time.time",
        "time.time_ns",
        "django.utils.timezone.now",
        "django.utils.timezone.localtime",
        "time.localtime",
        "time.gmtime",
    ]
)
#: Below the faces, what may look at the clock, since the clock is what it speaks of.
_MAY_LOOK = {"tenants/examination.py": {"_clock"}}


def test_nothing_below_a_face_reads_the_clock(ours: list[Source]) -> None:
    found = []
    for source in ours:
        if source.is_face:
            continue
        names = source.imported()
        excused = {
            id(call)
            for function in source.functions()
            if function.name in _MAY_LOOK.get(source.path, set())
            for call in ast.walk(function)
        }
        for call, name in source.calls():
            first, _, rest = name.partition(".")
            full = f"{names.get(first, first)}{'.' if rest else ''}{rest}"
            if full in _CLOCKS and id(call) not in excused:
                found.append(f"{source.at(call.lineno)} {full}")
    assert not found, "\n".join(found)


def test_no_instant_is_without_a_zone(ours: list[Source]) -> None:
    found = [
        source.at(call.lineno)
        for source in ours
        for call, name in source.calls()
        if name.endswith(("datetime.utcnow", "datetime.utcfromtimestamp"))
        or (name in ("datetime.now", "datetime.datetime.now") and not call.args and not call.keywords)
        or (
            name in ("datetime", "datetime.datetime")
            and call.args
            and not any(k.arg == "tzinfo" for k in call.keywords)
        )
    ]
    assert not found, "\n".join(found)


def test_no_model_stamps_itself(sources: list[Source]) -> None:
    found = [
        source.at(call.lineno)
        for source in sources
        if source.is_app
        for call, _ in source.calls()
        for keyword in call.keywords
        if keyword.arg in ("auto_now", "auto_now_add")
    ]
    assert not found, "\n".join(found)


# nothing happens behind one's back ------------------------------------------------------------------------------------


def test_no_app_listens_to_signals(ours: list[Source]) -> None:
    found = []
    for source in ours:
        if not source.is_app:
            continue
        names = source.imported()
        if any("signals" in full or full.endswith(".receiver") for full in names.values()):
            found.append(source.path)
    assert not found, "\n".join(found)


def test_work_is_asked_for_through_the_outbox_alone(ours: list[Source]) -> None:
    senders = {"apply_async", "delay", "delay_on_commit", "apply_async_on_commit", "send_task", "signature", "chord"}
    bells = {"config/celery.py"}  # what the outbox rings; it carries no arguments
    found = [
        f"{source.at(call.lineno)} {name}"
        for source in ours
        if source.path not in bells
        for call, name in source.calls()
        if name.rsplit(".", 1)[-1] in senders
    ]
    assert not found, "\n".join(found)


def test_tasks_take_ids_and_numbers_only(ours: list[Source]) -> None:
    allowed = {"UUID", "str", "int", "None", "float", "UUID | None"}
    found = []
    for source in ours:
        for function in source.functions():
            decorators = [dotted(each.func if isinstance(each, ast.Call) else each) for each in function.decorator_list]
            if not any(each.split(".")[-1] in ("task", "shared_task", "periodic_task") for each in decorators):
                continue
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            for argument in arguments:
                kind = "" if argument.annotation is None else ast.unparse(argument.annotation)
                is_id = (
                    argument.arg in ("self",)
                    or argument.arg.endswith(("id", "ids"))
                    or argument.arg in ("tenant", "limit")
                )
                if argument.arg != "self" and (kind not in allowed or not is_id):
                    found.append(f"{source.at(function.lineno)} {argument.arg}: {kind}")
    assert not found, "\n".join(found)


def test_no_message_carries_arguments(ours: list[Source]) -> None:
    found = [
        source.at(call.lineno)
        for source in ours
        for call, name in source.calls()
        if name.endswith(".send_task")
        and (len(call.args) > 1 or any(k.arg in ("args", "kwargs") for k in call.keywords))
    ]
    assert not found, "\n".join(found)


def test_no_model_overrides_save_or_delete(ours: list[Source]) -> None:
    names = {
        "save",
        "delete",
        "save_base",
        "full_clean",
        "save_model",
        "delete_model",
        "save_formset",
        "refresh_from_db",
    }
    found = [
        f"{source.at(member.lineno)} {node.name}.{member.name}"
        for source in ours
        if source.is_app
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, ast.FunctionDef) and member.name in names
    ]
    assert not found, "\n".join(found)


def test_no_relation_is_generic(sources: list[Source]) -> None:
    found = [
        source.path
        for source in sources
        if source.is_app
        and any("GenericForeignKey" in full or "GenericRelation" in full for full in source.imported().values())
    ]
    assert not found, "\n".join(found)


def test_no_manager_hides_rows(ours: list[Source]) -> None:
    found = [
        source.at(node.lineno)
        for source in ours
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef) and any(dotted(base).endswith("Manager") for base in node.bases)
    ]
    assert not found, "\n".join(found)


def test_migrations_import_nothing_of_ours(sources: list[Source]) -> None:
    found = [
        f"{source.path} {full}"
        for source in sources
        if source.is_migration
        for full in source.imported().values()
        if full.split(".")[0] in (*APPS, "config")
    ]
    assert not found, "\n".join(found)


def test_no_request_goes_below_a_face(ours: list[Source]) -> None:
    found = [
        f"{source.at(function.lineno)} {function.name}"
        for source in ours
        if not source.is_face
        for function in source.functions()
        for argument in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        if argument.arg in ("request", "http_request")
    ]
    found += [
        source.path
        for source in ours
        if not source.is_face
        and any(full.startswith(("django.http", "rest_framework")) for full in source.imported().values())
    ]
    assert not found, "\n".join(found)


def test_no_boolean_lets_anybody_past_a_check(ours: list[Source]) -> None:
    words = re.compile(r"^(skip|bypass|ignore|disable|force)(_|$)")
    allowed = {"force_insert"}
    found = [
        f"{source.at(function.lineno)} {argument.arg}"
        for source in ours
        if source.is_app
        for function in source.functions()
        for argument in [*function.args.args, *function.args.kwonlyargs]
        if words.match(argument.arg) and argument.arg not in allowed
    ]
    assert not found, "\n".join(found)


# names and words ------------------------------------------------------------------------------------------------------


def test_no_drawer_is_named_utils_or_the_like(files: list[str]) -> None:
    drawers = re.compile(r"^(utils?|helpers?|common|core|services?|managers?|misc|lib|constants|exceptions)(\.py)?$")
    found = [
        name
        for name in files
        # A template that stands in for one of the library's has that one's path.
        if not name.startswith(("docs/", "templates/unfold/")) and any(drawers.match(part) for part in name.split("/"))
    ]
    assert not found, "\n".join(found)


def test_only_launchers_and_commands_print(ours: list[Source]) -> None:
    found = [
        source.at(call.lineno)
        for source in ours
        if source.path not in LAUNCHERS
        for call, name in source.calls()
        if name in ("print", "pprint", "breakpoint")
    ]
    assert not found, "\n".join(found)


def test_every_module_class_and_function_for_others_says_what_it_does(ours: list[Source]) -> None:
    found = []
    for source in ours:
        if source.text.strip() and not ast.get_docstring(source.tree) and not source.path.endswith("/apps.py"):
            found.append(source.path)
        # A view's method and an option of Django's classes are described by what they implement.
        for node in source.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                if not ast.get_docstring(node) and not _implements(source, node):
                    found.append(f"{source.at(node.lineno)} {node.name}")
                if isinstance(node, ast.ClassDef) and not source.is_face:
                    found += [
                        f"{source.at(member.lineno)} {node.name}.{member.name}"
                        for member in node.body
                        if isinstance(member, ast.FunctionDef)
                        and not member.name.startswith("_")
                        and not ast.get_docstring(member)
                        and member.name not in ("deconstruct",)
                        and not _inherits(node)
                    ]
    assert not found, "\n".join(found)


def _implements(source: Source, node: ast.FunctionDef | ast.ClassDef) -> bool:
    bases = [dotted(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    if any(base.endswith(("AppConfig", "BaseCommand", "OperatorCommand", "Command")) for base in bases):
        return True
    return bool(bases) and source.path.endswith("admin.py")


def _inherits(node: ast.ClassDef) -> bool:
    return any(dotted(base) not in ("Exception", "StrEnum", "IntEnum", "Protocol") for base in node.bases)


def test_what_is_skipped_says_how_to_get_it(sources: list[Source]) -> None:
    how = re.compile(r"\b(install|set|unset|needs?|run|start|apt-get|pip|get it)\b", re.IGNORECASE)
    found = []
    for source in sources:
        if source.parts[0] != "tests":
            continue
        for call, name in source.calls():
            if name.split(".")[-1] not in ("skip", "skipif", "skipUnless", "skipIf", "xfail", "importorskip"):
                continue
            if not name.startswith(("pytest.", "unittest.")) and name not in ("skip", "skipif"):
                continue
            said = [
                text.value
                for argument in [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg != "exc_type")]
                for text in ast.walk(argument)
                if isinstance(text, ast.Constant) and isinstance(text.value, str)
            ]
            # A reason that stands under a name at the top of the file is read there.
            used = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
            said += [
                text.value
                for node in source.tree.body
                if isinstance(node, ast.Assign) and any(dotted(target) in used for target in node.targets)
                for text in ast.walk(node.value)
                if isinstance(text, ast.Constant) and isinstance(text.value, str)
            ]
            if not any(how.search(text) for text in said):
                found.append(source.at(call.lineno))
        for function in source.functions():
            if any(dotted(each).endswith((".skip", ".xfail")) for each in function.decorator_list):
                found.append(source.at(function.lineno))
    assert not found, "\n".join(found)


#: Spelled in parts, so that this file does not name what it looks for.
_REGISTRY_HOSTS = tuple(
    f"{name}.{end}"
    for name, end in (
        ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("crates", "io"),
        ("rubygems", "org"), ("docker", "io"), ("quay", "io"), ("ghcr", "io"), ("artifactory", ""), ("jfrog", "io"),
        ("anaconda", "org"), ("mirrors.aliyun", "com"), ("unpkg", "com"), ("jsdelivr", "net"), ("cdnjs.cloudflare", "com"),
        ("huggingface", "co"), ("proxy.golang", "org"),
    )
)  # fmt: skip
_MACHINE_PATHS = re.compile(r"(?<![\w.$}{~/-])/(?:work|tmp|root|home|Users|private|mnt|srv)/[A-Za-z0-9._-]+")


def test_no_file_names_a_registry_host_or_a_path_of_some_machine(files: list[str]) -> None:
    found = []
    for name in files:
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name} {host}" for host in _REGISTRY_HOSTS if host in text.lower()]
        found += [f"{name} {path}" for path in _MACHINE_PATHS.findall(text)]
    assert not found, "\n".join(found)


def test_no_lock_file_names_where_packages_come_from() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        assert not re.search(
            r"^\s*(-i|--index-url|--extra-index-url|--find-links)|https?://", lock.read_text(), re.MULTILINE
        )
