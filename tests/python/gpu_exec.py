# SPDX-License-Identifier: Apache-2.0
"""Torch and a CUDA device share memory, streams and graphs through frt.exec. Exits with 77 where there is no torch, or no
NVIDIA GPU that it can use; the latter is a failure with FRT_DEVICE_REQUIRED=1."""
import os
import sys
import unittest

import frt

MANIFEST = 'schema = 1\n[device.g]\nbackend = "auto"\n'


try:
    import torch
except ImportError:
    torch = None


class Shared(unittest.TestCase):
    def setUp(self):
        self.runtime = frt.loads(MANIFEST, all_devices=True)
        self.context = self.runtime.context()
        self.assertEqual(self.context.native_kind, "cuda")
        self.stream = self.context.stream()

    def tearDown(self):
        self.context.close()
        self.runtime.close()

    def test_memory_is_shared_without_a_copy(self):
        for dtype, name in ((torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.int64, "i64"), (torch.uint8, "u8"),
                            (torch.float8_e4m3fn, "f8_e4m3")):
            theirs = torch.zeros(8, 32, device="cuda", dtype=dtype)
            torch.cuda.synchronize()
            try:
                mine = self.context.wrap(theirs)
            except (TypeError, BufferError):
                self.assertEqual(name, "f8_e4m3")   # a DLPack of torch that has no eight-bit floats
                continue
            self.assertEqual((mine.pointer, mine.shape, mine.dtype, mine.space), (theirs.data_ptr(), (8, 32), name, "device"))
            mine.fill(0x3f, self.stream)
            self.stream.sync()
            self.assertTrue(bool((theirs.view(torch.uint8) == 0x3f).all()))
        mine = self.context.buffer((4, 16), "f32")
        for theirs in (torch.from_dlpack(mine), torch.as_tensor(mine, device="cuda")):
            self.assertEqual((theirs.data_ptr(), tuple(theirs.shape), theirs.dtype), (mine.pointer, (4, 16), torch.float32))
        strided = torch.zeros(8, 32, device="cuda").T
        with self.assertRaisesRegex(BufferError, "packed"):
            self.context.wrap(strided)
        pinned = torch.zeros(64, dtype=torch.uint8).pin_memory()
        self.assertIn(self.context.wrap(pinned).space, ("pinned", "host"))

    def test_a_tensor_that_torch_dropped_stays_while_it_is_shared(self):
        theirs = torch.full((1 << 20,), 7, device="cuda", dtype=torch.uint8)
        torch.cuda.synchronize()
        mine = self.context.wrap(theirs)
        del theirs
        torch.cuda.empty_cache()
        other = torch.zeros(1 << 20, device="cuda", dtype=torch.uint8)    # would take its place
        host = self.context.buffer(1 << 20, space="pinned")
        host.copy_from(mine, self.stream)
        self.stream.sync()
        self.assertEqual(set(host.memory()), {7})
        self.assertEqual(int(other.sum()), 0)

    def test_work_runs_in_the_order_of_torchs_stream(self):
        theirs = torch.cuda.Stream()
        wrapped = self.context.wrap_stream(theirs.cuda_stream)
        x = torch.zeros(1 << 24, device="cuda")
        torch.cuda.synchronize()
        mine = self.context.wrap(x)
        with torch.cuda.stream(theirs):
            for _ in range(20):
                x.add_(1)
            mine.fill(0, wrapped)
            x.add_(3)
        theirs.synchronize()
        self.assertTrue(bool((x == 3).all()))

    def test_a_graph_of_torch_beside_one_of_ours_in_a_plan(self):
        """An adopted graph computes bit for bit what torch's own replay does, over one buffer that both share."""
        torch.manual_seed(1)
        x = torch.zeros(64, 512, device="cuda")
        weight = torch.randn(512, 512, device="cuda")
        y = torch.zeros(64, 512, device="cuda")

        def work():
            torch.mm(x, weight, out=y)
            torch.nn.functional.silu(y, inplace=True)

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                work()
        torch.cuda.synchronize()
        theirs = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(theirs):
            work()
        theirs.instantiate()
        inputs = torch.randn(64, 512)
        source = self.context.wrap(inputs.pin_memory())
        shared = self.context.wrap(x)
        ours, adopted = self.context.graph("upload"), self.context.graph("torch")
        ours.capture(1, lambda recorder: recorder.copy(shared, source))
        adopted.adopt(1, theirs.raw_cuda_graph_exec(), keep=(theirs, x, y, weight))
        plan = self.context.plan()
        first = plan.add(ours, 1, self.stream)
        plan.add(adopted, 1, self.stream, after=[first])
        fused = plan.compile()
        results = []
        for run in (lambda: plan.execute(self.stream), lambda: (ours.replay(1, self.stream), adopted.replay(1, self.stream))):
            x.zero_()
            y.zero_()
            torch.cuda.synchronize()
            run()
            self.stream.sync()
            results.append(y.clone())
        x.copy_(inputs)
        theirs.replay()
        torch.cuda.synchronize()
        for result in results:
            self.assertTrue(torch.equal(result.view(torch.int32), y.view(torch.int32)))
        self.assertGreater(float(y.abs().sum()), 0)
        self.assertEqual(shared.pointer, x.data_ptr())
        print(f"the plan is {'one launch' if fused else 'launches in order'}")

    def test_torchs_work_recorded_into_a_graph_of_ours(self):
        x = torch.zeros(1024, device="cuda")
        y = torch.zeros(1024, device="cuda")
        torch.cuda.synchronize()
        graph, shared = self.context.graph(), self.context.wrap(x)

        def record(recorder):
            recorder.fill(shared, 0x40)             # 3.0039...: every byte is 0x40
            with torch.cuda.stream(torch.cuda.ExternalStream(recorder.native)):
                torch.mul(x, 2, out=y)

        graph.capture(1, record, keep=(x, y))
        graph.replay(1, self.stream)
        self.stream.sync()
        self.assertTrue(torch.equal(y, x * 2))
        self.assertGreater(float(y.sum()), 0)


if __name__ == "__main__":
    if torch is None or not torch.cuda.is_available():
        print("there is no torch here" if torch is None else "torch finds no GPU here")
        sys.exit(1 if torch and os.environ.get("FRT_DEVICE_REQUIRED") else 77)
    unittest.main()
