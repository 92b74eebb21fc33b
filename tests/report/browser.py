"""A page in Chromium, driven by its DevTools protocol: seen, measured, clicked, worked by keys and printed.

https://chromedevtools.github.io/devtools-protocol/. With ``--remote-debugging-pipe`` Chromium reads commands from
descriptor 3 and writes answers to 4, each a JSON text that ends with a zero byte. What it evaluates for us is not
subject to the page's own policy, so the page is used as it is. One Chromium serves all tests of a module; each page is
in a tab of its own.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from laboratory.samples import sample

_FLAGS = (
    "--headless",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'  # the shell puts our ends where Chromium expects them
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}
_SECONDS = 900
_COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")

# Texts that lie on each other are counted within one chart at a time.
_MEASURE = sample(__file__, "cases/measure.js")


@dataclass
class Chromium:
    process: subprocess.Popen[bytes]
    complaints: list[dict[str, Any]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """The answer to one command; of events that come before it, complaints are kept."""
        assert self.process.stdin
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        self.process.stdin.write(json.dumps(command).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            message = json.loads(self._message())
            if message.get("method") in _COMPLAINTS:
                self.complaints.append(message["params"])
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _message(self) -> bytes:
        assert self.process.stdout
        text = bytearray()
        while (byte := self.process.stdout.read(1)) != b"\0":
            assert byte, "Chromium ended"
            text += byte
        return bytes(text)

    @contextmanager
    def opened(self, page: Path, *, scripts: bool = True, width: int = 1280) -> Iterator[Tab]:
        """``page`` in a tab of its own, gone at the end."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        try:
            for domain in ("Log", "Runtime", "Page"):
                tab.call(f"{domain}.enable")
            self.complaints.clear()
            tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
            tab.resize(width)
            tab.call("Page.navigate", url=page.as_uri())
            # Navigation answers before the page is there; evaluation works with the page's scripts off, too.
            while not tab.eval("location.protocol === 'file:' && document.readyState === 'complete'"):
                pass
            yield tab
        finally:
            self.call("Target.closeTarget", targetId=target)


@dataclass
class Tab:
    chromium: Chromium
    session: str

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.chromium.call(method, self.session, **parameters)

    def eval(self, expression: str) -> Any:
        """The value of a JavaScript expression, once its promise is kept."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def resize(self, width: int) -> None:
        """A screen of this width, which may be narrower than Chromium's own window can be."""
        screen = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **screen)

    def prefer(self, scheme: str) -> None:
        """``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def measure(self, width: int) -> dict[str, Any]:
        """How the page's charts and texts lie on a screen of this width."""
        self.resize(width)
        measured: dict[str, Any] = self.eval(_MEASURE)
        return measured

    def press(self, key: str) -> None:
        code, text = _KEYS[key]
        named = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **named)
        self.call("Input.dispatchKeyEvent", type="keyUp", **named)

    def click(self, element: str) -> None:
        """Click the middle of what the JavaScript expression ``element`` names."""
        box = self.eval(
            f"(e => {{ e.scrollIntoView({{block: 'center', behavior: 'instant'}}); "
            f"return e.getBoundingClientRect().toJSON() }})({element})"
        )
        where = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **where)

    def screenshot(self) -> bytes:
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def printed(self, file: Path) -> str:
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF")["data"]))
        return subprocess.run(["pdftotext", str(file), "-"], capture_output=True, text=True, check=True).stdout


@contextmanager
def running(profile: Path) -> Iterator[Chromium]:
    """Chromium with a profile of its own, ended at the end."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    flags = (*_FLAGS, f"--user-data-dir={profile}", "about:blank")
    command = ["timeout", str(_SECONDS), "sh", "-c", _PIPES, "sh", program, *flags]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        chromium = Chromium(process)
        try:
            yield chromium
        finally:
            chromium.call("Browser.close")
