# SPDX-License-Identifier: Apache-2.0
"""The template of the smallest plugin: its tutorial. tests/unit/core_plugin/template_test.cpp runs its graph."""
import unittest

from installed_sdk import TemplateTest


class Delay(TemplateTest):
    template = "delay"

    def test_the_tutorial_does_what_it_says(self):
        shown, _ = self.tutorial()
        self.assertIn("a delay line", shown)
        self.assertRegex(shown, r"width +whole number +16")


if __name__ == "__main__":
    unittest.main()
