"""Drive a headless Chromium over its debugging pipe, which is two file descriptors and JSON: no package is needed."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
# a busy machine starts a browser in a few seconds
LIMIT_S = 30.0
# the browser wants its pipes at 3 and 4
_LAUNCH = Path(__file__).parent / "programs" / "pipes_at_3_and_4.py"


class Page:
    """One tab, with the part of the debugging protocol that the tests need."""

    def __init__(self, process: subprocess.Popen[bytes], to: int, back: int) -> None:
        self._process, self._to, self._back = process, to, back
        self._buffer, self._number, self._session = b"", 0, ""
        self.console: list[str] = []
        # URL of every request of the page
        self.requested: list[str] = []
        self._target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            found = self._receive(deadline_s)
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return found["result"]
            self._note(found)

    def _receive(self, deadline_s: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left_s = deadline_s - time.monotonic()
            assert left_s > 0, "the browser does not respond"
            if select.select([self._back], [], [], left_s)[0]:
                part = os.read(self._back, 1 << 20)
                assert part, "the browser exited"
                self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        return found

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.console.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in {"error", "assert"}:
            self.console.append(json.dumps(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    def size(self, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Look at another tab for the length of the with block."""
        other = self.send("Target.createTarget", url="about:blank")["targetId"]
        try:
            self.wait("document.hidden")
            yield
        finally:
            self.send("Target.closeTarget", targetId=other)
            self.send("Target.activateTarget", targetId=self._target)
        self.wait("!document.hidden")

    def go(self, url: str) -> None:
        answer = self.send("Page.navigate", url=url)
        assert "errorText" not in answer, answer

    def evaluate(self, expression: str) -> Any:
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer["exceptionDetails"])
        return answer["result"].get("value")

    def wait(self, expression: str) -> Any:
        """Wait until *expression* is true, and return it; errors count as false, as while the page is loading."""
        deadline_s = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(AssertionError):
                if found := self.evaluate(expression):
                    return found
            assert time.monotonic() < deadline_s, (expression, self.console, self.text("body")[:2000])
            time.sleep(0.05)

    def text(self, selector: str) -> str:
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def fill(self, selector: str, text: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.evaluate("document.activeElement.select()")
        self.send("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def key(self, name: str) -> None:
        codes = {"Tab": 9, "Enter": 13, "Escape": 27}
        event = {"key": name, "code": name, "windowsVirtualKeyCode": codes[name]}
        self.send("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": "\r"} if name == "Enter" else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.send("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def chromium(directory: Path) -> Iterator[Page]:
    """Start a browser and yield its page; *directory* is its profile."""
    assert PROGRAM is not None
    to_read, to_write = os.pipe()
    back_read, back_write = os.pipe()
    options = (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--remote-debugging-pipe", f"--user-data-dir={directory}", "about:blank"),
    )
    with (directory / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, _LAUNCH, str(to_read), str(back_write), PROGRAM, *options],
            pass_fds=[to_read, back_write],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.close(to_read)
    os.close(back_write)
    try:
        page = Page(process, to_write, back_read)
        yield page
        page._session = ""
        with contextlib.suppress(AssertionError, OSError):
            page.send("Browser.close")
    finally:
        for descriptor in (to_write, back_read):
            os.close(descriptor)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
