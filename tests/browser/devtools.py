"""A Chromium without a window, driven by its DevTools protocol over two pipes.

No package is needed for that: each message is JSON that ends in a null byte. Playwright would bring
a Node.js of 160 MB for the dozen calls that these tests make.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: Names the program, where it is not on PATH under one of the usual names.
VARIABLE = "NSYS_LLM_TEST_CHROMIUM"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)

#: Of parts of a picture: how many colours each has, and the share that is not its background.
_COUNT = """async (data, parts) => {
  const bytes = Uint8Array.from(atob(data), one => one.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], {type: "image/png"}));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(image, 0, 0);
  return parts.map(([x, y, width, height]) => {
    const pixels = new Uint32Array(context.getImageData(x, y, width, height).data.buffer);
    const counts = new Map();
    for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
    return [counts.size, 1 - Math.max(...counts.values()) / pixels.length];
  });
}"""

#: Where the elements of a selector are in the window, after the one with this number was brought
#: into it.
_PLACES = """async (selector, number) => {
  const all = [...document.querySelectorAll(selector)];
  all[number].scrollIntoView({block: "start", behavior: "instant"});
  const frame = () => new Promise(requestAnimationFrame);
  await frame(); await frame();
  return all.map(one => {
    const {x, y, width, height} = one.getBoundingClientRect();
    return [x, y, width, height].map(Math.round);
  });
}"""


def find_chromium() -> str | None:
    """Return the program to run, or None where there is none."""
    wanted = os.environ.get(VARIABLE)
    if wanted:
        return shutil.which(wanted)
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """A running browser. Use as a context manager.

    Args:
        program: What to run.
        profile: A new folder for what it keeps.
        flags: Further flags of its command line.
    """

    def __init__(self, program: str, profile: Path, flags: Sequence[str] = ()) -> None:
        to_child, self._to = os.pipe()
        self._from, from_child = os.pipe()

        def place_pipes() -> None:
            # The protocol has them at 3 and 4; the first copies are out of the way of these.
            read_end, write_end = os.dup(to_child), os.dup(from_child)
            os.dup2(read_end, 3)
            os.dup2(write_end, 4)

        self._process = subprocess.Popen(
            [program, *_FLAGS, *flags, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=place_pipes,
            pass_fds=(3, 4, to_child, from_child),
            env={**os.environ, "HOME": str(profile)},
            start_new_session=True,
        )
        os.close(to_child)
        os.close(from_child)
        self._buffer = b""
        self._last_id = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError):
            self._process.kill()
        self._process.wait(20)
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Call a method and return its result; events that come meanwhile are kept."""
        wanted = self._send(method, session, parameters)
        while True:
            answer = self._read(120)
            if answer.get("id") == wanted:
                break
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def page(self, width: int = 1400, height: int = 1000) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        return Page(self, attached["sessionId"], target, width, height)

    def _send(self, method: str, session: str | None, parameters: dict[str, Any]) -> int:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        return self._last_id

    def _read(self, timeout_s: float) -> dict[str, Any]:
        """Return the next message; events are kept too."""
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], timeout_s)[0]:
                raise TimeoutError("the browser does not answer")
            if not (data := os.read(self._from, 1 << 20)):
                raise OSError("the browser has ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
            if message["method"] == "Page.javascriptDialogOpening":
                # It would hold up the page; that it came is on record.
                handled = {"accept": True}
                self._send("Page.handleJavaScriptDialog", message.get("sessionId"), handled)
        return message


class Page:
    """One page of a browser; scripts in it, what it requested, and how it looks."""

    def __init__(self, browser: Browser, session: str, target: str, width: int, height: int):
        self._browser, self._session, self._target = browser, session, target
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        self._height = height
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def open(self, address: str) -> None:
        self.call("Page.navigate", url=address)

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)

    def run(self, script: str) -> Any:
        """Evaluate an expression, or wait for its promise, and return its value."""
        answer = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script[:200]}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, script: str, timeout_s: float = 120) -> None:
        end_s = time.monotonic() + timeout_s
        while not self._tried(script):
            if time.monotonic() > end_s:
                raise TimeoutError(f"never true: {script}")
            time.sleep(0.1)

    def _tried(self, script: str) -> bool:
        try:
            # An element itself, which has no value that could be sent, is true.
            return bool(self.run(f"!!({script})"))
        except RuntimeError:
            # A page that is being left has no context for a moment.
            return False

    def event_params(self, method: str) -> list[dict[str, Any]]:
        self.run("0")
        page_events = (
            event for event in self._browser.events if event.get("sessionId") == self._session
        )
        return [event["params"] for event in page_events if event["method"] == method]

    def requested(self, but: Callable[[str], bool]) -> list[str]:
        """Return the addresses that were requested, but those that a test expects."""
        urls = [
            request["request"]["url"] for request in self.event_params("Network.requestWillBeSent")
        ]
        return [url for url in urls if not url.startswith(("data:", "blob:")) and not but(url)]

    def screenshot(self) -> bytes:
        return base64.b64decode(self.call("Page.captureScreenshot", optimizeForSpeed=True)["data"])

    def pictures(self, selector: str, most_n: int = 100) -> list[tuple[int, float]]:
        """Return how many colours each element has on the screen, and the share that is inked.

        Args:
            selector: Of the elements.
            most_n: At least so many of them, from the first one on.
        """
        by_index: dict[int, tuple[int, float]] = {}
        count = self.run(f"document.querySelectorAll({json.dumps(selector)}).length")
        for number in range(min(count, most_n)):
            if number in by_index:
                continue
            places = self.run(f"({_PLACES})({json.dumps(selector)}, {number})")
            seen = {
                index: place
                for index, place in enumerate(places)
                if index == number or (place[1] >= 0 and place[1] + place[3] <= self._height)
            }
            # One that is higher than the window is looked at as far as it is in it.
            parts = [[x, max(y, 0), width, height] for x, y, width, height in seen.values()]
            data = base64.b64encode(self.screenshot()).decode()
            counts = self.run(f"({_COUNT})({json.dumps(data)}, {json.dumps(parts)})")
            by_index |= {index: tuple(picture) for index, picture in zip(seen, counts, strict=True)}
        return [by_index[index] for index in sorted(by_index)]
