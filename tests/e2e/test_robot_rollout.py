# SPDX-License-Identifier: Apache-2.0
"""frt-host rollout and replay: episodes of the reaching task with a policy of tests/robot."""
import base64
import json
import os
import random
import re
import struct
import unittest
import xml.etree.ElementTree
import zipfile
import zlib

from support import FAILED, FIXTURES, MANIFEST, OK, PLUGIN, USAGE, HostTest
from linear_policy_files import MANIFEST as POLICY, save_policy, save_tensors  # from tests/, after support

PLUGINS = os.environ["FRT_ROBOT_PLUGIN_DIR"]
HORIZON = 10
TYPES = {"|u1": ("B", 1), "<f4": ("f", 4), "<f8": ("d", 8), "<i4": ("i", 4), "<i8": ("q", 8)}


def read_npz(path):
    """name -> (shape, values), read without numpy; the CRCs are checked."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            data = archive.read(name)
            assert data[:8] == b"\x93NUMPY\x01\x00", name
            length = struct.unpack("<H", data[8:10])[0]
            assert (10 + length) % 64 == 0
            header = data[10:10 + length].decode()
            kind = re.search(r"'descr': '([^']+)'", header).group(1)
            shape = [int(n) for n in re.search(r"'shape': \(([^)]*)\)", header).group(1).split(",") if n.strip()]
            form, size = TYPES[kind]
            body = data[10 + length:]
            arrays[name.removesuffix(".npy")] = (shape, struct.unpack(f"<{len(body) // size}{form}", body))
    return arrays


def write_npz(path, arrays):
    """What read_npz() read, or changed arrays: name -> (type, shape, values)."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, (kind, shape, values) in arrays.items():
            header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({''.join(f'{n},' for n in shape)}), }}"
            header = header.ljust(-(10 + len(header) + 1) % 64 + len(header)) + "\n"
            archive.writestr(name + ".npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                             struct.pack(f"<{len(values)}{TYPES[kind][0]}", *values))


def text(array):
    return bytes(array[1]).decode()


def records(data):
    at = 0
    while at < len(data):
        opcode, length = struct.unpack("<BQ", data[at:at + 9])
        yield opcode, data[at + 9:at + 9 + length], at
        at += 9 + length


def read_mcap(data, complete=True):
    """topic -> messages, through the chunks; every CRC that is there is checked."""
    magic = b"\x89MCAP0\r\n"
    assert data[:8] == magic
    if complete:
        assert data[-8:] == magic
        footer = data[-8 - 29:-8]
        start, _, crc = struct.unpack("<QQI", footer[9:])
        assert zlib.crc32(data[start:-8 - 4]) == crc, "summary"
    topics, messages = {}, {}
    for opcode, content, at in records(data[8:-8] if complete else data[8:]):
        if opcode == 6:
            _, _, size, crc, name = struct.unpack("<QQQII", content[:32])
            assert name == 0, "not compressed"
            body = content[32 + 8:]
            assert len(body) == size and zlib.crc32(body) == crc, "chunk"
            for inner, part, _ in records(body):
                if inner == 4:
                    number, _, length = struct.unpack("<HHI", part[:8])
                    topics[number] = part[8:8 + length].decode()
                elif inner == 5:
                    messages.setdefault(topics[struct.unpack("<H", part[:2])[0]], []).append(json.loads(part[22:]))
        elif opcode == 15:
            assert struct.unpack("<I", content)[0] == zlib.crc32(data[:8 + at]), "data"
    return messages


class Episodes(HostTest):
    def setUp(self):
        super().setUp()
        chance = random.Random(1)
        save_policy(self.folder, HORIZON * 2, [chance.uniform(-0.01, 0.01) for _ in range(HORIZON * 4)],
                    [chance.uniform(-0.05, 0.05) for _ in range(5 * HORIZON * 2)])

    def robot(self, robot="", options="", more="", environment='[environment.reach]\nplugin = "frt.reach"'):
        return self.manifest(f"""{POLICY}{options}
{environment}
[host.robot]
model = "p"
execute = 5
{robot}
{more}""")

    def rollout(self, manifest, *arguments, status=OK, stdin=None):
        result = self.check(status, "--plugin-dir", PLUGINS, "rollout", manifest, *arguments, stdin=stdin)
        return json.loads(result.stdout) if "--json" in arguments else result


class Rollouts(Episodes):
    def test_episodes_are_recorded_completely_and_repeat_bit_for_bit(self):
        manifest = self.robot()
        report = self.rollout(manifest, "-n", 3, "--seed", 5, "--record", "one", "--picture", "p.svg", "--json")
        self.assertEqual(report["episodes"], 3)
        rewards = 0
        self.assertEqual(report["captures_since_ready"], 0)
        self.assertEqual(report["deadline_miss_total"], 0)
        self.assertGreater(report["boundary_bytes"], 28 * 28 * 3)
        self.rollout(manifest, "-n", 3, "--seed", 5, "--record", "two", "--json")
        for episode in range(3):
            name = f"episode_{episode:06}"
            one, two = (read_npz(self.folder / folder / (name + ".npz")) for folder in ("one", "two"))
            ticks, chunks = len(one["tick_time"][1]), len(one["values"][1])
            self.assertEqual(chunks, (ticks + 4) // 5)
            self.assertEqual(one["obs/observation/image"][0], [chunks, 28, 28, 3])
            self.assertEqual(one["frame/observation/image"][0], [ticks, 28, 28, 3])
            self.assertEqual(one["noise"][0], [chunks, HORIZON, 2])
            self.assertEqual(one["actions"][0], [chunks, HORIZON, 2])
            self.assertEqual(one["tick_action"][0], [ticks, 2])
            self.assertEqual(one["reward"][0], [ticks])
            self.assertEqual(list(one["chunk_tick"][1]), list(range(0, ticks, 5)))
            self.assertEqual(one["tick_chunk"][1], tuple(i // 5 for i in range(ticks)))
            self.assertEqual(one["tick_action"][1][:10], one["actions"][1][:10])
            self.assertRegex(text(one["prompt"]), "^reach the (red|green|blue) disc$")
            meta = json.loads(text(one["meta"]))
            self.assertEqual(meta["seed"], 5 + episode)
            self.assertEqual(len(meta["fingerprints"]["model"]["sha256"]), 64)
            rewards += sum(one["reward"][1])
            for key in one:
                if not key.startswith(("t_", "tick_time", "tick_late")):
                    self.assertEqual(repr(one[key]), repr(two[key]), key)   # repr: NaN
            messages = read_mcap((self.folder / "one" / (name + ".mcap")).read_bytes())
            for array in ("/observation/image", "/observation/state"):
                self.assertEqual(len(messages[array]), ticks)    # what the robot saw, not only what the policy did
            frames = [base64.b64decode(image["data"]) for image in messages["/observation/image"]]
            self.assertEqual(b"".join(frames), bytes(one["frame/observation/image"][1]))
            self.assertGreater(len(set(frames)), chunks)
            self.assertEqual(len(messages["/action"]), ticks)
            self.assertEqual(messages["/chunk"][0]["actions"][0], list(one["actions"][1][:2]))
            self.assertEqual(messages["/episode"][0]["prompt"], text(one["prompt"]))
            self.assertEqual([action["reward"] for action in messages["/action"]], list(one["reward"][1]))
        self.assertNotEqual(rewards, 0)
        self.assertAlmostEqual(report["mean_reward"], rewards / 3, places=9)
        picture = xml.etree.ElementTree.parse(self.folder / "p.svg").getroot()
        self.assertEqual(len([e for e in picture.iter() if e.tag.endswith("polyline")]), 3)

    def test_an_environment_is_chosen_by_its_name(self):
        picked = self.rollout(self.robot('environment = "reach"'), "-n", 1, "--json")
        self.assertEqual(picked["chunks"], self.rollout(self.robot(), "-n", 1, "--environment", "reach", "--json")["chunks"])
        for command in ("rollout", "handoff"):
            said = self.check(USAGE, "--plugin-dir", PLUGINS, command, self.robot(), "--environment", "leg").stderr
            self.assertIn("no environment is called 'leg'; there are: reach", said)
            said = self.check(MANIFEST, "--plugin-dir", PLUGINS, command, self.robot('environment = "leg"')).stderr
            self.assertIn("'leg' is not an [environment.NAME] of this manifest: reach", said)

    def test_what_a_policy_reads_is_shown_with_its_plugin(self):
        manifest = self.robot()
        shown = ("--plugin-dir", PLUGINS, "plugins", "show", "test.linear_policy")
        [policy] = json.loads(self.check(OK, "-q", *shown, "--manifest", manifest, "--json").stdout)["policies"]
        self.assertEqual(policy["name"], "p")
        self.assertEqual({key: policy[key] for key in ("views", "image_height", "image_width", "state_dim", "prompt_tokens",
                                                       "horizon", "action_dim", "network_action_dim", "guidance_branches")},
                         {"views": 1, "image_height": 28, "image_width": 28, "state_dim": 2, "prompt_tokens": 48,
                          "horizon": 10, "action_dim": 2, "network_action_dim": 2, "guidance_branches": 1})
        self.assertEqual([entry["name"] for entry in policy["inputs"]],
                         ["observation/state", "observation/image", "prompt"])
        text = self.check(OK, "-q", *shown, "--manifest", manifest).stdout
        for line in (r"policy +p", r"reads +observation/state f32\[2\]; \(observation/image u8\[28,28,3\]\); prompt",
                     r"views +1, each 28 x 28 pixels", r"state +2 values", r"prompt +up to 48 tokens", r"horizon +10 actions",
                     r"action +2 values, 2 in the network"):
            self.assertRegex(text, "(?m)^" + line + "$")
        self.assertNotIn("policies", json.loads(self.check(OK, *shown, "--json").stdout))
        self.assertIn("uses the plugin", self.check(USAGE, "plugins", "show", "frt.qwen36", "--plugin-dir", PLUGINS,
                                                    "--manifest", manifest).stderr)
        self.assertIn("--manifest", self.check(USAGE, *shown, "--set", "model.p.options.horizon=5").stderr)

    def test_a_schedule_of_strengths_is_recorded_and_replayed(self):
        manifest = FIXTURES.parent.parent / "hosts/manifests/reach.toml"

        def actions(name, *arguments):
            self.check(OK, "-q", "rollout", manifest, "-n", 1, "--record", name, "--json", *arguments)
            record = self.folder / name / "episode_000000.npz"
            self.assertIn("identical", self.check(OK, "-q", "replay", record).stdout)
            arrays = read_npz(record)
            return json.loads(text(arrays["meta"]))["beta"], arrays["actions"][1]
        beta, constant = actions("constant")
        self.assertEqual(beta, 1.5)
        self.assertEqual(actions("same", "--beta", "1.5,1.5")[1], constant)
        beta, falling = actions("falling", "--set", "host.robot.beta_schedule=3, 2, 1")
        self.assertEqual(beta, [3, 2, 1])
        self.assertNotEqual(falling, constant)
        self.assertEqual(actions("again", "--beta", "3,2,1"), (beta, falling))
        self.check(USAGE, "rollout", manifest, "--beta", "much")
        self.check(MANIFEST, "rollout", manifest, "--set", "host.robot.beta_schedule=3,")
        self.assertIn("11 steps", self.check(FAILED, "rollout", manifest, "--beta", ",".join(["2"] * 11)).stderr)

    def test_an_mcap_file_that_was_cut_is_readable_up_to_its_last_chunk(self):
        self.rollout(self.robot(), "-n", 1, "--record", "one", "--json")
        data = (self.folder / "one/episode_000000.mcap").read_bytes()
        ends = [8 + at for opcode, _, at in records(data[8:-8]) if opcode == 7]
        self.assertIn("/action", read_mcap(data[:ends[0]], complete=False))

    def test_a_record_replays_bit_for_bit_and_a_changed_model_does_not(self):
        manifest = self.robot()
        self.rollout(manifest, "-n", 1, "--record", "one", "--json")
        record = self.folder / "one/episode_000000.npz"
        result = self.check(OK, "--plugin-dir", PLUGINS, "replay", record)
        self.assertIn("identical", result.stdout)
        before = (self.folder / "policy.safetensors").read_bytes()
        save_policy(self.folder, HORIZON * 2, [0.0] * HORIZON * 4, [0.0] * HORIZON * 10)
        result = self.check(FAILED, "--plugin-dir", PLUGINS, "replay", record, "--manifest", manifest)
        self.assertIn("chunk 0, network action 0", result.stdout)
        (self.folder / "policy.safetensors").write_bytes(before)
        data = bytearray(record.read_bytes())
        data[len(data) // 2] ^= 1
        record.write_bytes(data)
        self.assertIn("checksum", self.check(FAILED, "--plugin-dir", PLUGINS, "replay", record, "--manifest", manifest).stderr)

    def test_a_record_of_another_model_is_replayed_only_when_asked_for_and_says_what_differs(self):
        manifest = self.robot()
        self.rollout(manifest, "-n", 1, "--record", "one", "--json")
        path = self.folder / "one/episode_000000.npz"
        recorded = read_npz(path)
        meta = json.loads(text(recorded["meta"]))
        meta["fingerprints"]["model"]["version"] = "0.9.0"
        meta["fingerprints"]["checkpoint"] = "another"
        types = {"noise": "<f4", "network_actions": "<f4", "values": "<f4", "actions": "<f8",
                 "obs/observation/image": "|u1", "obs/observation/state": "<f4", "prompt": "|u1", "stop_reason": "|u1"}
        changed = json.dumps(meta).encode()
        write_npz(path, {**{name: (kind, *recorded[name]) for name, kind in types.items()},
                         "meta": ("|u1", [len(changed)], changed)})
        for options in ([], ["--json"]):
            refused = self.check(FAILED, "--plugin-dir", PLUGINS, "replay", path, *options)
            self.assertEqual(refused.stdout, "")
            for word in ("0.9.0", 'checkpoint: recorded "another", now absent', "--anyway"):
                self.assertIn(word, refused.stderr)
            self.assertNotIn("backend:", refused.stderr)
        anyway = self.check(OK, "--plugin-dir", PLUGINS, "replay", path, "--anyway")
        self.assertIn("identical", anyway.stdout)
        self.assertIn('note: checkpoint: recorded "another", now absent', anyway.stderr)

    def test_an_episode_that_no_policy_acted_in_or_that_contradicts_itself_is_not_identical(self):
        self.rollout(self.robot(), "-n", 1, "--record", "one", "--json")
        recorded = read_npz(self.folder / "one/episode_000000.npz")
        types = {"noise": "<f4", "network_actions": "<f4", "values": "<f4", "actions": "<f8",
                 "obs/observation/image": "|u1", "obs/observation/state": "<f4", "prompt": "|u1", "stop_reason": "|u1",
                 "meta": "|u1"}
        arrays = {name: (kind, *recorded[name]) for name, kind in types.items()}
        path = self.folder / "one/changed.npz"

        def replay(status, changes, *options):
            write_npz(path, {**arrays, **changes})
            return self.check(status, "--plugin-dir", PLUGINS, "replay", path, *options)
        self.assertIn("identical", replay(OK, {}).stdout)
        none = {name: (kind, [0, *shape[1:]], ()) for name, (kind, shape, _) in arrays.items() if kind != "|u1"}
        none["obs/observation/image"] = ("|u1", [0, 28, 28, 3], ())
        for options in ([], ["--json"]):
            result = replay(FAILED, none, *options)
            self.assertIn("nothing was compared", result.stderr)
            self.assertNotIn("identical", result.stdout)
        kind, (chunks, rows, width), values = arrays["noise"]
        result = replay(FAILED, {"noise": (kind, [chunks, width, rows], values)})
        self.assertIn("'noise'", result.stderr)

    def test_a_second_run_numbers_its_records_on_and_keeps_those_of_the_first(self):
        manifest = self.robot()
        self.rollout(manifest, "-n", 2, "--seed", 5, "--record", "one", "--json")
        before = {path.name: path.read_bytes() for path in (self.folder / "one").iterdir()}
        self.assertEqual(len(before), 4)
        (self.folder / "one/episode_000007.mcap").write_bytes(b"somebody else's")
        result = self.rollout(manifest, "-n", 2, "--seed", 9, "--record", "one")
        self.assertIn("from episode_000008 on", result.stderr)
        for name, data in before.items():
            self.assertEqual((self.folder / "one" / name).read_bytes(), data, name)
        self.assertEqual((self.folder / "one/episode_000007.mcap").read_bytes(), b"somebody else's")
        seeds = [json.loads(text(read_npz(path)["meta"]))["seed"]
                 for path in sorted((self.folder / "one").glob("*.npz"))]
        self.assertEqual(seeds, [5, 6, 9, 10])

    def test_a_record_replays_from_any_folder_and_after_all_of_it_has_moved(self):
        project, elsewhere = self.folder / "project", self.folder / "elsewhere"
        project.mkdir()
        elsewhere.mkdir()
        manifest = self.robot().rename(project / "robot.toml")
        (self.folder / "policy.safetensors").rename(project / "policy.safetensors")
        self.check(OK, "--plugin-dir", PLUGINS, "rollout", "robot.toml", "-n", 1, "--record", "records/one", "--json",
                   cwd=project)

        def replay(status, project, *arguments):
            return self.check(status, "--plugin-dir", PLUGINS, "replay", project / "records/one/episode_000000.npz",
                              *arguments, cwd=elsewhere)
        self.assertIn("identical", replay(OK, project).stdout)
        moved = project.rename(self.folder / "moved")
        self.assertIn("identical", replay(OK, moved).stdout)
        manifest = (moved / "robot.toml").rename(moved / "other.toml")
        message = replay(FAILED, moved).stderr
        for word in (str(moved / "robot.toml"), "--manifest"):
            self.assertIn(word, message)
        self.assertIn("identical", replay(OK, moved, "--manifest", manifest).stdout)

    def test_an_operator_who_takes_over_reaches_the_disc_and_it_is_recorded(self):
        report = self.rollout(self.robot(), "-n", 4, "--takeover", "5:40", "--record", "one", "--json")
        self.assertEqual(report["successes"], 4)
        self.assertGreater(report["interventions"], 0)
        episode = read_npz(self.folder / "one/episode_000000.npz")
        flags = episode["intervention"][1]
        self.assertEqual(flags[:5], (0,) * 5)
        self.assertTrue(all(flags[5:]))
        self.assertEqual(text(episode["stop_reason"]), "success")
        self.check(USAGE, "--plugin-dir", PLUGINS, "rollout", self.robot(), "--takeover", "9")

    def test_each_limit_ends_an_episode_with_its_name(self):
        for robot, reason in (("max_chunks = 2", "chunk_limit"), ("time_limit = 0.1", "time_limit"), ("", "task_over")):
            report = self.rollout(self.robot(robot), "-n", 2, "--seed", 100, "--json")
            self.assertEqual(report["stop_reasons"], {reason: 2})
        self.assertEqual(self.rollout(self.robot("max_chunks = 2"), "-n", 1, "--json")["ticks"], 10)

    def test_the_end_key_ends_one_episode_and_the_next_one_begins(self):
        report = self.rollout(self.robot(), "-n", 2, "--json", stdin="\x1b[F")
        self.assertEqual(report["stop_reasons"].get("end_key"), 1)
        self.assertEqual(report["episodes"], 2)

    def test_a_chunk_that_comes_later_replaces_the_rows_that_are_left(self):
        report = self.rollout(self.robot("lead = 2"), "-n", 1, "--record", "one", "--json")
        self.assertEqual(report["safe_action_total"], 0)
        episode = read_npz(self.folder / "one/episode_000000.npz")
        self.assertEqual(episode["chunk_tick"][1][:3], (0, 3, 8))

    def test_a_policy_that_is_too_slow_misses_deadlines_and_the_safe_action_is_sent(self):
        report = self.rollout(self.robot('hz = 500\nsafe_action = "stop"', "delay_ms = 50"), "-n", 1, "--realtime",
                              "--record", "one", "--json")
        self.assertGreater(report["deadline_miss_total"], 0)
        episode = read_npz(self.folder / "one/episode_000000.npz")
        missed = [i for i, chunk in enumerate(episode["tick_chunk"][1]) if chunk < 0]
        self.assertTrue(missed)
        for i in missed:
            self.assertEqual(episode["tick_action"][1][2 * i:2 * i + 2], (0.0, 0.0))

    def test_chunks_that_are_not_finite_are_never_sent_and_the_episodes_go_on(self):
        colors = ("red", "green", "blue")
        rows = {color: sum(f"reach the {color} disc".encode()) % 5 for color in colors}
        self.assertNotEqual(rows["red"], rows["green"])
        prompts = [0.01] * 5 * HORIZON * 2
        prompts[rows["red"] * HORIZON * 2 + 3] = float("nan")
        save_policy(self.folder, HORIZON * 2, [0.0] * HORIZON * 4, prompts)
        report = self.rollout(self.robot(), "-n", 12, "--record", "one", "--json")
        self.assertEqual(report["episodes"], 12)
        refused = 0
        for path in sorted((self.folder / "one").glob("*.npz")):
            episode = read_npz(path)
            sent = episode["tick_action"][1]
            self.assertTrue(all(abs(value) < 10 for value in sent))
            self.assertTrue(all(abs(value) < 10 for value in episode["actions"][1]))
            if rows["red"] == rows[text(episode["prompt"]).split()[2]]:
                self.assertEqual(set(episode["tick_chunk"][1]), {-1})
                self.assertEqual(set(sent), {0.0})      # nothing was sent before that could be held
                refused += len(episode["tick_time"][1])
        self.assertGreater(refused, 0)
        self.assertEqual(report["refused_total"], refused)
        self.assertEqual(report["deadline_miss_total"], refused)

    def test_a_low_value_of_the_critic_ends_an_episode(self):
        width, size = 8, 3 * 28 * 28
        tensors = {"pixels.weight": ([width, size], [0.0] * width * size), "tasks": ([3, width], [0.0] * 3 * width),
                   "value.weight": ([1, width], [0.0] * width), "value.bias": ([1], [-0.75])}
        for name in ("hidden1", "hidden2"):
            tensors |= {name + ".norm.weight": ([width], [1.0] * width), name + ".norm.bias": ([width], [0.0] * width),
                        name + ".weight": ([width, width], [0.0] * width * width), name + ".bias": ([width], [0.0] * width)}
        tensors["pixels.bias"] = ([width], [0.0] * width)
        save_tensors(self.folder / "critic.safetensors", tensors,
                     {"image": "28", "tasks": json.dumps([f"reach the {c} disc" for c in ("red", "green", "blue")])})
        critic = '[model.c]\nplugin = "frt.value_critic"\ndevice = "cpu0"\ncheckpoint = "critic.safetensors"'
        for stop, reason in ((-0.8, "task_over"), (-0.7, "value")):
            manifest = self.robot(f'critic = "c"\nstop_value = {stop}', more=critic)
            report = self.rollout(manifest, "-n", 1, "--seed", 100, "--record", "one", "--json")
            self.assertEqual(report["stop_reasons"], {reason: 1})
            self.assertEqual(read_npz(self.folder / "one/episode_000000.npz")["values"][1][0], -0.75)

    def test_mistakes_have_their_exit_status(self):
        for setting, word in (('safe_action = "pray"', "hold, ramp, stop"), ("lead = 10", "a chunk has 10 actions")):
            self.assertIn(word, self.check(MANIFEST, "--plugin-dir", PLUGINS, "rollout", self.robot(setting)).stderr)
        for arguments in (("-n", 0), ("-n", -1), ("--seed", -1)):
            self.check(USAGE, "--plugin-dir", PLUGINS, "rollout", self.robot(), *arguments)
        for option in ("--record", "--picture"):        # before an episode is run in vain
            result = self.frt("--plugin-dir", PLUGINS, "rollout", self.robot(), option, "/dev/null/nowhere")
            self.assertEqual(result.returncode, FAILED)
            self.assertIn("/dev/null/nowhere", result.stderr)
            self.assertNotIn("episode 0", result.stderr.replace("  ", " "))
        text = self.check(USAGE, "--plugin-dir", PLUGINS, "rollout", self.model_manifest(
            "synthetic:qwen3.6-tiny", extra='[environment.reach]\nplugin = "frt.reach"')).stderr
        self.assertIn("is no policy", text)
        kept = self.folder / "kept.svg"
        kept.write_text("a picture of before")
        result = self.frt("--plugin-dir", PLUGINS, "rollout", self.robot(), "--beta", 2, "--picture", kept)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("guidance", result.stderr)
        self.assertEqual(kept.read_text(), "a picture of before")   # a run that fails replaces nothing


class ChosenModel(Episodes):
    """A manifest of several models names the policy once, in [host.robot]."""

    def test_every_command_about_a_policy_takes_the_model_of_the_robot(self):
        other = """[model.other]
plugin = "test.linear_policy"
device = "cpu0"
checkpoint = "nowhere.safetensors"
"""
        manifest = self.robot(more=other)
        self.check(OK, "--plugin-dir", PLUGINS, "bench", "policy", manifest, "--prompt", 8, "-r", 1, "--warmup", 0)
        # The test's policy has no state and cannot be calibrated: what refuses says that it was this one.
        refused = self.check(FAILED, "--plugin-dir", PLUGINS, "capsule", "check", manifest, "--cases", 2)
        self.assertIn("model 'p' has no state", refused.stderr)
        refused = self.check(PLUGIN, "--plugin-dir", PLUGINS, "calibrate", manifest, "--synthetic", 1)
        self.assertIn("model 'p' (plugin test.linear_policy): its plugin offers no", refused.stderr)
        for command in (("capsule", "check"), ("bench", "policy"), ("calibrate", "--synthetic", 1)):
            asked = self.frt("--plugin-dir", PLUGINS, *command, manifest, "--model", "other")
            self.assertIn("nowhere.safetensors", asked.stderr)

    def test_two_hosts_that_name_two_models_leave_the_choice_to_the_user(self):
        manifest = self.robot(more="""[model.talk]
plugin = "frt.qwen36"
device = "cpu0"
checkpoint = "synthetic:qwen3.6-tiny"
[host.lm]
model = "talk"
""")
        refused = self.check(MANIFEST, "--plugin-dir", PLUGINS, "capsule", "check", manifest, "--cases", 1)
        self.assertIn("--model", refused.stderr)


class Reaching(HostTest):
    """The tiny trained Pi0.5 policy, its critic and its manifest."""

    def test_the_trained_policy_reaches_discs_and_guidance_makes_it_better(self):
        manifest = FIXTURES.parent.parent / "hosts/manifests/reach.toml"
        rates = {}
        for name, arguments in (("plain", ("--model", "plain", "--beta", 1)), ("guided", ("--record", "one"))):
            result = self.check(OK, "rollout", manifest, "-n", 40, "--seed", 1, "--json", *arguments)
            report = json.loads(result.stdout)
            self.assertEqual(report["captures_since_ready"], 0)
            rates[name] = report["success_rate"]
        self.assertGreaterEqual(rates["guided"], 0.85)      # 0.96 of 200
        self.assertGreater(rates["guided"], rates["plain"])
        values = read_npz(self.folder / "one/episode_000000.npz")["values"][1]
        self.assertTrue(all(-1.2 < value < 0.2 for value in values))
        self.assertIn("identical", self.check(OK, "replay", self.folder / "one/episode_000001.npz").stdout)


    def test_capsules_of_the_policy_restore_fork_and_go_back_bit_for_bit(self):
        manifest = FIXTURES.parent.parent / "hosts/manifests/reach.toml"
        report = json.loads(self.check(OK, "capsule", "check", manifest, "--model", "reach", "--cases", 16, "--json",
                                       "--set", "model.reach.options.slots=3").stdout)
        self.assertTrue(report["pass"])
        for what in ("restored", "whole", "forked"):
            self.assertEqual(report["compared"][what], 16)
        self.assertEqual(report["compared"]["file"], 2)


if __name__ == "__main__":
    unittest.main()
