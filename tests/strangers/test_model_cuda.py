# SPDX-License-Identifier: Apache-2.0
"""The template of a model on a CUDA device, where its operator is a CUDA kernel. Without a device or a CUDA compiler the
exit status is 77: skipped. FRT_STRANGER_CUDA=1: there must be both."""
import json
import os
import shutil
import subprocess
import sys
import unittest

from installed_sdk import TemplateTest
from support import HOST, OK, clean_environment
from test_model import Model, Tests

SKIPPED = 77


def cuda_backend():
    """The id of the backend that sees a CUDA device, or None, and why."""
    survey = subprocess.run([HOST, "devices", "--json"], capture_output=True, check=True, env=clean_environment())
    survey = json.loads(survey.stdout)
    found = [device["backend"] for device in survey["devices"] if device["backend"].startswith("frt.cuda.")]
    if not found:
        problems = [f"{row['id']}: {row['problem']}" for row in survey["backends"] if row["problem"]]
        return None, "no CUDA device: " + ("; ".join(problems) or "no CUDA plugin is built")
    compiler = os.environ.get("CUDACXX", "nvcc")
    if not shutil.which(compiler):
        return None, f"no CUDA compiler: CUDACXX is {compiler}; tools/setup-cuda assembles a toolkit"
    return found[0], ""


class OnCuda(Tests, TemplateTest):
    definitions = (*Tests.definitions, "-DACME_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=native")


class BuiltWithoutCuda(Model, TemplateTest):
    def test_the_error_says_what_is_missing(self):
        result = self.frt("run", self.model(), "-p", "a")
        self.assertNotEqual(result.returncode, OK)
        self.assertIn("-DACME_CUDA=ON", result.stderr)


if __name__ == "__main__":
    OnCuda.backend, reason = cuda_backend()
    BuiltWithoutCuda.backend = OnCuda.backend
    if reason:
        print("skipped:", reason)
        sys.exit(1 if os.environ.get("FRT_STRANGER_CUDA") == "1" else SKIPPED)
    unittest.main()
