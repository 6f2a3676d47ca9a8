# SPDX-License-Identifier: Apache-2.0
"""The pages of the host tables ([host.http], [host.lm], [host.robot]) list the keys that the code takes, each with its
default, and no others."""
import pathlib
import re
import sys
import unittest

HOSTS = pathlib.Path(__file__).resolve().parents[2] / "hosts"
OPTION = re.compile(r"\boption\(\s*\"(\w+)\",\s*FRT_CONFIG_\w+,\s*\"([^\"]*)\"|\bmodel\.key = \"(model)\"")
ROW = re.compile(r"^\| (`\w+`(?:, `\w+`)*) \| ([^|]*) \|", re.M)


def taken(code):
    """Every key that the code declares, and its default."""
    return {key or model: default for key, default, model in OPTION.findall(code)}


def listed(page):
    """Every key that the page lists, and the cell of its default."""
    return {key: cell.replace("`", "") for keys, cell in ROW.findall(page) for key in re.findall(r"\w+", keys)}


def shows(cell, default):
    return default == "" or default in [word.rstrip(":") for word in re.split(r"[\s,;]+", cell)]


class OptionPages(unittest.TestCase):
    def test_each_page_lists_the_keys_and_defaults_of_the_code(self):
        for host, least in (("http", 30), ("lm", 9), ("robot", 35)):
            with self.subTest(host):
                code = taken((HOSTS / f"runtime/{host}_settings.cpp").read_text(encoding="utf-8"))
                page = listed((HOSTS / host / "OPTIONS.md").read_text(encoding="utf-8"))
                self.assertGreaterEqual(len(code), least)
                self.assertEqual(sorted(code), sorted(page))
                wrong = [key for key, default in code.items() if not shows(page[key], default)]
                self.assertEqual(wrong, [])

    def test_a_page_that_lags_is_noticed(self):
        code = taken('option("a", FRT_CONFIG_INT, "10", "x"), option(\n  "b", FRT_CONFIG_SIZE, "1M", "y")')
        page = listed("| key | default | |\n| `a`, `c` | 100, 2M | x |\n")
        self.assertEqual(code, {"a": "10", "b": "1M"})
        self.assertEqual(page, {"a": "100, 2M", "c": "100, 2M"})
        self.assertFalse(shows(page["a"], code["a"]))
        self.assertTrue(shows(page["a"], "100"))


if __name__ == "__main__":
    sys.exit(unittest.main())
