"""The file that describes identity providers: what it may say, and what is said of one that says it wrongly."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from config.environment import ROOT, Environment
from tenants import providers
from tenants.fitness import refuse_to_start
from tenants.providers import Oidc, TrustedFactor, described, is_address, missing_libraries

OIDC: dict[str, Any] = {
    "kind": "oidc",
    "name": "company",
    "title": "Company",
    "discovery": "https://id.example/.well-known/openid-configuration",
    "client_id": "muniment",
}
SAML: dict[str, Any] = {"kind": "saml", "name": "campus", "title": "Campus", "entity_id": "https://i", "metadata": "/x"}


def text(*found: dict[str, Any], address: str = "https://memory.example") -> str:
    return json.dumps({"address": address, "providers": list(found)})


def test_a_secret_comes_from_its_file_or_the_environment_and_shows_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from-a-file\n")
    file = tmp_path / "sso.json"
    second = {**OIDC, "name": "other-one"}
    file.write_text(text({**OIDC, "client_secret_file": str(secret)}, second, {**OIDC, "name": "public"}))
    monkeypatch.setenv("MUNIMENT_SSO_FILE", str(file))
    monkeypatch.setenv(f"MUNIMENT_SSO_SECRET_{'OTHER_ONE'}", "from-the-environment")
    environment = Environment()
    known = environment.single_sign_on()
    assert known is not None
    secrets = [each.secret for each in known.providers if isinstance(each, Oidc)]
    assert [each and each.get_secret_value() for each in secrets] == ["from-a-file", "from-the-environment", None]
    for shown in (repr(known), known.model_dump_json(), repr(environment)):
        assert "from-" not in shown


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({**OIDC, "discovery": "http://id.example/.well-known/openid-configuration"}, "discovery"),
        ({**OIDC, "discovery": "https://id.example/"}, "oidc"),
        ({**OIDC, "discovery": "https://canary:pw@id.example/.well-known/openid-configuration"}, "discovery"),
        ({**OIDC, "name": "No Name"}, "name"),
        ({**OIDC, "client_secret": "canary"}, "client_secret"),
        ({**OIDC, "client_secret_file": "/canary/none"}, "its secret"),
        ({**OIDC, "trusted_second_factor": {}}, "trusted_second_factor"),
        ({**SAML, "metadata": "http://canary.example/metadata"}, "saml"),
        ({**SAML, "kind": "canary"}, "providers.0"),
    ],
)
def test_what_is_wrong_is_named_and_not_quoted(wrong: dict[str, Any], where: str) -> None:
    with pytest.raises(ValueError) as error:
        described(text(wrong), secret_of=lambda _: None)
    assert where in str(error.value)
    assert "canary" not in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("whole", ["canary", "[]", text(), text(OIDC, OIDC), text(OIDC, address="ftp://canary")])
def test_a_file_that_is_not_whole_is_refused(whole: str) -> None:
    with pytest.raises(ValueError) as error:
        described(whole, secret_of=lambda _: None)
    assert "canary" not in str(error.value)


def test_providers_are_asked_by_https_or_on_this_machine() -> None:
    assert all(is_address(each) for each in ("https://id.example/x", "http://127.0.0.1:1/x", "http://localhost/x"))
    wrong = ("http://id.example", "file:///etc/passwd", "//id.example", "https://", "https://u@id.example", None, 1)
    assert not any(is_address(each) for each in wrong)


def test_a_second_factor_is_shown_by_a_word_that_is_named_and_by_nothing_else() -> None:
    trusted = TrustedFactor(amr=("mfa",), acr=("strong",))
    assert trusted.is_shown(["pwd", "mfa"], None)
    assert trusted.is_shown(None, "strong")
    for amr, acr in ((["pwd"], "weak"), ("mfa", None), (None, None), ({"mfa": 1}, ["strong"])):
        assert not trusted.is_shown(amr, acr)


def test_without_its_libraries_nothing_starts_and_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = described(text(OIDC), secret_of=lambda _: None)
    monkeypatch.setattr(providers, "find_spec", lambda name: None)
    assert missing_libraries(None) == ""
    with pytest.raises(SystemExit) as ended:
        refuse_to_start(missing_libraries(known))
    assert ended.value.code == 3
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "make run EXTRAS=sso" in line
    monkeypatch.undo()
    refuse_to_start("")


def test_nothing_imports_what_the_extra_brings_until_somebody_signs_in_by_it() -> None:
    script = (
        "import django, sys; django.setup(); import config.urls, tenants.single_sign_on;"
        "from django.contrib import admin; admin.autodiscover();"
        "found = {'jwt', 'onelogin', 'xmlsec', 'lxml'} & set(sys.modules); assert not found, found"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
