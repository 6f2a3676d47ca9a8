# SPDX-License-Identifier: Apache-2.0
"""Recorded episodes in the hands of others: as a LeRobot dataset (tools/lerobot-dataset, its files, and lerobot itself
where there is one), and as MCAP."""
import json
import os
import subprocess
import sys
import unittest

from support import OK, SOURCE, HostTest, python_with

# Reads the files with pyarrow and compares them with the records; prints JSON.
CHECK = r"""
import json, pathlib, sys
import numpy as np
import pyarrow.parquet as parquet
records, out = map(pathlib.Path, sys.argv[1:])
table = parquet.read_table(out / "data/chunk-000/file-000.parquet")
episodes = parquet.read_table(out / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
info, stats = (json.loads((out / "meta" / name).read_text()) for name in ("info.json", "stats.json"))
actions, states, marks = np.array(table["action"].to_pylist()), np.array(table["observation.state"].to_pylist()), []
for path, episode in zip(sorted(records.glob("*.npz")), episodes):
    rows, source = slice(episode["dataset_from_index"], episode["dataset_to_index"]), np.load(path)
    marks.append(bool(np.array_equal(actions[rows], source["tick_action"].astype(np.float32))
                      and np.array_equal(states[rows], source["frame/state"].astype(np.float32))
                      and np.array_equal(table["intervention"].to_numpy()[rows], source["intervention"] != 0)))
print(json.dumps({
    "columns": sorted(table.column_names), "features": sorted(info["features"]), "equal": marks, "info": info,
    "frames": table.num_rows, "tasks": parquet.read_table(out / "meta/tasks.parquet").num_rows, "stats": stats,
    "png": all(image["bytes"].startswith(b"\x89PNG") for image in table["observation.images.image_base_0_rgb"].to_pylist())}))
"""

# Reads an MCAP file with the format's own library, which checks every CRC, and compares it with the record beside it.
MCAP = r"""
import base64, json, pathlib, sys
import numpy as np
from mcap.reader import make_reader
path = pathlib.Path(sys.argv[1])
source = np.load(path.with_suffix(".npz"))
topics, schemas = {}, {}
with path.open("rb") as file:
    reader = make_reader(file, validate_crcs=True)
    statistics = reader.get_summary().statistics
    for schema, channel, message in reader.iter_messages():
        topics.setdefault(channel.topic, []).append(json.loads(message.data))
        schemas[channel.topic] = (schema.name, schema.encoding, channel.message_encoding)
images = [base64.b64decode(image["data"]) for image in topics["/image/base_0_rgb"]]
print(json.dumps({
    "messages": statistics.message_count == sum(map(len, topics.values())),
    "schema": schemas["/image/base_0_rgb"],
    "actions": [a["action"] for a in topics["/action"]] == source["tick_action"].tolist(),
    "images": images == [image.tobytes() for image in source["frame/image/base_0_rgb"]],
    "rate": len(images) == len(topics["/action"]) > len(topics["/chunk"]),
    "chunks": [c["actions"] for c in topics["/chunk"]] == source["actions"].tolist(),
    "values": [v["value"] for v in topics["/value"]] == source["values"].astype(float).tolist(),
    "prompt": topics["/episode"][0]["prompt"] == bytes(source["prompt"]).decode()}))
"""

# The same with LeRobot's own reader.
OPEN = """
import sys
import numpy as np
from lerobot.datasets.lerobot_dataset import LeRobotDataset
records, out = sys.argv[1:]
data = LeRobotDataset("local/reach", root=out, delta_timestamps={"action": [i / 50 for i in range(10)]})
source = np.load(records + "/episode_000000.npz")
for tick in range(len(source["tick_time"])):
    frame = data[tick]
    pixels = (frame["observation.images.image_base_0_rgb"].numpy() * 255).round().astype(np.uint8)
    assert np.array_equal(pixels.transpose(1, 2, 0), source["frame/image/base_0_rgb"][tick])
    assert np.array_equal(frame["action"][0].numpy(), source["tick_action"][tick].astype(np.float32))
    assert frame["task"].startswith("reach the ")
assert len(LeRobotDataset("local/reach", root=out, episodes=[1])) < len(data)
print(len(data), "frames")
"""


