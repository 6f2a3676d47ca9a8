# SPDX-License-Identifier: Apache-2.0
"""Language models from Python, with the demo model."""
import asyncio
import gc
import os
import pathlib
import tempfile
import threading
import unittest

import frt

DEMO = pathlib.Path(os.environ["FRT_SOURCE"]) / "hosts/manifests/demo.toml"
PROMPT = "Once upon a time, there was a little"


class Loading(unittest.TestCase):
    def test_devices_and_models_are_listed(self):
        with frt.load(DEMO) as runtime:
            self.assertEqual([device.name for device in runtime.devices], ["cpu0"])
            self.assertEqual(runtime.devices[0].backend, "frt.cpu")
            self.assertEqual([(model.name, model.plugin) for model in runtime.models], [("demo", "frt.qwen36")])
            self.assertEqual(list(runtime), ["demo"])

    def test_errors_carry_the_library_s_text_and_status(self):
        with self.assertRaises(frt.NotFound) as raised:
            frt.load("nowhere.toml")
        self.assertEqual(raised.exception.status, frt.Status.NOT_FOUND)
        self.assertIn("nowhere.toml", str(raised.exception))
        with frt.load(DEMO) as runtime:
            with self.assertRaisesRegex(LookupError, "has no model 'none'; it has: demo"):
                runtime["none"]
            with self.assertRaises(frt.Unsupported):
                runtime.policy("demo")
        with self.assertRaises(frt.InvalidArgument):
            runtime["demo"]  # the runtime is closed
        runtime.close()  # twice is no error

    def test_a_manifest_from_text_with_settings_log_and_progress(self):
        heard, phases = [], set()
        checkpoint = DEMO.parent.parent.parent / "tests/fixtures"
        runtime = frt.loads('schema = 1\n[device.c]\nbackend = "frt.cpu"\n[model.m]\nplugin = "frt.qwen36"\n'
                            'device = "c"\ncheckpoint = "demo"\n', checkpoint, sets=["model.m.options.slots=2"],
                            log=lambda level, source, text: heard.append((level, source, text)),
                            progress=lambda phase, done, total: phases.add(phase))
        self.assertEqual(runtime["m"].slots, 2)
        self.assertIn("weights", phases)
        with self.assertRaises(frt.Cancelled):
            frt.load(DEMO, progress=lambda *_: False)["demo"]


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runtime = frt.load(DEMO)
        cls.model = cls.runtime["demo"]

    @classmethod
    def tearDownClass(cls):
        cls.model.close()
        cls.runtime.close()

    def test_streamed_pieces_are_the_text(self):
        whole = self.model.generate(PROMPT, max_tokens=16, greedy=True)
        self.assertTrue(whole)
        with self.model.generate(PROMPT, max_tokens=16, greedy=True, stream=True) as stream:
            pieces = list(stream)
            result = stream.result()
        self.assertEqual("".join(pieces), whole)
        self.assertGreater(len(pieces), 4)
        self.assertEqual((result.finish, result.new_tokens), ("length", 16))
        ids = self.model.encode(PROMPT)
        self.assertEqual(self.model.decode(ids), PROMPT)
        self.assertEqual(self.model.generate(ids, max_tokens=16, greedy=True), whole)

    def test_sampling_is_repeated_by_its_seed(self):
        texts = {self.model.generate(PROMPT, max_tokens=12, temperature=1.5, seed=seed) for seed in (1, 1, 2, 3, 4)}
        self.assertGreater(len(texts), 1)
        self.assertLessEqual(len(texts), 4)
        with self.assertRaises(ValueError):
            self.model.generate(PROMPT, top_p=-1.0)
        with self.assertRaisesRegex(TypeError, "temprature"):
            self.model.generate(PROMPT, temprature=1.0)

    def test_a_stop_text_ends_the_answer(self):
        whole = self.model.generate(PROMPT, max_tokens=24, greedy=True)
        stop = whole[4:9]
        with self.model.generate(PROMPT, max_tokens=24, greedy=True, stop=stop, stream=True) as stream:
            self.assertEqual("".join(stream), whole[:whole.find(stop)])
            self.assertEqual((stream.result().finish, stream.result().stop_text), ("stop", stop))

    def test_a_conversation(self):
        options = {"chat_options": {"enable_thinking": False}, "greedy": True, "max_tokens": 32}
        messages = [{"role": "user", "content": "What is 2 + 2?"}]
        with self.model.session() as session:
            answer = session.chat(messages, **options)
            self.assertEqual(answer.content, "2 + 2 = 4")
            messages += [answer.message(), {"role": "user", "content": "What is 3 + 4?"}]
            self.assertEqual(session.chat(messages, **options).content, "3 + 4 = 7")
        self.assertIn("What is 3 + 4?", self.model.render(messages))
        with self.assertRaises(frt.Error):
            self.model.chat([{"role": "nobody", "content": "x"}])

    def test_an_answer_is_cancelled(self):
        with self.model.generate(PROMPT, max_tokens=100000, ignore_stops=True, stream=True) as stream:
            pieces = iter(stream)
            next(pieces)    # it is being written
            canceller = threading.Thread(target=stream.cancel)
            canceller.start()
            for _ in pieces:
                pass
            canceller.join()
            self.assertEqual(stream.result().finish, "cancelled")
        stream = self.model.generate(PROMPT, max_tokens=100000, ignore_stops=True, stream=True)
        with self.assertRaises(frt.NotReady):
            stream.result()
        stream.close()

    def test_a_task_that_is_cancelled_ends_its_answer(self):
        async def work(delay):
            task = asyncio.ensure_future(self.model.agenerate(PROMPT, max_tokens=100000, ignore_stops=True))
            await asyncio.sleep(delay)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
        for i in range(10):
            asyncio.run(work(0.001 * i))
        self.assertTrue(self.model.generate(PROMPT, max_tokens=4, greedy=True))

    def test_coroutines_answer_beside_each_other(self):
        alone = [self.model.generate(prompt, max_tokens=12, greedy=True) for prompt in (PROMPT, "The dog")]

        async def work():
            texts = await asyncio.gather(*(self.model.agenerate(prompt, max_tokens=12, greedy=True)
                                           for prompt in (PROMPT, "The dog")))
            pieces = [piece async for piece in self.model.generate(PROMPT, max_tokens=12, greedy=True, stream=True)]
            answer = await self.model.achat([{"role": "user", "content": "What is 2 + 2?"}], greedy=True,
                                            chat_options={"enable_thinking": False})
            return texts, "".join(pieces), answer.content
        texts, streamed, content = asyncio.run(work())
        self.assertEqual(texts, alone)
        self.assertEqual(streamed, alone[0])
        self.assertEqual(content, "2 + 2 = 4")

    def test_a_capsule_goes_on_the_same_each_time(self):
        with self.model.session() as session:
            begun = session.generate(PROMPT, max_tokens=8, greedy=True)
            self.assertEqual(session.text, PROMPT + begun)
            with session.snapshot() as capsule, session.fork() as fork:
                self.assertEqual(capsule.tokens, len(session.tokens))
                self.assertGreater(capsule.bytes, 0)
                self.assertIsNone(capsule.other_build)
                first = session.generate("", max_tokens=8, greedy=True)
                self.assertEqual(fork.generate("", max_tokens=8, greedy=True), first)
                session.restore(capsule)
                self.assertEqual(session.generate("", max_tokens=8, greedy=True), first)
                with capsule.fork() as other:
                    self.assertEqual(other.generate("", max_tokens=8, greedy=True), first)
                with tempfile.TemporaryDirectory() as folder:
                    capsule.save(folder, "tale")
                    with self.assertRaises(frt.Error) as raised:
                        capsule.save(folder, "tale")
                    self.assertEqual(raised.exception.status, frt.Status.EXISTS)
                    capsule.save(folder, "tale", replace=True)
                    with self.model.load_capsule(folder, "tale") as loaded, loaded.fork() as other:
                        self.assertEqual(other.generate("", max_tokens=8, greedy=True), first)
            with self.assertRaises(frt.InvalidArgument):
                session.restore(capsule)  # it is closed

    def test_what_nobody_holds_closes_by_itself(self):
        stream = self.model.generate(PROMPT, max_tokens=100000, ignore_stops=True, stream=True)
        session = self.model.session()
        closing = stream._closing, session._closing
        del stream, session
        gc.collect()
        self.assertFalse(any(each.alive for each in closing))
        self.assertTrue(self.model.generate(PROMPT, max_tokens=4, greedy=True))


if __name__ == "__main__":
    unittest.main(verbosity=2)
