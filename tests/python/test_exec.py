# SPDX-License-Identifier: Apache-2.0
"""Buffers, streams, graphs and plans of a device from Python, and memory shared with others; on the CPU backend."""
import array
import ctypes
import gc
import os
import pathlib
import re
import threading
import unittest
import weakref

import frt
from frt import _exec_tables, exec

SOURCE = pathlib.Path(os.environ["FRT_SOURCE"])
MANIFEST = 'schema = 1\n[device.c]\nbackend = "frt.cpu"\noptions.threads = 1\n'


class BinaryArgs(ctypes.Structure):
    """frt_binary_args of frt/ops/elementwise.h."""
    _fields_ = [("struct_size", ctypes.c_uint32), ("dtype", ctypes.c_uint32), ("rows", ctypes.c_int32),
                ("width", ctypes.c_int32), ("row_count", ctypes.c_void_p), ("a", ctypes.c_void_p),
                ("a_stride", ctypes.c_int64), ("b", ctypes.c_void_p), ("b_stride", ctypes.c_int64),
                ("y", ctypes.c_void_p), ("y_stride", ctypes.c_int64)]


class Tables(unittest.TestCase):
    def test_the_tables_and_structs_are_those_of_the_headers(self):
        header = (SOURCE / "sdk/include/frt/exec.h").read_text(encoding="utf-8")
        headers = [header] + [(SOURCE / "sdk/include/frt" / name).read_text(encoding="utf-8")
                              for name in ("backend.h", "kernels.h", "draft/graph.h", "draft/plan.h")]
        for members, struct, text in ((_exec_tables.EXEC, "frt_exec_v1", header), (_exec_tables.GRAPH, "frt_graph_draft", headers[3]),
                                      (_exec_tables.PLAN, "frt_plan_draft", headers[4])):
            body = re.sub(r"/\*.*?\*/", "", re.search(rf"typedef struct {struct} \{{(.*?)\}} {struct};", text, re.S)[1], flags=re.S)
            declared = re.findall(r"([\w ]+?\*?) ?\(\*(\w+)\)\(((?:[^()]|\([^()]*\)(?:\([^()]*\))?)*)\);", body)
            self.assertEqual([name for _, name, _ in declared], [name for name, _, _ in members])
            for (result, name, arguments), (_, kind, given) in zip(declared, members):
                self.assertEqual(result.strip() == "void", kind is None, name)
                depth_commas = re.sub(r"\([^()]*\)", "", arguments).count(",")
                self.assertEqual(depth_commas + 1, len(given), name)
        for name in ("frt_device_info", "frt_context_info", "frt_counters", "frt_buffer_info", "frt_recorder", "frt_copy", "frt_kernel"):
            size, last, offset = next(match for match in (re.search(
                rf"FRT_ASSERT_LAYOUT\({name}, (\d+), (\w+), (\d+)\)", text) for text in headers) if match).groups()
            declared = getattr(_exec_tables, name)
            self.assertEqual((ctypes.sizeof(declared), getattr(declared, last).offset), (int(size), int(offset)), name)
        base = (SOURCE / "sdk/include/frt/base.h").read_text(encoding="utf-8")
        numbers = {name.lower(): int(number) for name, number in re.findall(r"#define FRT_DTYPE_(\w+) (\d+)u", base)}
        self.assertEqual({name: number for number, name in enumerate(exec.DTYPES) if name},
                         {name: number for name, number in numbers.items() if name not in ("none", "count")})


