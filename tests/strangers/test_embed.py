# SPDX-License-Identifier: Apache-2.0
"""Programs that embed the runtime, built from the installed templates against what `cmake --install` and `cpack`
made, with nothing else of this tree."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from installed_sdk import BUILD, CMAKE, run
import support

SAME = "the same continuation twice"


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="frt-embed-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.prefix = cls.root / "prefix"
        for component in ("runtime", "sdk"):
            run(CMAKE, "--install", BUILD, "--component", component, "--prefix", cls.prefix)
        cls.demo = cls.prefix / "share/frt/manifests/demo.toml"

    def template(self, name):
        source, build = self.root / name, self.root / f"{name}-build"
        shutil.copytree(self.prefix / "share/frt-sdk/templates" / name, source)
        run(CMAKE, "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DCMAKE_BUILD_TYPE=Release")
        run(CMAKE, "--build", build)
        return build / name

    def test_the_template_in_c_streams_forks_and_goes_on_the_same_twice(self):
        program = self.template("embed-c")
        said = run(program, self.demo)
        lines = said.splitlines()
        self.assertEqual(lines[-1], SAME)
        continuations = [lines[i - 1] for i, line in enumerate(lines) if line.startswith("  [")][1:]
        self.assertEqual(len(continuations), 2)
        self.assertTrue(continuations[0])
        self.assertEqual(*continuations)
        refused = subprocess.run([program, "nowhere.toml"], capture_output=True, text=True, timeout=300)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("FRT_ERR_NOT_FOUND: ", refused.stderr)

    def test_the_template_in_cpp_answers_from_two_threads(self):
        self.assertEqual(run(self.template("embed-cpp"), self.demo).splitlines()[-1], SAME)

    def test_pkg_config_says_how_to_build_without_cmake(self):
        if not os.environ["FRT_PKG_CONFIG"]:
            self.skipTest("there is no pkg-config")
        flags = subprocess.run(
            [os.environ["FRT_PKG_CONFIG"], "--cflags", "--libs", "frt"], check=True, capture_output=True, text=True,
            env={**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}).stdout.split()
        program = self.root / "by-hand"
        run(os.environ["CC"], *os.environ["CFLAGS"].split(), self.prefix / "share/frt-sdk/templates/embed-c/main.c",
            *flags, "-o", program)
        said = run(program, self.demo)  # it finds libfrt.so by itself
        self.assertEqual(said.splitlines()[-1], SAME)

    def test_the_help_names_files_that_are_installed(self):
        program = self.prefix / "bin/frt-host"
        commands = re.findall(r"^    '([^']*)'\) commands=", run(program, "completion", "bash"), re.M)
        self.assertGreater(len(commands), 20)
        texts = "".join(run(program, *command.split(), "--help") for command in commands)
        named = set(re.findall(r"share/frt/[\w./-]+\w", texts))
        self.assertGreater(len(named), 3)
        self.assertEqual([name for name in sorted(named) if not (self.prefix / name).exists()], [])
        for folder in ("hosts/manifests", "tests/fixtures"):
            self.assertNotIn(folder, texts)

    def test_the_installed_manifests_are_complete(self):
        manifests = sorted((self.prefix / "share/frt/manifests").glob("*.toml"))
        self.assertGreater(len(manifests), 3)
        for manifest in manifests:
            with self.subTest(manifest.name):
                run(self.prefix / "bin/frt-host", "config", "check", manifest)
        said = run(self.prefix / "bin/frt-host", "-q", "rollout", self.prefix / "share/frt/manifests/reach.toml", "-n", 1)
        self.assertIn("episode", said)

    def test_the_installed_program_runs_the_installed_model(self):
        said = run(self.prefix / "bin/frt-host", "-q", "run", self.demo, "-p", "Once upon a time", "--greedy", "-n", 8)
        self.assertTrue(said.strip())


class SdkAlone(unittest.TestCase):
    def test_the_sdk_configures_and_installs_without_any_library(self):
        with tempfile.TemporaryDirectory(prefix="frt-sdk-only-") as folder:
            build, prefix = pathlib.Path(folder) / "build", pathlib.Path(folder) / "prefix"
            reference = shutil.which("doxygen") is not None
            said = run(CMAKE, "-G", "Ninja", "-S", support.SOURCE, "-B", build, "-DFRT_SDK_ONLY=ON",
                       f"-DFRT_SDK_REFERENCE={'ON' if reference else 'OFF'}")
            for library in ("dnnl", "SQLite", "sqlite", "OpenSSL"):
                self.assertNotIn(library, said)
            run(CMAKE, "--build", build)
            run(CMAKE, "--install", build, "--prefix", prefix)
            self.assertTrue((prefix / "include/frt/plugin.h").is_file())
            self.assertEqual((prefix / "share/doc/frt-sdk/reference/exec_8h.html").is_file(), reference)
            self.assertTrue((prefix / "lib/cmake/frt-sdk/frt-sdkConfig.cmake").is_file())


class Packages(unittest.TestCase):
    def test_debian_packages_hold_the_files_of_their_component(self):
        if not shutil.which("dpkg-deb") or os.environ["FRT_SANITIZE"]:
            self.skipTest("there is no dpkg-deb, or this is a sanitizer build")
        with tempfile.TemporaryDirectory(prefix="frt-packages-") as folder:
            run(os.environ["FRT_CPACK"], "-G", "DEB", "-B", folder, "--config",
                pathlib.Path(BUILD) / "CPackConfig.cmake", cwd=folder)
            packages = {path.name.split("_")[0]: path for path in pathlib.Path(folder).glob("*.deb")}
            self.assertEqual(set(packages), {"frt-runtime", "frt-sdk", "python3-frt"})
            files = {name: run("dpkg-deb", "-c", path) for name, path in packages.items()}
        for file in ("/bin/frt-host\n", "/lib/libfrt.so.0", "/lib/frt/plugins/frt_cpu.so\n",
                     "/share/frt/manifests/demo.toml\n"):
            self.assertIn(file, files["frt-runtime"])
            self.assertNotIn(file, files["frt-sdk"])
        for file in ("/include/frt/embed.h\n", "/include/frt/plugin.h\n", "/lib/cmake/frt-sdk/frt-sdkConfig.cmake\n",
                     "/share/frt-sdk/templates/embed-c/main.c\n", "/lib/pkgconfig/frt.pc\n"):
            self.assertIn(file, files["frt-sdk"])
            self.assertNotIn(file, files["frt-runtime"])
        for file in ("/frt/__init__.py\n", "/frt/py.typed\n"):
            self.assertIn("/usr/lib/python3/dist-packages" + file, files["python3-frt"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
