"""A real browser for tests of pages, driven over its own pipe: no driver, no network, one process for all tests."""

import json
import os
import shutil
import subprocess
from itertools import count
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--hide-scrollbars",
    "--disable-dev-shm-usage", "--remote-debugging-pipe",
)  # fmt: skip


def installed():
    """Where a browser is; None if there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Opens pages of given text in a window of a given width, on light or dark paper."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        theirs, ours = os.pipe(), os.pipe()  # what it reads, what it writes
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$0" "$@" 3<&{theirs[0]} 4>&{ours[1]}', installed(), *FLAGS,
             f"--user-data-dir={folder / 'profile'}", "about:blank"],
            pass_fds=(theirs[0], ours[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs[0])
        os.close(ours[1])
        self._out, self._in = os.fdopen(theirs[1], "wb"), os.fdopen(ours[0], "rb")
        self._numbers = count(1)
        self._rest = b""
        self._session = None
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Page.enable")

    def show(self, html: str, width: int = 1200, dark: bool = False, height: int = 800) -> None:
        """Load a page, and wait until it is drawn."""
        page = self._folder / "page.html"
        page.write_text(html, encoding="utf-8")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._ask("Page.navigate", url=page.as_uri())
        self._until("Page.loadEventFired")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def run(self, script: str):
        """The value of an expression in the page."""
        found = self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def close(self) -> None:
        """End it."""
        self._out.close()
        self._process.terminate()
        self._process.wait(10)
        self._in.close()

    def _ask(self, method, **params):
        number = next(self._numbers)
        said = {"id": number, "method": method, "params": params}
        if self._session:
            said["sessionId"] = self._session
        self._out.write(json.dumps(said).encode() + b"\0")
        self._out.flush()
        return self._until(number)

    def _until(self, wanted):
        """The reply of this number, or the event of this name; what comes before it is dropped."""
        while True:
            while b"\0" not in self._rest:
                data = self._in.read1(1 << 16)
                assert data, "the browser is gone"
                self._rest += data
            line, _, self._rest = self._rest.partition(b"\0")
            heard = json.loads(line)
            if heard.get("id") == wanted:
                assert "error" not in heard, heard["error"]
                return heard["result"]
            if heard.get("method") == wanted:
                return heard["params"]
