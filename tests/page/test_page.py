# SPDX-License-Identifier: Apache-2.0
"""The built-in page of frt-host serve in a real browser: Debian's Chromium, headless, driven by playwright from PyPI.
Skipped (status 77) where either is missing; `tools/test --stage page` installs both. FRT_PAGE_SHOTS names a folder for
screenshots."""
import json
import os
import pathlib
import re
import shutil
import sys
import threading
import unittest

CHROMIUM = shutil.which("chromium")
PYTHON = pathlib.Path(os.environ.get("FRT_PAGE_PYTHON", ""))  # of a virtual environment that may have playwright
try:
    from playwright.sync_api import expect, sync_playwright
except ImportError:
    if PYTHON.is_file() and PYTHON.parent.parent != pathlib.Path(sys.prefix):
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    print("skipped: playwright is not installed; tools/test --stage page installs it")
    sys.exit(77)
if not CHROMIUM:
    print("skipped: chromium is not installed; tools/test --stage page installs it")
    sys.exit(77)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from lm_serving import LmServer  # noqa: E402
from robot_client import Client  # noqa: E402
from test_lm_serve import ALICE, BOB, LmServeTest  # noqa: E402
from test_robot_serve import PLUGINS as ROBOT_PLUGINS, Serving  # noqa: E402

