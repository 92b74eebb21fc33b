"""A page in use: Chromium driven by its DevTools protocol, so that keys and clicks are those of a person.

https://chromedevtools.github.io/devtools-protocol/. With ``--remote-debugging-pipe`` Chromium reads commands from
descriptor 3 and writes answers to 4, each a JSON text that ends with a zero byte. What it evaluates for us is not
subject to the page's own policy, so the page is used as it is.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from .browser import FLAGS
from .tools import tool

_PIPES = 'exec "$@" 3<&0 4>&1 </dev/null >/dev/null 2>&1'  # the shell puts our ends where Chromium expects them
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), " ": (32, " ")}
_SECONDS = 120


@dataclass
class Tab:
    """One page that is open."""

    process: subprocess.Popen[bytes]
    session: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command; events that come before it are passed over."""
        assert self.process.stdin and self.process.stdout
        number = next(self.numbers)
        command = {"id": number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        self.process.stdin.write(json.dumps(command).encode() + b"\0")
        self.process.stdin.flush()
        while True:
            message = json.loads(self._message())
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

    def eval(self, expression: str) -> Any:
        """The value of a JavaScript expression, once its promise is kept."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

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


@contextmanager
def opened(page: Path, profile: Path, *, scripts: bool = True, width: int = 1280) -> Iterator[Tab]:
    """``page`` in a browser of its own, gone at the end."""
    flags = (*FLAGS, "--remote-debugging-pipe", f"--user-data-dir={profile}", f"--window-size={width},1000")
    command = ["timeout", str(_SECONDS), "sh", "-c", _PIPES, "sh", tool("chromium"), *flags, "about:blank"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        tab = Tab(process)
        try:
            target = tab.call("Target.createTarget", url="about:blank")["targetId"]
            tab.session = tab.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
            tab.call("Page.navigate", url=page.as_uri())
            # Navigation answers before the page is there; evaluation works with the page's scripts off, too.
            while not tab.eval("location.protocol === 'file:' && document.readyState === 'complete'"):
                pass
            yield tab
        finally:
            tab.session = ""
            tab.call("Browser.close")
