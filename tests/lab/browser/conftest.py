"""One browser for all tests of pages; without one they are skipped, unless it must be there."""

import os

import pytest

from .browser import Browser, installed


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if installed() is None:
        if os.environ.get("FORERUN_BROWSER_REQUIRED"):
            pytest.fail("no browser is installed, and FORERUN_BROWSER_REQUIRED is set: apt-get install chromium")
        pytest.skip("pages are looked at in a browser, and none is installed: apt-get install chromium")
    found = Browser(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()
