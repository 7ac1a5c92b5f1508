# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chromium without a window, by the DevTools protocol over a pipe."""

import base64
import json
import os
import select
import subprocess
import tempfile

PATIENCE = 300 # seconds


class Browser:
    """One page that goes from address to address."""

    def __init__(self, program="chromium"):
        self.profile = tempfile.TemporaryDirectory()
        # It reads commands from descriptor 3 and writes answers to 4.
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        script = f"exec 3<&{commands} 4>&{answers}; exec \"$@\""
        self.process = subprocess.Popen(
            ["bash", "-c", script, "bash", program, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--disable-dev-shm-usage", "--no-first-run", f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(commands, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.number, self.buffer, self.session, self.loaded = 0, b"", None, False
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.call("Page.enable")

    def read(self):
        while b"\0" not in self.buffer:
            if not select.select([self.answers], [], [], PATIENCE)[0]:
                raise TimeoutError(f"expected an answer of the browser in {PATIENCE} s, but got none")
            data = os.read(self.answers, 1 << 20)
            if not data:
                raise EOFError("expected an answer of the browser, but it has ended")
            self.buffer += data
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        self.loaded |= message.get("method") == "Page.loadEventFired"
        return message

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def scheme(self, name):
        """Prefers light or dark colours."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])

    def go(self, address):
        self.loaded = False
        self.call("Page.navigate", url=address)
        while not self.loaded:
            self.read()

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", "an error in the page"))
        return result["result"].get("value")

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.call("Browser.close")
        self.process.wait(30)
        self.profile.cleanup()
