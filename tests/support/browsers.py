"""Chromium by Selenium, Firefox by WebDriver BiDi, which it speaks itself: headless, and cut off from every network.

Both have the same methods, and give what a script returns as JSON's values.
"""

import base64
import contextlib
import itertools
import json
import re
import shutil
import subprocess
import time

import psutil
import pytest

NOWHERE = "127.0.0.1:9"  # a proxy that does not answer
WAIT = 60  # seconds


class Browser:
    """What both have in common."""

    def wait_for(self, condition):
        """Waits until a JavaScript expression is true; its value."""
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            if value := self.run(f"return {condition}"):
                return value
            time.sleep(0.05)
        raise AssertionError(f"after {WAIT} s not true: {condition}; {self.run('return document.body.innerText')}")

    def memory(self):
        """Bytes of the browser's processes."""
        total = 0
        for process in [self.process, *self.process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        return total


class Chromium(Browser):
    def __init__(self, folder):
        from selenium import webdriver

        programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
        if None in programs:
            pytest.skip("Chromium and its driver are not installed: apt-get install chromium chromium-driver")
        options = webdriver.ChromeOptions()
        options.binary_location = programs[0]
        always = (
            "headless=new",
            "no-sandbox",
            "disable-dev-shm-usage",
            "js-flags=--expose-gc",
            "enable-unsafe-swiftshader",
        )
        camera = ("use-fake-device-for-media-stream", "use-fake-ui-for-media-stream")
        for argument in (*always, *camera, f"proxy-server={NOWHERE}"):
            options.add_argument(f"--{argument}")
        service = webdriver.ChromeService(executable_path=programs[1])
        self.driver = webdriver.Chrome(options=options, service=service)
        self.process = psutil.Process(service.process.pid)

    def open(self, address, before=""):
        """Opens an address; the script `before` runs before the page's own."""
        if before:
            self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": before})
        self.driver.get(address)

    def run(self, script):
        return json.loads(
            self.driver.execute_script(f"return (async () => {{{script}}})().then(x => JSON.stringify(x ?? null))")
        )

    def choose(self, file):
        self.driver.find_element("id", "file").send_keys(str(file))

    def press(self, *keys):
        from selenium.webdriver import ActionChains, Keys

        ActionChains(self.driver).send_keys(*(getattr(Keys, key.upper()) for key in keys)).perform()

    def resize(self, width, height, dark=False):
        size = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})

    def draw(self, path):
        picture = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        self.driver.quit()


PREFERENCES = {
    "network.proxy.type": 1,
    "network.proxy.http": NOWHERE.partition(":")[0],
    "network.proxy.http_port": int(NOWHERE.partition(":")[2]),
    "network.proxy.ssl": NOWHERE.partition(":")[0],
    "network.proxy.ssl_port": int(NOWHERE.partition(":")[2]),
    "media.navigator.streams.fake": True,
    "media.navigator.permission.disabled": True,
    "datareporting.policy.dataSubmissionEnabled": False,
    "browser.shell.checkDefaultBrowser": False,
}


class Firefox(Browser):
    def __init__(self, folder):
        import websocket

        program = shutil.which("firefox") or shutil.which("firefox-esr")
        if program is None:
            pytest.skip("Firefox is not installed: apt-get install firefox-esr")
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in PREFERENCES.items()]
        (folder / "user.js").write_text("\n".join(lines))
        log = folder / "log"
        command = [program, "--headless", "--no-remote", "--profile", str(folder), "--remote-debugging-port=0"]
        with open(log, "w") as file:
            self.process = psutil.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + WAIT
        while not (found := re.search(r"listening on (ws://\S+)", log.read_text())):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        self.socket = websocket.create_connection(f"{found[1]}/session", suppress_origin=True, timeout=WAIT)
        self.numbers = itertools.count()
        self.send("session.new", capabilities={})
        self.tab = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            reply = json.loads(self.socket.recv())
            if reply.get("id") == number:
                assert reply["type"] == "success", reply
                return reply["result"]

    def open(self, address, before=""):
        """Opens an address; the script `before` runs before the page's own."""
        if before:
            self.send("script.addPreloadScript", functionDeclaration=f"() => {{{before}}}")
        self.send("browsingContext.navigate", context=self.tab, url=address, wait="complete")

    def evaluate(self, expression, **options):
        target = {"context": self.tab}
        done = self.send("script.evaluate", expression=expression, target=target, awaitPromise=True, **options)
        assert done["type"] == "success", done
        return done["result"]

    def run(self, script):
        done = self.evaluate(f"(async () => {{{script}}})().then(x => JSON.stringify(x ?? null))", userActivation=True)
        return json.loads(done["value"])

    def choose(self, file):
        element = self.evaluate("document.getElementById('file')")
        self.send("input.setFiles", context=self.tab, element={"sharedId": element["sharedId"]}, files=[str(file)])

    def press(self, *keys):
        values = {"tab": "\ue004", "enter": "\ue007", "space": " ", "arrow_right": "\ue014", "escape": "\ue00c"}
        actions = [{"type": kind, "value": values[key]} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self.send("input.performActions", context=self.tab, actions=[source])

    def resize(self, width, height):
        self.send("browsingContext.setViewport", context=self.tab, viewport={"width": width, "height": height})

    def draw(self, path):
        picture = self.send("browsingContext.captureScreenshot", context=self.tab, origin="document")
        path.write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        with contextlib.suppress(Exception):
            self.send("browser.close")
        try:
            self.process.wait(10)
        except psutil.TimeoutExpired:
            self.process.kill()


BROWSERS = {"chromium": Chromium, "firefox": Firefox}
