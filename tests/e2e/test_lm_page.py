# SPDX-License-Identifier: Apache-2.0
"""frt-host serve: the files of the built-in page, and the routes that are there for it. No browser: tests/page has one."""
import gzip
import html.parser
import json
import re
import unittest

from lm_serving import LmServer, schema_errors
from support import MANIFEST, OK, SOURCE
from test_lm_serve import ALICE, LmServeTest

FOLDER = SOURCE / "hosts/http/page"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js", ".svg"))
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}
POLICY = {"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'",
          "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"}


class Files(LmServeTest):
    def test_files(self):
        """each file comes as it is in the tree, with its type, its ETag and a policy that lets nothing else in"""
        server = self.server()
        self.assertIn("index.html", [path.name for path in FILES])
        for path in FILES:
            with self.subTest(path.name):
                answer = server.request("GET", f"/page/{path.name}")
                self.assertEqual((answer.status, answer.body), (200, path.read_bytes()))
                headers = answer.headers
                self.assertEqual(headers["Content-Type"], TYPES[path.suffix])
                self.assertEqual(set(headers["Content-Security-Policy"].split("; ")), POLICY)
                self.assertEqual(headers["X-Content-Type-Options"], "nosniff")
                self.assertEqual(headers["Cache-Control"], "no-cache")
                self.assertEqual(headers["Referrer-Policy"], "no-referrer")
                self.assertRegex(headers["ETag"], r'^"[0-9a-f]{64}"$')
        self.assertEqual(server.request("GET", "/").body, (FOLDER / "index.html").read_bytes())
        self.assertEqual(server.request("GET", "/?x=1").status, 200)

    def test_etag(self):
        """a browser that has the file gets none, and its connection goes on"""
        server = self.server()
        tag = server.request("GET", "/page/main.js").headers["ETag"]
        other = server.request("GET", "/page/page.css").headers["ETag"]
        self.assertNotEqual(tag, other)
        for known in (tag, f"{other}, W/{tag}", "*"):
            answer = server.request("GET", "/page/main.js", headers={"If-None-Match": known})
            self.assertEqual((answer.status, answer.body, answer.headers["ETag"]), (304, b"", tag), known)
        for unknown in (other, tag[1:-1], '""'):
            self.assertEqual(server.request("GET", "/page/main.js", headers={"If-None-Match": unknown}).status, 200, unknown)
        head = f"GET /page/main.js HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: {tag}\r\n\r\n"
        peer = server.raw((head + "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").encode())
        text = b"".join(iter(lambda: peer.recv(65536), b"")).decode()
        self.assertTrue(text.startswith("HTTP/1.1 304 Not Modified\r\n"))
        self.assertTrue(text.partition("\r\n\r\n")[2].startswith("HTTP/1.1 200 OK\r\n"))

    def test_methods(self):
        """HEAD tells the length alone; other methods and names are refused"""
        server = self.server()
        head = server.request("HEAD", "/page/main.js")
        self.assertEqual((head.status, head.body), (200, b""))
        self.assertEqual(int(head.headers["Content-Length"]), (FOLDER / "main.js").stat().st_size)
        refused = server.request("POST", "/", {})
        self.assertEqual((refused.status, refused.headers["Allow"]), (405, "GET"))
        for path in ("/page", "/page/", "/page/none.js", "/page/../index.html", "/page/%2e%2e/index.html", "/page/page/main.js",
                     "/page/main.js/", "/index.html", "/page/CMakeLists.txt", "/page/main%2ejs"):
            answer = server.request("GET", path)
            self.assertEqual(answer.status, 404, path)
            self.assertNotIn("Content-Security-Policy", answer.headers)
        foreign = server.request("GET", "/", headers={"Host": "evil.example"})
        self.assertEqual(foreign.status, 403)

    def test_key(self):
        """the page needs no key and says nothing of the server; everything that it asks for needs one"""
        server = self.server(self.key_file())
        for path in ("/", "/page/main.js"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Bearer {ALICE}"}):
                self.assertEqual(server.request("GET", path, headers=headers).status, 200)
        for path in ("/v1/models", "/v1/about", "/metrics", "/v1/sessions", "/v1/policies/p/metrics", "/page", "/none"):
            self.assertEqual(server.request("GET", path).status, 401, path)
        server.key = ALICE
        self.assertEqual(server.request("GET", "/v1/about").status, 200)
        self.assertEqual(server.request("GET", "/page/none.js").status, 404)

    def test_off(self):
        """without the page its paths are those of no route; another word than true or false is refused"""
        server = self.server("page = false")
        for path in ("/", "/page/main.js"):
            self.assertEqual(server.request("GET", path).status, 404, path)
        self.assertEqual(server.request("GET", "/v1/about").status, 200)
        server = self.server(f"page = false\n{self.key_file()}")
        self.assertEqual(server.request("GET", "/").status, 401)
        result = self.check(MANIFEST, "config", "check", self.http_manifest('page = "yes"'))
        self.assertIn("page", result.stderr)
        self.check(OK, "config", "check", self.http_manifest("page = false"))

    def test_no_store(self):
        """no answer with a user's data is kept by a browser"""
        server = self.server()
        for path in ("/v1/models", "/v1/about", "/v1/sessions", "/metrics", "/health", "/none"):
            self.assertEqual(server.request("GET", path).headers["Cache-Control"], "no-store", path)
        self.assertEqual(server.chat("Hello").headers["Cache-Control"], "no-store")


class Sources(unittest.TestCase):
    """What holds of the files themselves."""

    def test_no_markup_from_text(self):
        """no script makes markup or code of a text"""
        forbidden = re.compile(r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|"
                               r"setHTML|srcdoc|\beval\b|new Function|localStorage|document\.cookie|https?://")
        for path in FILES:
            if path.suffix == ".js":
                with self.subTest(path.name):
                    self.assertEqual(forbidden.findall(path.read_text(encoding="utf-8")), [])

    def test_no_inline(self):
        """the document has no inline script, style or handler"""
        found = []

        class Parser(html.parser.HTMLParser):
            def handle_starttag(self, tag, attrs):
                names = dict(attrs)
                found.extend(f"{tag} {name}" for name in names if name == "style" or name.startswith("on"))
                if tag == "style" or (tag == "script" and "src" not in names):
                    found.append(tag)
        Parser().feed((FOLDER / "index.html").read_text(encoding="utf-8"))
        self.assertEqual(found, [])

    def test_imports(self):
        """every file that another one names is embedded, and each is named by one"""
        embedded = set(re.findall(r"[\w.]+\.(?:html|css|svg|js)", (FOLDER / "CMakeLists.txt").read_text(encoding="utf-8")))
        self.assertEqual(embedded, {path.name for path in FILES})
        named = {"index.html"}
        for path in FILES:
            text = path.read_text(encoding="utf-8")
            named.update(re.findall(r'from "\./([\w.]+)"', text) + re.findall(r'"/page/([\w.]+)"', text))
        self.assertEqual(named, embedded)

    def test_size(self):
        """the page is small"""
        self.assertLess(sum(len(gzip.compress(path.read_bytes())) for path in FILES), 40_000)
        self.assertLess(sum(path.stat().st_size for path in FILES), 150_000)


class About(LmServeTest):
    def test_about(self):
        """the server says what it is made of, and no path, no given text and no secret"""
        manifest = self.http_manifest(f'{self.key_file()}\naliases = "secret-alias=m"\nqueue = 7')
        server = LmServer(self, manifest)
        server.key = ALICE
        answer = server.request("GET", "/v1/about")
        self.assertEqual(answer.status, 200)
        about = answer.json()
        self.assertEqual(schema_errors("About", about), [])
        self.assertEqual([(each["id"], each["plugin"], each["device"]) for each in about["models"]], [("m", "frt.qwen36", "cpu0")])
        self.assertEqual([(each["id"], each["backend"], each["ordinal"]) for each in about["devices"]], [("cpu0", "frt.cpu", 0)])
        self.assertEqual({each["id"]: each["kind"] for each in about["plugins"]}, {"frt.qwen36": "model", "frt.cpu": "backend"})
        tables = {table["table"]: {value["key"]: value for value in table["values"]} for table in about["manifest"]}
        http = tables["host.http"]
        self.assertEqual(http["queue"], {"key": "queue", "value": 7, "source": "manifest"})
        self.assertEqual((http["page"]["value"], http["page"]["source"]), (True, "default"))
        self.assertEqual(http["listen"], {"key": "listen", "value": "127.0.0.1:8080", "source": "default"})
        for key in ("key_file", "aliases", "model"):
            self.assertEqual(http[key], {"key": key, "value": None, "redacted": True, "source": "manifest"})
        self.assertTrue(tables["model.m"]["checkpoint"]["redacted"])
        for word in (str(self.folder), str(SOURCE), "/tmp", "secret-alias", ALICE, ".so", ".toml"):
            self.assertNotIn(word, json.dumps(about))

    def test_policies(self):
        """a policy that is not there has no metrics"""
        server = self.server()
        self.assertEqual(server.request("GET", "/v1/policies/none/metrics").status, 404)
        self.assertEqual(server.request("GET", "/v1/policies/%zz/metrics").status, 404)
        self.assertEqual(server.request("POST", "/v1/policies/none/metrics", {}).status, 405)


if __name__ == "__main__":
    unittest.main()
