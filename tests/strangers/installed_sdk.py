# SPDX-License-Identifier: Apache-2.0
"""Builds a template as a new author would: out of an installed SDK, with nothing else of this tree."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import support  # noqa: E402

CAPSULES = '[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n'
CMAKE = os.environ["FRT_CMAKE"]
BUILD = os.environ["FRT_BUILD"]
COMPILER = {name: os.environ[name] for name in ("CC", "CFLAGS", "CXX", "CXXFLAGS")}


def run(*command, cwd=None):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600,
                            env={**support.clean_environment(), **COMPILER}, cwd=cwd)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


class TemplateTest(support.HostTest):
    """`template`: its name, configured with `definitions`. Its plugin lies in `self.plugins` when a test begins."""
    template = None
    definitions = ()

    @classmethod
    def setUpClass(cls):
        root = pathlib.Path(tempfile.mkdtemp(prefix="frt-stranger-"))
        cls.addClassCleanup(shutil.rmtree, root, ignore_errors=True)
        cls.sdk, cls.plugins = root / "sdk", root / "build"
        run(CMAKE, "--install", BUILD, "--component", "sdk", "--prefix", cls.sdk)
        shutil.copytree(cls.sdk / "share/frt-sdk/templates" / cls.template, root / "source")  # no way back into the tree
        run(CMAKE, "-G", "Ninja", "-S", root / "source", "-B", cls.plugins, f"-DCMAKE_PREFIX_PATH={cls.sdk}",
            "-DCMAKE_BUILD_TYPE=Release", *cls.definitions)
        run(CMAKE, "--build", cls.plugins, "--parallel", 2)

    def frt(self, *arguments, **options):
        return super().frt("--plugin-dir", self.plugins, *arguments, **options)
