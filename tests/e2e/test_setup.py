# SPDX-License-Identifier: Apache-2.0
"""What tools/quickstart and tools/test find out about a machine, and what they install on it: the
functions of tools/lib/setup.sh, on a PATH whose programs only pretend. And what tools/test runs at night."""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
REAL = ("bash", "cat", "env", "grep", "head", "sed", "tail")
SMI = """case "$1" in
  --query-gpu=driver_version) printf '%s\\n' {driver} ;;
  --query-gpu=compute_cap) printf '%s\\n' {capabilities} ;;
esac"""
INSTALLED = """case "$3" in {missing}) exit 1 ;; esac; echo 'install ok installed'"""


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.path = self.home / "bin"
        self.path.mkdir()
        for name in REAL:
            (self.path / name).symlink_to(shutil.which(name))

    def program(self, name, script):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!{shutil.which('bash')}\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    def gpu(self, capabilities, driver="580.65.06"):
        self.program("nvidia-smi", SMI.format(driver=driver, capabilities=capabilities))

    def bash(self, script, status=0, **environment):
        result = subprocess.run(
            ["bash", "-c", f"set -euo pipefail; . {ROOT}/tools/lib/setup.sh\n{script}"],
            cwd=self.home, env={"PATH": str(self.path), **environment}, timeout=60,
            capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout.strip() if status == 0 else result.stderr

    # ---- building ----

    def test_a_build_that_fails_shows_what_failed_and_not_its_progress(self):
        (self.home / "build").mkdir()
        self.program("cmake", """[ $1 = --build ] || exit 0
echo '[1/2] Building CXX object good.o'; echo 'bad.cpp:1: error: no such thing'; exit ${FAILS:-1}""")
        said = self.bash("configure_and_build release", status=1)
        self.assertIn("bad.cpp:1: error: no such thing", said)
        self.assertNotIn("good.o", said)
        log = re.search(r"build/\S*release\S*log$", said.strip())[0]
        self.assertIn("good.o", (self.home / log).read_text())
        self.assertEqual(self.bash("configure_and_build release", FAILS="0"), "")

    # ---- GPUs ----

    def test_the_architectures_are_those_of_the_gpus_or_all(self):
        everything = "89;90a;110a;120a;121a"
        self.assertEqual(self.bash("cuda_architectures"), everything)
        for capabilities, expected in (("9.0", "90a"), ("8.9 8.9", "89"), ("12.0 9.0", "120a;90a"),
                                       ("10.0", "90a"), ("12.1", "121a"), ("13.0", "121a"),
                                       ("8.6", everything), ("[N/A]", everything)):
            with self.subTest(capabilities):
                self.gpu(capabilities)
                self.assertEqual(self.bash("cuda_architectures"), expected)

    def test_a_gpu_or_a_driver_that_is_too_old_is_named(self):
        self.assertEqual(self.bash("cuda_obstacle"), "")
        for capabilities, driver, part in (("9.0", "580.65.06", None), ("8.6 8.9", "590.1", None),
                                           ("[N/A]", "[N/A]", None), ("8.6", "580.1", "8.6"),
                                           ("7.5 8.0", "580.1", "8.0"),
                                           ("9.0", "575.57.08", "575.57.08")):
            with self.subTest(capabilities=capabilities, driver=driver):
                self.gpu(capabilities, driver)
                obstacle = self.bash("cuda_obstacle")
                if part:
                    self.assertIn(part, obstacle)
                else:
                    self.assertEqual(obstacle, "")

    def test_an_nvcc_of_another_release_is_passed_over(self):
        version = "echo 'Cuda compilation tools, release {0}, V{0}.10'"
        self.program("nvcc", version.format("12.4"))
        self.program("../cuda/bin/nvcc", version.format("13.0"))
        home = str(self.home / "cuda")
        self.assertEqual(self.bash("find_nvcc", CUDA_HOME=home), f"{home}/bin/nvcc")
        self.program("../build/cuda-toolkit/bin/nvcc", version.format("13.0"))
        self.assertEqual(self.bash("find_nvcc", CUDA_HOME=home),
                         str(self.home / "build/cuda-toolkit/bin/nvcc"))

    # ---- packages ----

    def test_nothing_is_asked_for_where_everything_is_there(self):
        self.program("dpkg-query", INSTALLED.format(missing="none"))
        self.bash("has_boost() { true; }; install_packages one two")

    def test_what_is_missing_is_installed_as_root(self):
        self.program("dpkg-query", INSTALLED.format(missing="two|four"))
        self.program("id", "echo 1000")
        self.program("sudo", 'echo "sudo $*" >>log; exec "$@"')
        self.program("apt-get", 'echo "apt-get $*" >>log')
        self.program("apt-cache", "exit 1")
        self.bash("has_boost() { false; }; install_packages one two three four")
        log = (self.home / "log").read_text(encoding="utf-8").splitlines()
        self.assertEqual([line.split()[0] for line in log], ["sudo", "apt-get"] * 2)
        self.assertTrue(log[3].endswith(" two four libboost-dev"), log)

    def test_where_packages_cannot_be_installed_they_are_named(self):
        self.program("dpkg-query", "exit 1")
        refusal = self.bash("has_boost() { false; }; install_packages one two", status=1)
        for text in ("one two", "1.81", "--no-install"):
            self.assertIn(text, refusal)
        self.program("apt-get", "exit 1")
        self.program("id", "echo 1000")
        self.assertIn("as root", self.bash("install_packages one", status=1))

    def test_a_toolkit_is_assembled_only_where_there_is_none(self):
        self.program("../tools/setup-cuda", "echo assembled")
        self.program("python3", "exit 1")
        script = "find_nvcc() { false; }; install_packages() { echo installs $*; }; provide_nvcc "
        self.assertEqual(self.bash(script + "1"), "installs python3-pip\nassembled")
        self.assertEqual(self.bash(script + "0"), "assembled")
        self.program("python3", "exit 0")
        self.assertEqual(self.bash(script + "1"), "assembled")
        self.assertEqual(self.bash("find_nvcc() { true; }; provide_nvcc 1"), "")



class Nightly(unittest.TestCase):
    STUBS = """configure_and_build() { :; }; cmake() { :; }; nightly_cases=70
run_ctest() { env | grep '^FRT_'; echo "tests ${!#}"; }
"""

    def test_the_nightly_stage_makes_every_test_long_that_its_table_names(self):
        script = re.search(r"^stage_nightly\(\) \{.*?^\}", (ROOT / "tools/test").read_text(), re.M | re.S)[0]
        said = subprocess.run(["bash", "-c", f"set -euo pipefail\n{self.STUBS}{script}\nstage_nightly"],
                              env={"PATH": "/usr/bin:/bin"}, timeout=60, capture_output=True, text=True, check=True).stdout
        settings = dict(line.split("=", 1) for line in said.splitlines() if line.startswith("FRT_"))
        tests = re.search(r"^tests (.*)$", said, re.M)[1]
        table = (ROOT / "tests/LONG_RUNS.md").read_text().split("Hostile files and connections at length", 1)[1]
        rows = re.findall(r"^\| (?:`(\w+)(?:=\w+)?`)? *\|.*\| `(\w+)` \|$", table, re.M)
        self.assertGreater(len(rows), 8)
        for variable, test in rows:
            if variable:
                self.assertIn(variable, settings)
            self.assertRegex(test, tests)
        self.assertIn("hostile_connections", [test for _, test in rows])
        self.assertRegex("e2e_test_robot_limits", tests)


class Stages(unittest.TestCase):
    def test_a_stage_that_does_not_end_in_time_is_ended_with_what_it_started(self):
        script = re.search(r"^run_stage\(\) \{.*?^\}", (ROOT / "tools/test").read_text(), re.M | re.S)[0]
        for stage, status in (("sleep 600 & sleep 601", 143), ("true; false", 1), ("true", 0)):
            found = subprocess.run(
                ["bash", "-c", f"set -euo pipefail\n{script}\nstage_s() {{ {stage}; }}\nminutes=1 SECONDS=58\n"
                               "run_stage s && status=0 || status=$?\nexit $status"],
                env={"PATH": "/usr/bin:/bin"}, timeout=30, capture_output=True, check=False)
            self.assertEqual(found.returncode, status, found.stderr)
        self.assertNotIn(b"sleep\x00601", b"".join(
            path.read_bytes() for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists()))


if __name__ == "__main__":
    unittest.main()
