# SPDX-License-Identifier: Apache-2.0
"""The adapter for openpi with the real openpi-client of PyPI, beside frt-host serve: openpi_cases.py runs in a Python that
has it."""
import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))

from linear_policy import PLUGINS, save  # noqa: E402
from serving import Server  # noqa: E402
from support import SOURCE, HostTest, python_with  # noqa: E402


class Openpi(HostTest):
    def serve(self, manifest):
        server = Server(manifest, self.folder, PLUGINS)
        self.addCleanup(server.kill)
        return str(server.port)

    def test_openpi_takes_it_and_it_answers_as_the_server_does(self):
        # The package imports typing_extensions without asking for it.
        python = python_with(self, "openpi-client", "openpi-client==0.1.2", "typing_extensions==4.16.0")
        linear, reach = save(self.folder), SOURCE / "hosts/manifests/reach.toml"
        result = subprocess.run(
            [python, HERE / "openpi_cases.py", "-v"], capture_output=True, text=True, timeout=300,
            env={**os.environ, "FRT_LINEAR": str(linear), "FRT_LINEAR_PORT": self.serve(linear),
                 "FRT_REACH": str(reach), "FRT_REACH_PORT": self.serve(reach)})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        print(result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