class Exec(unittest.TestCase):
    def setUp(self):
        self.runtime = frt.loads(MANIFEST, all_devices=True)
        self.context = self.runtime.context("c")
        self.stream = self.context.stream()

    def tearDown(self):
        self.context.close()
        self.runtime.close()

    def test_a_context_says_what_it_is(self):
        self.assertEqual((self.context.name, self.context.backend, self.context.native_kind), ("c", "frt.cpu", "cpu"))
        self.assertGreater(self.context.memory_free, 0)
        with self.assertRaisesRegex(frt.NotFound, "no device 'd' is open; open are: c"):
            self.runtime.context("d")
        with frt.loads(MANIFEST) as unused, self.assertRaisesRegex(frt.InvalidArgument, "FRT_RUNTIME_ALL_DEVICES"):
            unused.context()

    def test_copies_and_fills_in_the_order_of_a_stream(self):
        a, b = self.context.buffer(256, "u8"), self.context.buffer((2, 64), "f32", space="host", name="b")
        self.assertEqual((b.nbytes, b.shape, b.dtype, b.space, b.name), (512, (2, 64), "f32", "host", "b"))
        a.fill(7, self.stream)
        a.fill(9, self.stream, nbytes=4, offset=8)
        b.fill(0, self.stream)
        b.copy_from(a, self.stream, offset=256)
        self.stream.sync()
        found = b.memory().cast("B")
        self.assertEqual(bytes(found[256:272]), bytes([7] * 8 + [9] * 4 + [7] * 4))
        self.assertEqual(bytes(found[:256]), bytes(256))
        with self.assertRaisesRegex(frt.OutOfRange, "256"):
            b.copy_from(a, self.stream, nbytes=257)
        with self.assertRaises(ValueError):
            a.fill(256, self.stream)
        part = a.view(4, offset=8)
        del a
        gc.collect()
        self.assertEqual(bytes(part.memory()), bytes([9] * 4))

    def test_wrong_arguments_are_refused(self):
        for call in (lambda: self.context.buffer(0), lambda: self.context.buffer(4, "f33"), lambda: self.context.buffer(4, space="moon"),
                     lambda: self.context.buffer((-1, 4)), lambda: self.context.graph(capacity=0), lambda: frt.key(1 << 16)):
            with self.assertRaises(ValueError):
                call()
        with self.assertRaises(frt.Error):
            self.context.buffer(1 << 60)
        with self.assertRaisesRegex(TypeError, "neither DLPack"):
            self.context.wrap(3)

    def test_a_graph_is_recorded_once_and_replayed(self):
        x, y = self.context.buffer(64, "u8"), self.context.buffer(64, "u8")
        graph, seen = self.context.graph("copy", capacity=2), []

        def record(recorder):
            seen.append(recorder.capturing)
            recorder.copy(y, x)
            recorder.fill(y, 5, nbytes=2)

        one, two = frt.key(1, 2), frt.key(1, 3)
        graph.capture(one, record)
        self.assertIn(one, graph)
        self.assertNotIn(two, graph)
        for value in (3, 4):
            x.fill(value, self.stream)
            graph.replay(one, self.stream)
            self.stream.sync()
            self.assertEqual(bytes(y.memory()), bytes([5, 5] + [value] * 62))
        self.assertEqual(len(seen), 1)
        with self.assertRaises(frt.Error) as met:
            graph.replay(two, self.stream)
        self.assertEqual(met.exception.status, frt.Status.NO_VARIANT)
        graph.evict(one)
        self.assertEqual(len(graph), 0)
        self.assertEqual(self.context.counters["replays"], 2)

    def test_what_a_recording_raises_reaches_its_caller(self):
        graph = self.context.graph()
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            graph.capture(1, lambda recorder: 1 / 0)
        self.assertEqual(len(graph), 0)
        x = self.context.buffer(4)
        graph.capture(1, lambda recorder: recorder.fill(x, 1))   # the stream is usable
        with self.assertRaisesRegex(frt.Error, "inside a record"):
            graph.capture(2, lambda recorder: graph.replay(1, self.stream))

    def test_a_kernel_of_the_backend(self):
        add = self.context.kernel("frt.add/1", ["f32"], ["f32"])
        a, b = (self.context.wrap(array.array("f", values)) for values in ([1, 2, 3, 4], [10, 20, 30, 40]))
        y = self.context.buffer((1, 4), "f32")
        arguments = BinaryArgs(dtype=1, rows=1, width=4, a=a.pointer, a_stride=4, b=b.pointer, b_stride=4, y=y.pointer, y_stride=4)
        add.launch(self.stream, arguments)
        self.stream.sync()
        self.assertEqual(y.memory().tolist(), [[11, 22, 33, 44]])
        graph = self.context.graph()
        graph.capture(1, lambda recorder: recorder.launch(add, arguments), keep=(a, b, y))
        a.memory()[0] = 5
        graph.replay(1, self.stream)
        self.stream.sync()
        self.assertEqual(y.memory().tolist(), [[15, 22, 33, 44]])
        arguments.width = 0
        with self.assertRaisesRegex(frt.InvalidArgument, "width"):
            add.launch(self.stream, arguments)
        with self.assertRaisesRegex(frt.NotFound, "frt.no_such/1"):
            self.context.kernel("frt.no_such/1")

    def test_a_plan_orders_graphs(self):
        x, y, z = (self.context.buffer(8, "u8") for _ in range(3))
        first, second = self.context.graph(), self.context.graph()
        first.capture(1, lambda recorder: recorder.copy(y, x))
        second.capture(1, lambda recorder: recorder.copy(z, y))
        plan, other = self.context.plan(), self.context.stream()
        one = plan.add(first, 1, self.stream)
        two = plan.add(second, 1, other, after=[one])
        plan.compile()
        for value in (1, 2):
            x.fill(value, self.stream)
            plan.execute(self.stream)
            self.stream.sync()
            self.assertEqual(bytes(z.memory()), bytes([value] * 8))
        circle = self.context.plan()
        one, two = circle.add(first, 1, self.stream), circle.add(second, 1, self.stream)
        circle._driver.do(circle._table.after, circle._handle, one, two)
        circle._driver.do(circle._table.after, circle._handle, two, one)
        with self.assertRaises(frt.Error) as met:
            circle.compile()
        self.assertEqual(met.exception.status, frt.Status.CYCLE)

    def test_events(self):
        start, end, other = self.context.event(timing=True), self.context.event(timing=True), self.context.stream()
        x = self.context.buffer(1 << 16)
        start.record(self.stream)
        x.fill(1, self.stream)
        end.record(self.stream)
        other.wait(end)
        other.sync()
        end.sync()
        self.assertTrue(end.done())
        self.assertGreaterEqual(start.elapsed_ms(end), 0)

    # ---- sharing ----

    def test_memory_of_others_is_shared(self):
        values = array.array("d", range(6))
        shared = self.context.wrap(values)
        self.assertEqual((shared.dtype, shared.shape, shared.space), ("f64", (6,), "host"))
        shared.memory()[2] = 7.5
        self.assertEqual(values[2], 7.5)
        with self.assertRaises(BufferError):
            values.append(1.0)                       # it cannot move while it is shared
        del shared
        gc.collect()
        self.context.sync()
        values.append(1.0)
        for bad in (b"read-only", memoryview(bytearray(8))[::2], bytearray()):
            with self.assertRaises(BufferError):
                self.context.wrap(bad)

    def test_dlpack_gives_and_takes_the_same_memory(self):
        mine = self.context.buffer((2, 3), "f32")
        mine.memory()[1, 2] = 4.5
        again = self.context.wrap(mine)
        self.assertEqual((again.pointer, again.shape, again.dtype, again.nbytes), (mine.pointer, (2, 3), "f32", 24))
        held = exec._dlpack._given
        self.assertEqual(len(held), 1)               # taken, and not given back
        again.close()
        self.assertEqual(len(held), 0)
        for version in (None, (1, 1)):
            capsule = mine.__dlpack__(max_version=version)
            self.assertEqual(len(held), 1)
            del capsule                              # nobody took it
            self.context.sync()                      # the next call finds that
            self.assertEqual(len(held), 0)
        self.assertEqual(mine.__dlpack_device__(), (1, 0))
        capsule = mine.__dlpack__()
        taken = exec._dlpack.Taken(capsule)
        with self.assertRaisesRegex(TypeError, "taken before"):
            exec._dlpack.Taken(capsule)
        taken.release()
        with self.assertRaises(BufferError):
            mine.__dlpack__(copy=True)
        with self.assertRaises(BufferError):
            mine.__dlpack__(dl_device=(2, 0))
        with self.assertRaises(AttributeError):
            mine.__cuda_array_interface__

    def test_a_tensor_outlives_the_python_object_that_gave_it(self):
        class Tensor:
            def __init__(self, buffer):
                self.buffer = buffer

            def __dlpack__(self, **options):
                return self.buffer.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.buffer.__dlpack_device__()

        shared = self.context.wrap(Tensor(self.context.buffer(16, "u8")))
        gc.collect()
        shared.fill(3, self.stream)
        self.stream.sync()
        self.assertEqual(bytes(shared.memory()), bytes([3] * 16))

    @unittest.skipUnless(__import__("importlib.util").util.find_spec("numpy"), "numpy is not here")
    def test_numpy_shares_memory_both_ways(self):
        import numpy
        mine = self.context.buffer((2, 3), "f32")
        theirs = numpy.from_dlpack(mine)
        theirs[...] = 2
        self.assertEqual(mine.memory().tolist(), [[2] * 3] * 2)
        shared = self.context.wrap(theirs.T.copy())
        self.assertEqual(shared.shape, (3, 2))
        with self.assertRaisesRegex(BufferError, "packed"):
            self.context.wrap(theirs.T)

    @unittest.skipUnless(__import__("importlib.util").util.find_spec("numpy"), "numpy is not here")
    def test_a_tensor_that_numpy_refuses_goes_back(self):
        import numpy
        before = self.context.counters["device_bytes"]
        mine = self.context.buffer((2, 3), "bf16")
        with self.assertRaises((BufferError, RuntimeError)):     # its own error
            numpy.from_dlpack(mine)
        mine.close()
        self.assertEqual(self.context.counters["device_bytes"], before)
        self.assertEqual(exec._dlpack._given, {})

    # ---- lives ----

    def test_what_is_closed_says_so(self):
        x = self.context.buffer(4)
        x.close()
        x.close()
        with self.assertRaisesRegex(frt.Error, "the buffer is closed"):
            x.fill(0, self.stream)
        y = self.context.buffer(4)
        self.context.close()
        with self.assertRaisesRegex(frt.Error, "closed"):
            y.fill(0, self.stream)
        y.close()

    def test_objects_go_in_any_order_and_on_any_thread(self):
        before = self.context.counters["device_bytes"]
        for _ in range(20):
            x, y = self.context.buffer(4096), self.context.buffer(4096)
            graph = self.context.graph()
            graph.capture(1, lambda recorder, x=x, y=y: recorder.copy(y, x))
            graph.replay(1, self.stream)
            ring = [graph, x, y]
            ring.append(ring)                        # a cycle: freed by the collector, wherever it runs
            del x, y, graph, ring
        worker = threading.Thread(target=gc.collect)
        worker.start()
        worker.join()
        self.context.sync()
        self.assertEqual(self.context.counters["device_bytes"], before)

    def test_what_another_library_reads_stays_until_it_is_done(self):
        before = self.context.counters["device_bytes"]
        x = self.context.buffer(4096)
        taken = exec._dlpack.Taken(x.__dlpack__(stream=-1))
        view = x.memory()
        x.close()
        with self.assertRaisesRegex(frt.Error, "the buffer is closed"):
            x.fill(1, self.stream)
        view[:] = bytes([7]) * 4096
        del x
        gc.collect()
        self.assertEqual(self.context.counters["device_bytes"], before + 4096)
        self.assertEqual(ctypes.string_at(taken.tensor.data, 4), b"\7\7\7\7")
        del view
        self.assertEqual(self.context.counters["device_bytes"], before + 4096)
        taken.release()
        self.assertEqual(self.context.counters["device_bytes"], before)

    def test_a_device_is_closed_when_the_last_taker_is_done(self):
        context = self.runtime.context()
        view = context.buffer(64).memory()
        driver = context._driver
        context.close()
        with self.assertRaisesRegex(frt.Error, "the device is closed"):
            context.buffer(1)
        view[:] = bytes(64)
        self.assertTrue(driver.to_close)
        del view
        self.assertFalse(driver.to_close)

    def test_what_a_graph_works_on_stays_until_it_is_released(self):
        class Owner:
            pass

        kept = Owner()
        gone = weakref.ref(kept)
        x, y = self.context.buffer(16), self.context.buffer(16)
        graph = self.context.graph(capacity=2)
        graph.capture(1, lambda recorder: recorder.copy(y, x), keep=kept)
        del kept
        graph.replay(1, self.stream)
        del graph           # its work may run on
        self.assertIsNotNone(gone())
        self.context.sync()     # the next call releases it
        self.assertIsNone(gone())

    def test_what_an_evicted_variant_worked_on_goes(self):
        class Owner:
            pass

        x, y = self.context.buffer(16), self.context.buffer(16)
        graph, kept = self.context.graph(capacity=2), []
        for key in range(1, 6):
            owner = Owner()
            kept.append(weakref.ref(owner))
            graph.capture(key, lambda recorder: recorder.copy(y, x), keep=owner)
            del owner
        self.assertEqual([one() is not None for one in kept], [key in graph for key in range(1, 6)])
        self.assertEqual(len(graph), 2)

    def test_two_who_open_a_device_share_its_turn(self):
        other = self.runtime.context()
        self.assertIs(other._driver.turn, self.context._driver.turn)
        other.close()
        self.context.sync()

    def test_a_forked_process_has_no_device(self):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.context.sync()
            except frt.Error as error:
                status = 5 if error.status == frt.Status.BAD_STATE else 2
            self.context.close()
            os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 5)
        self.context.sync()

    def test_an_array_that_is_refused_goes_back(self):
        class Empty:
            released = 0

            def __init__(self, buffer):
                self.buffer = buffer

            def __dlpack__(self, **options):
                return self.buffer.view(0, "u8").__dlpack__(**options)

            def __dlpack_device__(self):
                return self.buffer.__dlpack_device__()

        given = len(exec._dlpack._given)
        with self.assertRaises((BufferError, frt.Error)):
            self.context.wrap(Empty(self.context.buffer(16)))
        self.assertEqual(len(exec._dlpack._given), given)

    def test_what_a_recipe_raises_at_an_eager_replay_reaches_its_caller(self):
        with frt.loads(MANIFEST + "capture = false\n", all_devices=True) as runtime, runtime.context() as context:
            self.assertTrue(context.eager)
            x, fails, stream = context.buffer(16), [], context.stream()

            def record(recorder):
                recorder.fill(x, 1)
                if fails:
                    raise KeyError(fails[0])

            graph = context.graph()
            graph.capture(1, record)
            fails.append("why")
            for _ in range(3):
                with self.assertRaisesRegex(KeyError, "why"):
                    graph.replay(1, stream)
            self.assertEqual(len(graph._met), 0)

    def test_a_device_of_nobody_is_closed(self):
        stream = self.runtime.context().stream()
        gc.collect()
        stream.sync()                                # it keeps the device
        self.assertEqual(len(exec._drivers), 2)
        del stream
        gc.collect()
        self.assertEqual(len(exec._drivers), 1)


if __name__ == "__main__":
    unittest.main()
