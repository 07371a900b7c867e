"""The sets of attributes to begin with: they load by name, and what people say of them is understood."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import call_command

from memory.extraction.checks import check
from memory.extraction.patterns import PatternExtractor
from memory.extraction.protocol import AttributeSlice, EpisodeText
from memory.extraction.structured import StructuredExtractor
from policies.definitions import load_definitions, starters

AT = datetime(2026, 6, 1, 9, tzinfo=UTC)


def slices(name: str) -> list[AttributeSlice]:
    return [AttributeSlice(each) for each in load_definitions(starters()[name].read_text(encoding="utf-8"))]


def said(name: str, text: str) -> dict[str, list[Any]]:
    episode = EpisodeText("user", text, AT, "mira")
    of = slices(name)
    found: dict[str, list[Any]] = {}
    for proposal in check(episode, of, PatternExtractor().extract(episode, of)).accepted:
        if proposal.confidence >= 0.5:
            found.setdefault(proposal.attribute, []).append(proposal.value)
    return found


@pytest.mark.parametrize("name", ["coding-agent", "support-agent"])
def test_a_starter_set_is_loaded_by_its_name(tenant: Any, name: str) -> None:
    out = io.StringIO()
    call_command("load_attributes", tenant.slug, name, json=True, stdout=out)
    loaded = json.loads(out.getvalue())["attributes"]
    assert {each["outcome"] for each in loaded} == {"created"}
    assert 10 <= len(loaded) <= 20
    assert all(each.definition.description for each in slices(name))


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("support-agent", "My name is Nora Lind.", {"preferred_name": ["Nora Lind"]}),
        ("support-agent", "You can reach me at nora@example.org.", {"contact_email": ["nora@example.org"]}),
        (
            "support-agent",
            "We are on the team plan and have 25 seats.",
            {"account_plan": ["team"], "account_seats": [25]},
        ),
        ("support-agent", "Our contract renews on 1 October 2026.", {"renewal_date": ["2026-10-01"]}),
        ("support-agent", "I speak Portuguese and Polish.", {"language": ["Portuguese", "Polish"]}),
        ("support-agent", "Thanks, that is all.", {}),
        ("support-agent", "What plans do you have?", {}),
        ("coding-agent", "The codebase is written in Python.", {"repository_language": ["Python"]}),
        ("coding-agent", "We use pnpm as package manager.", {"package_manager": ["pnpm"]}),
        ("coding-agent", "Keep the line length at 100 characters.", {"code_width": [100]}),
        ("coding-agent", "We squash every pull request.", {"merge_policy": ["squash"]}),
        ("coding-agent", "Please keep answers concise.", {"answer_style": ["concise"]}),
        ("coding-agent", "fix the failing test in utils", {}),
        ("coding-agent", "why does it fail in line 42?", {}),
        ("coding-agent", "I opened it in vim and it crashed", {}),  # a weak signal, which waits
    ],
)
def test_what_people_say_of_a_starter_set_is_understood(name: str, text: str, wanted: dict[str, list[Any]]) -> None:
    assert said(name, text) == wanted


def test_what_tools_answer_is_mapped() -> None:
    answer = {"repository": {"languages": ["Go", "Rust"], "default_branch": "main"}, "tests": {"result": "passed"}}
    episode = EpisodeText("tool", json.dumps(answer), AT, "repo", kind="tool_result")
    of = slices("coding-agent")
    found = [
        (each.attribute, each.value) for each in check(episode, of, StructuredExtractor().extract(episode, of)).accepted
    ]
    assert found == [
        ("repository_language", "Go"),
        ("repository_language", "Rust"),
        ("main_branch", "main"),
        ("last_test_result", "passed"),
    ]
