"""What code and documents say, read as text: no database, no import of what is described."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("config", "tenants", "policies", "memory", "retention")

_FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\">")


@cache
def documents() -> tuple[Path, ...]:
    """Return every document of the project."""
    return tuple(sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]))


@cache
def text_of(path: Path) -> str:
    """Return a file's text."""
    return path.read_text(encoding="utf-8")


def prose(path: Path) -> str:
    """Return a document without its code."""
    return _INLINE.sub("", _FENCE.sub("", text_of(path)))


def blocks(path: Path, language: str) -> list[str]:
    """Return the fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(path), re.DOTALL | re.MULTILINE)


def links(path: Path) -> list[str]:
    """Return the targets of a document's links."""
    return _LINK.findall(_FENCE.sub("", text_of(path)))


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a document, as the usual renderers make them of its headings."""
    text = _FENCE.sub("", text_of(path))
    found: dict[str, int] = {}
    names = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        names.add(slug if count == 0 else f"{slug}-{count}")
    return frozenset(names)


def words_in_code(path: Path) -> set[str]:
    """Return what a document says in code: each inline span, and each of its words."""
    found: set[str] = set()
    for span in _INLINE.findall(text_of(path)):
        found.add(span.strip("`"))
        found.update(re.findall(r"[A-Za-z0-9_.×-]+", span))
    return found


def table_under(path: Path, heading: str) -> list[list[str]]:
    """Return the rows of the tables under a heading (of any level), cells stripped, without their head."""
    rows: list[list[str]] = []
    inside = False
    level = 0
    for line in text_of(path).splitlines():
        title = re.match(r"(#{1,6}) +(.*)", line)
        if title:
            if inside and len(title[1]) <= level:
                break
            if title[2].strip() == heading:
                inside, level = True, len(title[1])
        elif inside and line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            cells = [cell.strip("| ") for cell in cells]
            rows.append(cells)
    return [row for place, row in enumerate(rows) if not _is_head(rows, place)]


def _is_head(rows: list[list[str]], place: int) -> bool:
    ruled = re.compile(r"[:\-| ]+")
    if all(ruled.fullmatch(cell) for cell in rows[place]):
        return True
    return place + 1 < len(rows) and all(ruled.fullmatch(cell) for cell in rows[place + 1])


# the code -------------------------------------------------------------------------------------------------------------


@cache
def modules() -> tuple[Path, ...]:
    """Return every module of the packages that says something: migrations and empty files say nothing."""
    return tuple(
        path
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts and "__pycache__" not in path.parts and text_of(path).strip()
    )


@cache
def tree(path: Path) -> ast.Module:
    """Return a module's syntax."""
    return ast.parse(text_of(path))


def nodes(*, under: tuple[str, ...] = PACKAGES, without: tuple[str, ...] = ()) -> Iterator[tuple[Path, ast.AST]]:
    """Yield every node of every module under some packages, except modules whose path has one of `without`."""
    for path in modules():
        place = path.relative_to(ROOT)
        if place.parts[0] in under and not set(place.parts) & set(without):
            for node in ast.walk(tree(path)):
                yield path, node


def called(node: ast.AST) -> str:
    """Return the last name of what a call calls; nothing for other nodes."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def texts(node: ast.AST | None) -> list[str]:
    """Return the texts that an expression may be: a constant, either arm of a condition, the items of a tuple."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return [*texts(node.body), *texts(node.orelse)]
    if isinstance(node, ast.Tuple | ast.List):
        return [text for item in node.elts for text in texts(item)]
    if isinstance(node, ast.BoolOp):
        return [text for item in node.values for text in texts(item)]
    return []


def argument(node: ast.Call, place: int, name: str = "") -> ast.AST | None:
    """Return an argument of a call by place or by name."""
    for keyword in node.keywords:
        if keyword.arg == name:
            return keyword.value
    return node.args[place] if len(node.args) > place else None


#: Raised or returned with a code as their first argument.
_PROBLEMS = frozenset(
    {"Problem", "Malformed", "Unauthenticated", "Forbidden", "Missing", "Clash", "Refused", "Unavailable", "Refusal"}
)
_FIELDS = {"FieldError": 1, "ValueRefused": 1, "_refuse": 0, "Refusal": 0}
_CODE = re.compile(r"[a-z][a-z0-9_]*")
#: Read from files by operators' commands, whose refusals never reach a client.
_OPERATORS = (
    "management",
    "evaluation",
    "registry.py",
    "identities.py",
    "documents.py",
    "definitions.py",
    "rules.py",
    "publishing.py",
)


def problem_codes() -> set[str]:
    """Return every `code` of a problem document that a client may see."""
    found: set[str] = set()
    for path, node in nodes(without=_OPERATORS):
        if isinstance(node, ast.Call):
            if called(node) in _PROBLEMS:
                found.update(texts(argument(node, 0, "code")))
            elif called(node) in {"Denied", "ValueRefused"}:
                found.update(texts(argument(node, 9 if called(node) == "Denied" else 1, "code")))
        elif isinstance(node, ast.ClassDef) and any(isinstance(each, ast.AnnAssign | ast.Assign) for each in node.body):
            names = {_target(each) for each in node.body}
            if {"status", "code"} <= names:
                found.update(text for each in node.body if _target(each) == "code" for text in texts(each.value))  # type: ignore[attr-defined]
        elif isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) in {"TITLES", "_CODES"}:
            wanted = node.value.keys if _target(node) == "TITLES" else node.value.values  # type: ignore[union-attr]
            if _target(node) == "TITLES" or path.name == "values.py":
                found.update(text for each in wanted for text in texts(each))
    return {code for code in found if _CODE.fullmatch(code)}