SHOTS = os.environ.get("FRT_PAGE_SHOTS")
PATIENCE = 30_000  # ms, for one expectation
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script><b>bold</b>'
CODE = "Here it is:\n```c\nint main(void) { return 0; }\n```\nThat is all."
SCRIPT = {"replies": [
    {"when": {"last": "endless"}, "content": "again and ", "endless": True, "token_delay_us": 2000},
    {"when": {"last": "hostile"}, "reasoning": HOSTILE, "content": HOSTILE,
     "calls": [{"name": "weather", "arguments": {"city": HOSTILE}}]},
    {"when": {"last": "code"}, "content": CODE},
    {"when": {"last": "It rains"}, "content": "Take an umbrella."},
    {"when": {"last": "weather"}, "reasoning": "They ask for the weather.", "content": "I look.",
     "calls": [{"name": "weather", "arguments": {"city": "Kyoto"}}]},
    {"when": {"last": "fault"}, "content": "a word and then " * 8, "fault": {"after": 60, "kind": "error"}}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]


class PageTest(LmServeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.playwright = sync_playwright().start()
        cls.addClassCleanup(cls.playwright.stop)
        # Root has no sandbox of Chromium's.
        cls.browser = cls.playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        cls.addClassCleanup(cls.browser.close)

    def start(self, http="", slots=4, options=""):
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        manifest = self.model_manifest(
            "synthetic:none", plugin="test.scripted", options=f'script = "{script}"\nslots = {slots}\nmax_context = 65536\n{options}',
            extra=f'[host.http]\nmodel = "m"\n{http}\n[host.lm]\nmodel = "m"\ncapsule_min_tokens = 16\n'
                  f'capsule_dir = "{self.folder}/capsules"\n')
        return LmServer(self, manifest, plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"])

    def visit(self, port, **options):
        """A tab of its own, whose console must stay free of errors."""
        context = self.browser.new_context(viewport=options.pop("viewport", {"width": 1280, "height": 800}), **options)
        self.addCleanup(context.close)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        self.complaints = []
        page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"http://127.0.0.1:{port}/")
        return page

    def ready(self, port, **options):
        page = self.visit(port, **options)
        self.see(page.locator("#model-state"), re.compile("ready"))
        return page

    def see(self, locator, text):
        expect(locator).to_have_text(text, timeout=PATIENCE)

    def holds(self, locator, text):
        expect(locator).to_contain_text(text, timeout=PATIENCE)

    def numbered(self, locator, number):
        expect(locator).to_have_count(number, timeout=PATIENCE)

    def say(self, page, text, pane=0):
        """Says something and waits for the whole answer, which is returned."""
        box = page.get_by_role("textbox", name="Message", exact=True).nth(pane)
        answers = page.locator(".pane").nth(pane).locator(".assistant:not(.live)")
        before = answers.count()
        box.fill(text)
        box.press("Enter")
        self.numbered(answers, before + 1)
        return answers.nth(before)

    def waits(self, page, condition):
        """As until(), while the browser's events come in."""
        for _ in range(PATIENCE // 100):
            if condition():
                return
            page.wait_for_timeout(100)
        self.fail("it did not come")

    def shot(self, page, name):
        if SHOTS:
            page.screenshot(path=f"{SHOTS}/{name}.png")

    def quiet(self, *allowed):
        """Nothing was complained of but what has one of these words."""
        self.assertEqual([text for text in self.complaints if not any(word in text for word in allowed)], [])


class Chat(PageTest):
    def test_chat(self):
        """an answer streams in, with its latency, cached tokens, reasoning and code"""
        server = self.start()
        page = self.ready(server.port)
        self.assertEqual(page.evaluate("document.activeElement.getAttribute('aria-label')"), "Message")
        first = self.say(page, "Hello there")
        self.holds(first, "echo: Hello there")
        second = self.say(page, "Some code, please")
        self.assertEqual(second.locator("pre code").inner_text(), "int main(void) { return 0; }")
        facts = second.locator(".reply-facts")
        self.assertRegex(facts.locator("summary").inner_text(), r"[1-9]\d* cached \+ \d+ new · \d+ written · first after .* · stop")
        facts.locator("summary").click()
        for part in ("template", "prefill", "decode", "restored from a capsule"):
            self.holds(facts, part)
        self.assertGreater(facts.locator(".bar span").first.bounding_box()["width"], 0)
        self.shot(page, "chat")
        # Another beginning of the prompt misses, and the page says where.
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("System message").fill("Be brief.")
        third = self.say(page, "Again")
        third.locator(".reply-facts summary").click()
        self.holds(third, "Why did this miss?")
        self.shot(page, "settings-why")
        # The conversation outlives a reload.
        page.reload()
        self.numbered(page.locator(".assistant"), 3)
        self.quiet()

    def test_keys(self):
        """Enter sends, Shift+Enter is a new line, Esc stops; each control is reached by Tab and shows its focus"""
        server = self.start()
        page = self.ready(server.port)
        box = page.get_by_role("textbox", name="Message", exact=True)
        box.press("Enter")
        self.numbered(page.locator(".message"), 0)
        box.type("one")
        box.press("Shift+Enter")
        box.type("endless")
        self.assertEqual(box.input_value(), "one\nendless")
        box.press("Enter")
        self.holds(page.locator(".live"), "again and again")
        expect(page.get_by_role("button", name="Stop")).to_be_visible()
        expect(page.get_by_role("button", name="Send")).to_be_disabled()
        page.keyboard.press("Escape")
        answer = page.locator(".assistant:not(.live)")
        self.numbered(answer, 1)
        self.holds(answer, "again and again")
        self.see(page.locator("#status"), "Stopped.")
        self.until(lambda: server.metrics()['frt_lm_decoding{model="m"}'] == 0)
        expect(box).to_be_focused()
        page.locator("body").evaluate("() => document.activeElement.blur()")
        names = []
        for _ in range(20):
            page.keyboard.press("Tab")
            names.append(page.evaluate("""() => {
              const e = document.activeElement;
              const style = getComputedStyle(e);
              if (style.outlineStyle === 'none' && e.tagName !== 'BODY') return 'no outline: ' + e.outerHTML.slice(0, 80);
              return e.id || e.textContent.trim() || e.getAttribute('aria-label'); }"""))
        self.assertEqual([name for name in names if name.startswith("no outline")], [])
        wanted = ["Skip to the conversation", "model", "key", "tab-state", "New", "Fork", "Snapshot"]
        self.assertEqual([name for name in names if name in wanted], wanted)
        page.locator("#tab-state").focus()
        page.keyboard.press("ArrowRight")
        expect(page.get_by_role("heading", name="Settings")).to_be_visible()
        expect(page.locator("#tab-settings")).to_be_focused()
        self.quiet()

    def test_hostile(self):
        """what a model says is shown as it is, never run"""
        server = self.start()
        page = self.ready(server.port)
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("Tools").fill(json.dumps(TOOLS))
        answer = self.say(page, "hostile")
        self.holds(answer.locator("> .text"), HOSTILE)
        self.holds(answer.locator(".call pre"), "onerror")
        answer.locator(".reasoning summary").click()
        self.holds(answer.locator(".reasoning .text"), HOSTILE)
        self.assertEqual(page.locator(".message img, .message script, .message b b").count(), 0)
        self.assertEqual(page.title(), "FRT")
        # The policy would stop it even if it became markup.
        page.evaluate("document.body.append(document.createRange().createContextualFragment('<script>document.title=3</script>'))")
        self.assertEqual(page.title(), "FRT")
        self.assertEqual(len(self.complaints), 1)
        self.assertIn("Content Security Policy", self.complaints[0])

    def test_tools(self):
        """calls are shown, and their results go back"""
        server = self.start()
        page = self.ready(server.port)
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("Tools").fill(json.dumps(TOOLS))
        page.get_by_label("Thinking").select_option("on")
        answer = self.say(page, "weather?")
        self.holds(answer.locator(".call"), '"city": "Kyoto"')
        self.assertFalse(answer.locator(".reasoning").evaluate("e => e.open"))
        page.get_by_label("Result of weather").fill("It rains.")
        page.get_by_role("button", name="Send results").click()
        self.holds(page.locator(".assistant").nth(1), "umbrella")
        self.quiet()

    def test_results_again(self):
        """results of calls that an answer failed with are there to be sent again"""
        server = self.start()
        page = self.ready(server.port)
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("Tools").fill(json.dumps(TOOLS))
        self.say(page, "weather?")
        page.get_by_label("Temperature").fill("-1")
        page.get_by_label("Result of weather").fill("It rains.")
        page.get_by_role("button", name="Send results").click()
        self.holds(page.locator(".pane > .error"), "temperature")
        self.assertEqual(page.get_by_label("Result of weather").input_value(), "It rains.")
        page.get_by_label("Temperature").fill("0")
        page.get_by_role("button", name="Send results").click()
        self.holds(page.locator(".assistant").nth(1), "umbrella")
        self.quiet("400")

    def test_faults(self):
        """what fails is told, and the question is not lost"""
        server = self.start()
        page = self.ready(server.port)
        broken = self.say(page, "fault")
        self.holds(broken.locator(".error"), "request failed")
        page.get_by_role("tab", name="Settings").click()
        page.get_by_label("Temperature").fill("-1")
        box = page.get_by_role("textbox", name="Message", exact=True)
        box.fill("Hello")
        box.press("Enter")
        self.holds(page.locator(".pane > .error"), "temperature")
        self.assertEqual(box.input_value(), "Hello")
        self.numbered(page.locator(".message"), 2)
        self.quiet("400")


class State(PageTest):
    def test_tree(self):
        """sessions and capsules: snapshot, restore, fork, rewind, pin and delete, two branches side by side"""
        server = self.start()
        page = self.ready(server.port)
        self.say(page, "The first turn of a conversation")
        second = self.say(page, "The second turn of it")
        session = page.locator(".pane h2").inner_text()
        node = page.locator("#state li.here")
        self.numbered(node, 1)
        self.holds(node, session)

        page.locator(".pane").get_by_role("button", name="Snapshot").click()
        page.get_by_label("Name").fill("before")
        page.get_by_role("button", name="Keep").click()
        kept = page.locator("#state li", has=page.locator(".node b", has_text=re.compile("^before$"))).last
        for word in ("named", "disk"):
            self.holds(kept.locator(".node").first, word)
        kept.get_by_role("button", name="Pin before", exact=True).click()
        self.holds(kept.locator(".node").first, "pinned")
        kept.get_by_role("button", name="Unpin before").click()
        expect(kept.locator(".node").first).not_to_contain_text("pinned", timeout=PATIENCE)

        page.locator(".pane").get_by_role("button", name="Fork").click()
        self.numbered(page.locator(".pane"), 2)
        self.numbered(page.locator(".pane").nth(1).locator(".assistant"), 2)
        other = self.say(page, "The branch goes elsewhere", pane=1)
        self.assertNotIn("0 cached", other.locator("summary").last.inner_text())
        main = self.say(page, "The trunk goes on", pane=0)
        self.holds(main, "echo: The trunk")
        self.assertEqual(page.locator(".pane").nth(1).locator(".assistant").count(), 3)
        self.shot(page, "branches")
        self.numbered(page.locator("#state li.here"), 2)

        # Rewind by an answer, and by a boundary of the tree.
        main.locator("..").locator(".assistant").nth(1).get_by_role("button", name="Rewind to here").click()
        self.numbered(page.locator(".pane").first.locator(".assistant"), 2)
        self.holds(page.locator("#status"), "ends at that answer")
        again = self.say(page, "The trunk, once more", pane=0)
        self.assertNotIn("0 cached", again.locator("summary").last.inner_text())
        page.get_by_role("button", name=re.compile(f"^Rewind {session} to")).first.click()
        self.until(lambda: page.locator(".pane").first.locator(".assistant").count() < 3)

        # What was kept comes back, with its text.
        page.locator(".pane textarea").first.focus()
        page.get_by_role("button", name="Restore before").click()
        self.numbered(page.locator(".pane").first.locator(".assistant"), 2)
        self.holds(page.locator(".pane").first.locator(".assistant").nth(1), "echo: The second turn")
        third = self.say(page, "A third turn", pane=0)
        self.assertNotIn("0 cached", third.locator("summary").last.inner_text())

        page.get_by_role("button", name="Delete before").click()
        page.get_by_role("button", name="Cancel").click()
        expect(kept).to_be_visible()
        page.get_by_role("button", name="Delete before").click()
        self.shot(page, "confirm")
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        self.numbered(page.get_by_role("button", name="Delete before"), 0)
        self.assertEqual([each["id"] for each in server.request("GET", "/v1/capsules").json()["data"]
                          if each["kind"] == "named"], [])
        page.get_by_role("button", name=re.compile("^Close page-")).nth(1).click()
        self.numbered(page.locator(".pane"), 1)
        self.quiet("409")

    def test_foreign(self):
        """a capsule of another client is restored without its text, and the page says so"""
        server = self.start()
        server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "of an agent " * 8}]},
                       {"X-Session-Id": "agent"})
        server.request("POST", "/v1/sessions/agent/snapshot", {"name": "foreign"})
        page = self.ready(server.port)
        page.get_by_role("button", name="Restore foreign").click()
        self.holds(page.locator(".pane > .error"), "does not have")
        self.quiet()


