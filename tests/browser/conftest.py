"""A real browser before the application as it is served: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.serving import Site, serving
from tests.database_plugin import Servers

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """Chromium, started once, and gone with these tests: while it runs, this thread is inside an event loop."""
    if CHROMIUM is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    # Playwright runs an event loop in this thread, which Django takes for asynchronous code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--font-render-hinting=none"]
        )
        yield chromium
        chromium.close()
    os.environ.pop("DJANGO_ALLOW_ASYNC_UNSAFE", None)


@pytest.fixture(scope="session")
def site(database: Servers) -> Iterator[Site]:
    """The application on a port of its own."""
    with serving() as site:
        yield site


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pictures go: `MUNIMENT_PICTURES`, or nowhere that lasts."""
    named = os.environ.get("MUNIMENT_PICTURES", "")
    folder = Path(named) if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    return folder
