# SPDX-License-Identifier: Apache-2.0
"""The pages of the host tables ([host.http], [host.lm], [host.robot]) say of keys what hosts/MANIFEST.md, which is made of the
code, does not: they name only keys that the code takes, each once, and repeat neither default nor meaning."""
import pathlib
import re
import sys
import unittest

HOSTS = pathlib.Path(__file__).resolve().parents[2] / "hosts"
OPTION = re.compile(r"\boption\(\s*\"(\w+)\",\s*FRT_CONFIG_\w+,\s*\"[^\"]*\"((?:,?\s*\"[^\"]*\")*)|\bmodel\.key = \"(model)\"")
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| (.*) \|$", re.M)


def taken(code):
    """Every key that the code declares, and its meaning."""
    return {key or model: "".join(re.findall(r"\"([^\"]*)\"", doc)) for key, doc, model in OPTION.findall(code)}


def listed(page):
    """(key, what the page says of it)"""
    return [(key, text) for keys, text in ROW.findall(page) for key in re.findall(r"\w+", keys)]


def faults(code, page):
    meanings, rows = taken(code), listed(page)
    keys = [key for key, _ in rows]
    found = [f"{key}: no such key" for key in keys if key not in meanings]
    found += [f"{key}: twice" for key in sorted(set(keys)) if keys.count(key) > 1]
    found += [f"{key}: repeats its meaning" for key, text in rows if meanings.get(key) and meanings[key] in text]
    return found + ([] if "(../MANIFEST.md)" in page else ["no link to MANIFEST.md"])


class OptionPages(unittest.TestCase):
    def test_each_page_adds_to_the_keys_of_the_code(self):
        for host, keys, rows in (("http", 30, 10), ("lm", 9, 3), ("robot", 35, 5)):
            with self.subTest(host):
                code = (HOSTS / f"runtime/{host}_settings.cpp").read_text(encoding="utf-8")
                page = (HOSTS / host / "OPTIONS.md").read_text(encoding="utf-8")
                self.assertGreaterEqual(len(taken(code)), keys)
                self.assertGreaterEqual(len(listed(page)), rows)
                self.assertEqual(faults(code, page), [])

    def test_a_page_that_lags_or_repeats_is_noticed(self):
        code = 'option("a", FRT_CONFIG_INT, "10", "apples"), option(\n  "b", FRT_CONFIG_SIZE, "1M",\n "bytes of "\n"one")'
        self.assertEqual(taken(code), {"a": "apples", "b": "bytes of one"})
        self.assertEqual(faults(code, "(../MANIFEST.md)\n| `a`, `b` | more of both |\n"), [])
        self.assertEqual(faults(code, "| `a`, `c` | x |\n| `a` | so many apples |\n| `b` | bytes of one |\n"), [
            "c: no such key", "a: twice", "a: repeats its meaning", "b: repeats its meaning", "no link to MANIFEST.md"])


if __name__ == "__main__":
    sys.exit(unittest.main())
