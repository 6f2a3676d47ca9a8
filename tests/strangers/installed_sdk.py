# SPDX-License-Identifier: Apache-2.0
"""Builds a template as a new author would: out of an installed SDK, with nothing else of this tree."""
import os
import pathlib
import re
import shlex
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
REFERENCE = f"{BUILD}/lib/frt/plugins/frt_cpu.so"
CHECK_DEFINITIONS = (f"-DFRT_PLUGIN_CHECK={os.environ['FRT_PLUGIN_CHECK']}", f"-DFRT_REFERENCE_PLUGIN={REFERENCE}")
COMPILER = {name: os.environ[name] for name in ("CC", "CFLAGS", "CXX", "CXXFLAGS")}


def run(*command, cwd=None):
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=600,
                            env={**support.clean_environment(), **COMPILER}, cwd=cwd)
    if result.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")
    return result.stdout


class TemplateTest(support.HostTest):
    """`template`: its name. It was built as its README says, with `definitions` besides, when a test begins; its plugin
    lies in `self.plugins`."""
    template = None
    definitions = ()

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="frt-template-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.sdk = cls.root / "sdk"
        run(CMAKE, "--install", BUILD, "--component", "sdk", "--prefix", cls.sdk)
        cls.source = cls.build(cls.template, *cls.definitions)
        cls.plugins = cls.source / "build"

    @classmethod
    def build(cls, template, *definitions):
        """A copy of the template, built in its folder `build` as its README says."""
        source = cls.root / template
        shutil.copytree(cls.sdk / "share/frt-sdk/templates" / template, source)  # no way back into the tree
        configure, build = (command for command in cls.commands(source) if command[0] == "cmake")
        run(CMAKE, *configure[1:], *CHECK_DEFINITIONS, *definitions, cwd=source)
        run(CMAKE, *build[1:], "--parallel", 2, cwd=source)
        return source

    @classmethod
    def commands(cls, source):
        """Those of the README, in order, for what is installed here."""
        text = (source / "README.md").read_text(encoding="utf-8")
        for path, here in (("~/frt/lib/frt/plugins", f"{BUILD}/lib/frt/plugins"),
                           ("~/frt/share/frt/manifests", support.SOURCE / "hosts/manifests"), ("~/frt", cls.sdk)):
            text = text.replace(path, str(here))
        return [shlex.split(line) for line in text.splitlines() if re.match("    [a-z]", line)]

    def tutorial(self):
        """What each command of the README printed after the plugin was built, in order."""
        printed = []
        for program, *arguments in self.commands(self.source):
            if program == "frt-host":
                result = self.check(support.OK, "-q", *arguments, cwd=self.source)
                printed.append(result.stdout.rstrip("\n"))
            elif program != "cmake":
                program = {"python3": sys.executable, "frt-plugin-check": os.environ["FRT_PLUGIN_CHECK"],
                           "ctest": pathlib.Path(CMAKE).with_name("ctest")}[program]
                if program == os.environ["FRT_PLUGIN_CHECK"]:
                    arguments += [] if "--reference" in arguments else ["--reference", REFERENCE]
                printed.append(run(program, *arguments, cwd=self.source))
        self.assertTrue(printed)
        return printed

    def frt(self, *arguments, **options):
        if "cwd" not in options:
            arguments = ("--plugin-dir", self.plugins, *arguments)
        return super().frt(*arguments, **options)