def field_codes() -> set[str]:
    """Return every code of one field that a client may see."""
    found: set[str] = set()
    for path, node in nodes(without=_OPERATORS):
        name = called(node)
        if isinstance(node, ast.Call) and name in _FIELDS and path.name != "authentication.py":
            if name == "Refusal" and argument(node, 1, "path") is None:
                continue
            found.update(texts(argument(node, _FIELDS[name], "code")))
        if isinstance(node, ast.Call) and name == "PydanticCustomError":
            found.update(
                text
                for each in node.args
                if isinstance(each, ast.Dict)
                for value in each.values
                for text in texts(value)
            )
        if isinstance(node, ast.Assign) and _target(node) == "_CODES":
            found.update(text for each in node.value.values for text in texts(each))  # type: ignore[attr-defined]
    return {code for code in found if _CODE.fullmatch(code)}


def reasons() -> set[str]:
    """Return every reason that a verdict may give, and every decisive rule that is built in."""
    found: set[str] = set()
    for _, node in nodes(under=("policies", "memory"), without=_OPERATORS):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in {"reasons", "rule"}:
                    found.update(texts(keyword.value))
            if called(node) == "_Rejected":
                found.update(texts(argument(node, 1, "reason")))
                found.update(f"builtin.{step}" for step in texts(argument(node, 0, "step")))
            elif called(node) in {"_reject", "verdict", "Course"}:
                found.update(text for each in node.args for text in texts(each))
        elif isinstance(node, ast.FunctionDef) and node.name in {"_needs_a_person", "conflict"}:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return):
                    found.update(texts(inner.value))
        elif isinstance(node, ast.Assign) and (
            _target(node) in {"reasons", "UNDECIDED"}
            or (isinstance(node.targets[0], ast.Attribute) and node.targets[0].attr == "settled")
        ):
            found.update(texts(node.value))
    return {word for word in found if re.fullmatch(r"(builtin\.)?[a-z][a-z_]*", word)} - {"none", "reviewer"}


def _target(node: ast.AST) -> str:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def enum_values(path: str, name: str) -> set[str]:
    """Return the values of a StrEnum by its module and name."""
    for node in ast.walk(tree(ROOT / path)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return {text for each in node.body if isinstance(each, ast.Assign) for text in texts(each.value)}
    raise LookupError(name)


def commands() -> set[str]:
    """Return the names of our management commands."""
    return {
        path.stem
        for package in PACKAGES
        for path in (ROOT / package).glob("management/commands/*.py")
        if not path.stem.startswith("_")
    }


def variables() -> set[str]:
    """Return every environment variable that we read: those of `Environment`, and those that are named in code."""
    found = set()
    for node in ast.walk(tree(ROOT / "config" / "environment.py")):
        if isinstance(node, ast.ClassDef) and node.name == "Environment":
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    alias = next(
                        (
                            keyword.value.value
                            for keyword in getattr(each.value, "keywords", [])
                            if keyword.arg == "validation_alias"
                        ),
                        None,
                    )
                    found.add(alias or f"MUNIMENT_{each.target.id.upper()}")
    for directory in (*PACKAGES, "benchmarks", "tests"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            if path.parent.name != "docs":
                found.update(re.findall(r"\bMUNIMENT_[A-Z][A-Z_]*[A-Z]\b", text_of(path)))
    for path in (ROOT / "manage.py", ROOT / "Makefile", *(each for each in (ROOT / ".ci").glob("*") if each.is_file())):
        found.update(re.findall(r"\bMUNIMENT_[A-Z][A-Z_]*[A-Z]\b", text_of(path)))
    return found


def metrics() -> set[str]:
    """Return the names of our metrics."""
    return {
        text
        for _, node in nodes()
        if called(node) in {"Histogram", "Counter", "Gauge", "GaugeMetricFamily", "CounterMetricFamily"}
        for text in texts(argument(node, 0))  # type: ignore[arg-type]
    }


def suite_by_id() -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return every test function by `path::name` (or `path::Class::name`)."""
    found: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        place = path.relative_to(ROOT).as_posix()
        for node in tree(path).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                found[f"{place}::{node.name}"] = node
            elif isinstance(node, ast.ClassDef):
                for each in node.body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                        found[f"{place}::{node.name}::{each.name}"] = each
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                # A hypothesis state machine is run by its TestCase: `TestLedger = Ledger.TestCase`.
                name = node.targets[0].id
                if name.startswith("Test") and isinstance(node.value, ast.Attribute) and node.value.attr == "TestCase":
                    stands_for = ast.parse("def run(): pass").body[0]
                    assert isinstance(stands_for, ast.FunctionDef)
                    found[f"{place}::{name}"] = stands_for
    return found


def skipped_always(node: ast.FunctionDef | ast.AsyncFunctionDef, path: Path) -> bool:
    """Whether a test is skipped whatever the circumstances, by its own mark or its module's."""
    marks = [ast.unparse(each) for each in node.decorator_list]
    for each in tree(path).body:
        if isinstance(each, ast.Assign) and _target(each) == "pytestmark":
            marks.append(ast.unparse(each.value))
    return any(re.search(r"mark\.skip(?!if)|mark\.xfail", mark) for mark in marks)
