"""A headless Chromium on a pipe: no driver, no port, no network; just enough to look at a page."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"),
    *("--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
LOCAL = ("file:", "data:", "blob:", "about:", "chrome:")


REDIRECT = re.compile(r'http-equiv="refresh" content="0; ?url=([^"]+)"', re.IGNORECASE)


def browser_path() -> str | None:
    """The browser of this machine, or None."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@dataclass
class Seen:
    """What went wrong while pages were open."""

    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


class Page:
    """One tab, driven over Chromium's DevTools protocol."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._buffer, self._number, self._session = b"", 0, ""
        self._loaded = False
        self.seen = Seen()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call("Network.setBlockedURLs", urls=["http://*", "https://*", "ws://*", "wss://*"])

    def open(self, path: Path, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        """Load a page from disk and wait until its scripts and formulas are done."""
        self.seen = Seen()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)
        self._loaded = False
        self._call("Page.navigate", url=_destination(path).resolve().as_uri())
        self._wait_for_load()
        self.evaluate("window.MathJax?.startup?.promise ?? null")
        self.evaluate("new Promise(done => setTimeout(done, 250))")

    def evaluate(self, script: str, seconds: float = 30) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        told = {"expression": script, "awaitPromise": True, "returnByValue": True}
        answer = self._call("Runtime.evaluate", seconds, **told)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("text", "script failed"))
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> Path:
        """A PNG of the whole page, made as tall as its content."""
        size = self.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        told = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **told)
        self.evaluate("new Promise(done => setTimeout(done, 200))")
        shot = self._call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(shot["data"]))
        return path

    def _wait_for_load(self, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not self._loaded:
            self._notice(self._next(end))

    def _call(self, method: str, seconds: float = 30, /, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + seconds
        while True:
            answer = self._next(end)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._notice(answer)

    def _next(self, end: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._receive], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise TimeoutError("the browser did not answer in time")
            data = os.read(self._receive, 1 << 20)
            if not data:
                raise ConnectionError("the browser ended")
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _notice(self, event: dict[str, Any]) -> None:
        """Keep what a reader would find in the console, and every request that leaves the disk."""
        told = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                said = details.get("exception", {}).get("description") or details["text"]
                self.seen.errors.append(said)
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "assert"):
                self.seen.errors.append(" ".join(str(a.get("value")) for a in told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] == "error":
                entry = told["entry"]
                self.seen.errors.append(f"{entry['text']} {entry.get('url', '')}")
            case "Network.requestWillBeSent":
                url = told["request"]["url"]
                if not url.startswith(LOCAL):
                    self.seen.elsewhere.append(url)


def _destination(path: Path) -> Path:
    """Where a page that only sends its reader on leads to: it must not leave in mid-question."""
    sent_on = REDIRECT.search(path.read_text(encoding="utf-8"))
    return path.parent / sent_on[1] if sent_on else path


@contextlib.contextmanager
def chromium(binary: str) -> Iterator[Page]:
    """Start a browser with an empty profile and end it afterwards."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    inner = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (to_browser, from_browser)]

    def place() -> None:
        os.dup2(inner[0], 3)
        os.dup2(inner[1], 4)

    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [binary, *FLAGS, f"--user-data-dir={profile}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=place,
        )
        for fd in (to_browser, from_browser, *inner):
            os.close(fd)
        try:
            yield Page(from_us, to_us)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            os.close(from_us)
            os.close(to_us)


def browser_or_skip(missed: str) -> Iterator[Page]:
    """A browser for a fixture; without one the tests are skipped, or fail where one is required."""
    binary = browser_path()
    if binary is None:
        if os.environ.get("ATTNLIB_REQUIRE_BROWSER") == "1":
            pytest.fail("ATTNLIB_REQUIRE_BROWSER is set and there is no chromium on the PATH")
        pytest.skip(f"no chromium on the PATH: {missed}")
    with chromium(binary) as opened:
        yield opened
