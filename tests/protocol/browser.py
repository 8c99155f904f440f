# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium that tests drive by the DevTools protocol, over the pipe that it has for that.

Messages are JSON objects with a NUL behind each: commands on the browser's descriptor 3, answers and events on its 4
(https://chromedevtools.github.io/devtools-protocol/).
"""

import base64
import contextlib
import itertools
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time

import pytest

# CI installs it, and takes a skip for want of it as a failure (tests/conftest.py); elsewhere a browser is a lot to ask for.
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="this machine has no chromium (scripts/install_deps.sh ci)")
TIMEOUT_S = 60
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--mute-audio", "--remote-debugging-pipe", "about:blank",
]  # fmt: skip
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowRight": (39, ""), "ArrowLeft": (37, "")}


class Tab:
    """One page of the browser, alone in a context of its own: nothing is left of it for the next."""

    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context
        self.errors = []  # exceptions of scripts and what the policy of the page refused
        self.requests = []  # (method, url, body) of what it asked for
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        return self.browser.call(method, parameters, self.session)

    def on_event(self, method, event):
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Log.entryAdded" and event["entry"]["source"] in ("security", "javascript"):
            self.errors.append(event["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            request = event["request"]
            self.requests.append((request["method"], request["url"], request.get("postData")))

    def resize(self, width, height, is_dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        answer = self.call("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self.wait("document.readyState === 'complete'")

    def value(self, expression):
        """What an expression, awaited, is in the page, as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def wait(self, expression):
        """The first value of an expression that is true, of an element True; the test fails where none comes."""
        plain = f"(async () => {{ const found = await ({expression}); return found instanceof Node ? true : found; }})()"
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(AssertionError):  # such as while the page changes
                if value := self.value(plain):
                    return value
            time.sleep(0.02)
        pytest.fail(f"never true: {expression}\n{self.errors}\n{self.value('document.body.innerText')}")

    def click(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def focus(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")

    def type(self, text):
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        code, text = KEYS[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    def fill(self, selector, text):
        self.value(
            f"(() => {{ const field = document.querySelector({json.dumps(selector)}); field.value = {json.dumps(text)};"
            " field.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )

    def clipboard(self, value="clipboard.readText()"):
        """What an expression of `clipboard` is; the first use of the page's own, also where the page sees none of it any more."""
        self.browser.call(
            "Browser.grantPermissions",
            {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "browserContextId": self.context},
        )
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)  # pages without the focus may not read
        return self.value(f"((clipboard) => {value})(window.keptClipboard ??= navigator.clipboard)")

    def accessible(self):
        """(role, name) of what a screen reader finds."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        found = [n for n in nodes if not n.get("ignored")]
        return [(n["role"]["value"], n.get("name", {}).get("value", "")) for n in found]

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


class Browser:
    def __init__(self, profile):
        command_read, self.write_end = os.pipe()
        self.read_end, event_write = os.pipe()

        def give_pipes():
            # Neither may lie where the other is put.
            read_end, write_end = os.dup(command_read), os.dup(event_write)
            os.dup2(read_end, 3)
            os.dup2(write_end, 4)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        self.process = subprocess.Popen(
            [CHROMIUM, f"--user-data-dir={profile}", *FLAGS], preexec_fn=give_pipes, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(command_read)
        os.close(event_write)
        self.ids = itertools.count(1)
        self.answers = {}  # id -> queue of one
        self.tabs = {}  # session -> tab
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        rest = b""
        while block := os.read(self.read_end, 1 << 20):
            *messages, rest = (rest + block).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers.pop(message["id"]).put(message)
                elif tab := self.tabs.get(message.get("sessionId")):
                    tab.on_event(message["method"], message["params"])

    def call(self, method, parameters, session=None):
        number = next(self.ids)
        answer = self.answers[number] = queue.Queue(1)
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        got = answer.get(timeout=TIMEOUT_S)
        assert "error" not in got, (method, got)
        return got["result"]

    @contextlib.contextmanager
    def tab(self, width=1280, height=800, is_dark=False):
        context = self.call("Target.createBrowserContext", {})["browserContextId"]
        target = self.call("Target.createTarget", {"url": "about:blank", "browserContextId": context})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        tab = self.tabs[session] = Tab.__new__(Tab)
        tab.__init__(self, session, context)
        tab.resize(width, height, is_dark)
        try:
            yield tab
        finally:
            del self.tabs[session]
            self.call("Target.disposeBrowserContext", {"browserContextId": context})

    def close(self):
        with contextlib.suppress(Exception):
            self.call("Browser.close", {})
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self.write_end)