class Server(PageTest):
    def test_about(self):
        """the server's parts are listed without a path"""
        server = self.start()
        page = self.ready(server.port)
        self.say(page, "Hello")
        page.get_by_role("tab", name="Server").click()
        self.holds(page.locator("#about"), "test.scripted")
        self.holds(page.locator("#about"), "slots in use")
        page.locator("#about details", has_text="[host.http]").locator("summary").click()
        self.holds(page.locator("#about"), "max_waiting")
        self.assertNotIn(str(self.folder), page.locator("#about").inner_text())
        self.shot(page, "about")
        self.quiet()

    def test_key(self):
        """a key is asked for where there are keys, kept in the tab alone, and its owner's state is all that is shown"""
        server = self.start(self.key_file())
        page = self.visit(server.port)
        dialog = page.get_by_role("dialog")
        self.holds(dialog, "asks for a key")
        self.shot(page, "key")
        dialog.get_by_label("Key").fill("schl\u00fcssel\u20ac")
        dialog.get_by_role("button", name="Use").click()
        self.assertIn("of ASCII", dialog.get_by_label("Key").evaluate("e => e.validationMessage"))
        self.holds(dialog, "asks for a key")
        dialog.get_by_label("Key").fill("wrong")
        dialog.get_by_role("button", name="Use").click()
        self.holds(page.get_by_role("dialog"), "does not know")
        page.get_by_role("dialog").get_by_label("Key").fill(ALICE)
        page.get_by_role("dialog").get_by_role("button", name="Use").click()
        self.see(page.locator("#model-state"), re.compile("ready"))
        self.say(page, "Hello of Alice, who has a key of her own")
        self.assertEqual(json.loads(page.evaluate("sessionStorage['frt.key']")), ALICE)
        self.assertEqual(page.evaluate("Object.keys(localStorage).length + document.cookie.length"), 0)
        self.assertNotIn(ALICE, page.content())
        self.numbered(page.locator("#state li.here"), 1)
        server.key = BOB
        self.assertEqual(server.request("GET", "/v1/sessions").json()["data"], [])
        self.quiet("401")

    def test_loading(self):
        """a model that loads is waited for"""
        go = self.folder / "go"
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        manifest = self.model_manifest("synthetic:none", plugin="test.scripted", extra='[host.http]\nmodel = "m"',
                                       options=f'script = "{script}"\nslots = 2\nloads_after = "{go}"')
        server = LmServer(self, manifest, wait=False, plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"])
        page = self.visit(server.port)
        self.see(page.locator("#model-state"), "loading")
        go.touch()
        self.see(page.locator("#model-state"), re.compile("ready"))
        self.quiet()

    def test_layout(self):
        """the page fits on a narrow screen, and is dark where the user wants it"""
        server = self.start()
        narrow = self.ready(server.port, viewport={"width": 360, "height": 640}, color_scheme="dark")
        self.say(narrow, "A word that is long: " + "x" * 200)
        self.say(narrow, "Some code, please").locator(".reply-facts summary").click()
        for name in ("Chat", "State", "Settings", "Server"):
            narrow.get_by_role("tab", name=name).click()
            narrow.wait_for_timeout(200)
            self.shot(narrow, f"narrow-{name.lower()}")
            self.assertLessEqual(narrow.evaluate("document.documentElement.scrollWidth"), 360, name)
        back = narrow.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertLess(sum(int(part) for part in re.findall(r"\d+", back)[:3]), 200)
        dark = self.ready(server.port, color_scheme="dark")
        self.say(dark, "weather in code")
        self.shot(dark, "dark")
        self.quiet()


class Robot(PageTest, Serving):
    def test_robot(self):
        """a policy that is served beside the model shows its latency and its misses"""
        manifest = self.policy_manifest('listen = "127.0.0.1:0"')
        manifest.write_text(manifest.read_text(encoding="utf-8") + """
[device.cpu1]
backend = "frt.cpu"
[model.m]
plugin = "test.scripted"
device = "cpu1"
checkpoint = "synthetic:none"
[host.http]
model = "m"
listen = "127.0.0.1:0"
""", encoding="utf-8")
        plugins = self.folder / "plugins"
        plugins.mkdir()
        for folder in (ROBOT_PLUGINS, os.environ["FRT_SCRIPTED_PLUGIN_DIR"]):
            for file in pathlib.Path(folder).glob("*.so"):
                shutil.copy(file, plugins)
        server = LmServer(self, manifest, plugins=plugins, listen=None)
        self.until(lambda: "ws://" in "".join(server.said))
        robot = Client(int(re.search(r"ws://127\.0\.0\.1:(\d+)", "".join(server.said)).group(1)))
        for _ in range(3):
            robot.infer(self.observation())
        page = self.ready(server.port)
        page.get_by_role("tab", name="Robot").click()
        panel = page.locator("#robot")
        self.see(panel.locator("dt:text-is('replies') + dd"), "3")
        self.see(panel.locator("dt:text-is('missed deadlines') + dd"), "0")
        self.holds(panel, "p99.9")
        threading.Thread(target=lambda: robot.infer(self.observation())).start()
        self.see(panel.locator("dt:text-is('replies') + dd"), "4")  # the panel looks again by itself
        self.shot(page, "robot")
        # The key of this tab is of no use any more: that is asked for once, not at each look.
        looks = []
        page.route("**/v1/policies/**", lambda route: (looks.append(1), route.fulfill(status=401, body="{}")))
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        looks.clear()
        self.waits(page, lambda: len(looks) >= 2)
        self.numbered(page.get_by_role("dialog"), 0)
        page.locator("#key").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        robot.close()
        self.quiet("401")


if __name__ == "__main__":
    unittest.main(verbosity=2)
