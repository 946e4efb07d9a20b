"""Headless Chromium, led through a pipe by the DevTools protocol: pages, keys, sizes, pictures."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

from served import skip

NAMES = ("chromium", "chromium-browser", "chromium-headless-shell")
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "\t")}
SHIFT = 8
DEADLINE = 60  # seconds until what a page should show counts as missing


def chromium_path():
    found = next((path for path in map(shutil.which, NAMES) if path), None)
    if found is None:
        skip("Chromium is not installed: `tools/install-chromium` brings it")
    return found


class Refused(AssertionError):
    """Chromium refused a command, as it does between two documents of a page."""


class Browser:
    """`with Browser() as browser:` and browser.page(url) is a page."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, to_write = os.pipe(), os.pipe()

        def connect():
            kept = [os.dup(to_read[0]), os.dup(to_write[1])]  # these may be 3 and 4 themselves
            os.dup2(kept[0], 3)
            os.dup2(kept[1], 4)

        self.process = subprocess.Popen(
            [chromium_path(), "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--no-first-run", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-lcd-text",
             f"--user-data-dir={self.folder.name}", "about:blank"],
            close_fds=False, preexec_fn=connect, stderr=subprocess.DEVNULL)
        os.close(to_read[0])
        os.close(to_write[1])
        self.to, self.back = os.fdopen(to_read[1], "wb", buffering=0), to_write[0]
        self.heard = b""
        self.count = 0
        self.pages = {}  # by session
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.to.close()
        os.close(self.back)
        self.folder.cleanup()

    def message(self):
        while b"\0" not in self.heard:
            part = os.read(self.back, 1 << 16)
            assert part, "chromium ended"
            self.heard += part
        text, _, self.heard = self.heard.partition(b"\0")
        return json.loads(text)

    def tell(self, method, session=None, **arguments):
        """The result of a command; events on the way go to their pages."""
        self.count += 1
        number = self.count
        told = {"id": number, "method": method, "params": arguments}
        if session:
            told["sessionId"] = session
        self.to.write(json.dumps(told).encode() + b"\0")
        while True:
            heard = self.message()
            if heard.get("id") == number:
                if "error" in heard:
                    raise Refused(method, heard["error"])
                return heard["result"]
            if "method" in heard and heard.get("sessionId") in self.pages:
                self.pages[heard["sessionId"]].hear(heard["method"], heard["params"])

    def page(self, url):
        context = self.tell("Target.createBrowserContext")["browserContextId"]
        target = self.tell("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, url)


class Page:
    """A page in a context of its own: nothing is stored in it before."""

    def __init__(self, browser, session, url):
        self.browser, self.session = browser, session
        self.problems = []  # exceptions, and what the console calls an error
        self.answers = []   # [part of a URL, answer]: what requests get in place of the server's answer
        browser.pages[session] = self
        for domain in ("Page", "Runtime", "Log"):
            self.tell(domain + ".enable")
        self.size(1280, 800)
        self.tell("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self):
        self.evaluate("window.isBeforeReload = true")
        self.tell("Page.reload")
        self.wait("document.readyState === 'complete' && !window.isBeforeReload")

    def tell(self, method, **arguments):
        return self.browser.tell(method, self.session, **arguments)

    def hear(self, method, event):
        if method == "Runtime.exceptionThrown":
            details = event["exceptionDetails"]
            self.problems.append(details.get("exception", {}).get("description", details["text"]))
        if method == "Log.entryAdded" and event["entry"]["source"] == "security":
            self.problems.append(event["entry"]["text"])
        if method == "Fetch.requestPaused":
            self.paused(event)

    def paused(self, event):
        """Sends a command without waiting for its result: another one's may be on the way."""
        known = [answer for part, answer in self.answers if part in event["request"]["url"]]
        method, more = "Fetch.continueRequest", {}
        if known and known[0] is None:
            method, more = "Fetch.failRequest", {"errorReason": "ConnectionRefused"}
        elif known:
            method, more = "Fetch.fulfillRequest", known[0]
        self.browser.count += 1
        told = {"id": self.browser.count, "method": method, "sessionId": self.session,
                "params": {"requestId": event["requestId"], **more}}
        self.browser.to.write(json.dumps(told).encode() + b"\0")

    def answer(self, part, status=200, body="", headers=None):
        """From now on requests with `part` in their URL get this; status 0: no server is there."""
        answer = None if status == 0 else {
            "responseCode": status, "body": base64.b64encode(body.encode()).decode(),
            "responseHeaders": [{"name": n, "value": v} for n, v in (headers or {}).items()]}
        self.answers = [(part, answer)]
        self.tell("Fetch.enable", patterns=[{"urlPattern": "*"}])

    def answer_as_the_server(self):
        self.answers = []
        self.tell("Fetch.disable")

    def evaluate(self, expression):
        result = self.tell("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, (expression, result["exceptionDetails"])
        return result["result"].get("value")

    def wait(self, expression):
        """Until the expression is true; its value."""
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                value = self.evaluate(expression)
            except Refused:
                value = None
            if value:
                return value
            assert time.monotonic() < deadline, \
                f"never: {expression}\n{self.problems}\n{self.evaluate('document.body.innerText')}"
            time.sleep(0.02)

    def press(self, key, modifiers=0):
        code, text = KEYS[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers}
        if text and key != "Tab":
            event["text"] = text
        self.tell("Input.dispatchKeyEvent", type="keyDown", **event)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **{**event, "text": ""})

    def write(self, text):
        """As typed where the focus is."""
        self.tell("Input.insertText", text=text)

    def click(self, selector, which=0):
        place = self.wait(f"""(() => {{
            const found = [...document.querySelectorAll({json.dumps(selector)})].at({which});
            if (!found) return null;
            found.scrollIntoView({{block: 'nearest'}});
            const box = found.getBoundingClientRect();
            return box.width && [box.x + box.width / 2, box.y + box.height / 2];
        }})()""")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.tell("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def size(self, width, height, scale=1, phone=False):
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=phone)

    def dark(self, is_dark):
        value = "dark" if is_dark else "light"
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def picture(self, path):
        shot = self.tell("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot))