class Datasets(HostTest):
    def dataset(self, python, *options):
        manifest = SOURCE / "hosts/manifests/reach.toml"
        self.check(OK, "-q", "rollout", manifest, "-n", 3, "--takeover", "2:4", "--record", "records", "--json")
        self.run_python(python, SOURCE / "tools/lerobot-dataset", "records", "out", *options)

    def run_python(self, python, *arguments):
        result = subprocess.run([python, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_a_dataset_holds_what_the_records_hold(self):
        python = python_with(self, "lerobot-dataset", "pyarrow==26.0.1", "pandas==3.1.1", "numpy==2.2.6")
        self.dataset(python)
        report = json.loads(self.run_python(python, "-c", CHECK, "records", "out"))
        self.assertEqual(report["columns"], report["features"])
        self.assertEqual(report["equal"], [True] * 3)
        self.assertTrue(report["png"])
        info, stats = report["info"], report["stats"]
        self.assertEqual((info["codebase_version"], info["total_episodes"], info["fps"]), ("v3.0", 3, 50))
        self.assertEqual((info["total_frames"], info["total_tasks"]), (report["frames"], report["tasks"]))
        self.assertEqual(sorted(stats), report["features"])
        for name in ("action", "observation.state"):
            for low, middle, high in zip(stats[name]["q01"], stats[name]["q50"], stats[name]["q99"]):
                self.assertLessEqual(low, middle)
                self.assertLessEqual(middle, high)
        image = stats["observation.images.image_base_0_rgb"]
        self.assertEqual([len(image["mean"]), len(image["mean"][0]), len(image["mean"][0][0])], [3, 1, 1])
        self.assertTrue(all(0 <= channel[0][0] <= 1 for channel in image["max"]))

    def test_what_it_cannot_do_is_said_in_a_line(self):
        python = python_with(self, "lerobot-dataset", "pyarrow==26.0.1", "pandas==3.1.1", "numpy==2.2.6")
        (self.folder / "records").mkdir()

        def refused(word, *arguments):
            result = subprocess.run([python, SOURCE / "tools/lerobot-dataset", *arguments], cwd=self.folder,
                                    capture_output=True, text=True, timeout=300)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(word, result.stderr)
            self.assertNotIn("Traceback", result.stderr)
        refused("has no episode_", "records", "out")
        refused("is there already", "records", "records")
        bare = subprocess.run([sys.executable, "-I", "-S", SOURCE / "tools/lerobot-dataset", "records", "out"], cwd=self.folder,
                              capture_output=True, text=True, timeout=300)
        self.assertIn("pip install", bare.stderr)

    def test_the_mcap_library_reads_what_the_record_holds(self):
        python = python_with(self, "mcap-reader", "mcap==1.6.0", "numpy==2.2.6")
        manifest = SOURCE / "hosts/manifests/reach.toml"
        self.check(OK, "-q", "rollout", manifest, "-n", 1, "--record", "records", "--json")
        report = json.loads(self.run_python(python, "-c", MCAP, "records/episode_000000.mcap"))
        self.assertEqual(report.pop("schema"), ["foxglove.RawImage", "jsonschema", "json"])
        self.assertEqual(set(report.values()), {True}, report)

    @unittest.skipUnless(os.environ.get("FRT_LEROBOT_PYTHON"), "FRT_LEROBOT_PYTHON names no Python with lerobot")
    def test_lerobot_opens_it(self):
        python = os.environ["FRT_LEROBOT_PYTHON"]
        self.dataset(python)
        self.assertRegex(self.run_python(python, "-c", OPEN, "records", "out"), r"\d+ frames")


if __name__ == "__main__":
    unittest.main()
