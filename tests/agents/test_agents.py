# SPDX-License-Identifier: Apache-2.0
"""Real coding agents against frt-host serve with the scripted model: a task of five turns with a tool each, two agents
at once, faults between. `tools/test --stage agents` installs the agents from PyPI and runs this."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent / "e2e"), str(pathlib.Path(__file__).resolve().parent)]

import proxy  # noqa: E402
from lm_serving import LmServer  # noqa: E402
from support import HostTest  # noqa: E402

SCRIPTED = os.environ["FRT_SCRIPTED_PLUGIN_DIR"]
AGENTS = pathlib.Path(os.environ["FRT_AGENTS"])  # a virtual environment
PACKAGES = next(iter(AGENTS.glob("lib/python3*/site-packages")), AGENTS)
TASK = "Write one to one.txt, look at it, add two."
COMMANDS = ("echo one > one.txt", "cat one.txt", "ls", "echo two >> one.txt", "cat one.txt")
# Where the agents' prompts differ, and how they call a shell.
SHELLS = {"codex": ("exec_command", lambda command: {"name": "exec_command", "arguments": {"cmd": command}}),
          "claude-code": ("Claude Code", lambda command: {
              "name": "Bash", "arguments": {"command": command, "description": "A step."}}),
          "mini-swe-agent": ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", lambda command: {
              "name": "bash", "arguments": {"command": command}})}


def script():
    """What the model says in each turn of each agent."""
    replies = []
    for agent, (mark, call) in SHELLS.items():
        for turn, command in enumerate(COMMANDS):
            replies.append({"when": {"prompt": mark, "turn": turn, "tools": True}, "reasoning": f"Step {turn}.",
                            "content": f"I run step {turn}.", "calls": [call(command)]})
        last = {"when": {"prompt": mark, "turn": len(COMMANDS), "tools": True}, "content": "Done."}
        if agent == "mini-swe-agent":  # it ends by a command
            last["calls"] = [call("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]
        replies.append(last)
    return {"replies": replies}


class Agents(HostTest):
    def server(self):
        path = self.folder / "script.json"
        path.write_text(json.dumps(script()), encoding="utf-8")
        log = self.folder / "requests.jsonl"
        log.unlink(missing_ok=True)
        manifest = self.model_manifest("synthetic:none", plugin="test.scripted",
                                       extra=f'[host.http]\nmodel = "m"\naliases = "*=m"\nrequest_log = "{log}"\n',
                                       options=f'script = "{path}"\nslots = 4')
        return LmServer(self, manifest, plugins=SCRIPTED), log

    def start(self, agent, server, faults=None):
        """A thread that runs the agent behind a proxy with faults, and a list that gets (status, output, folder)."""
        between = proxy.serve(0, f"http://127.0.0.1:{server.port}", faults=faults)
        self.addCleanup(between.server_close)
        self.addCleanup(between.shutdown)
        url = f"http://127.0.0.1:{between.server_port}"
        home, work = (pathlib.Path(tempfile.mkdtemp(dir=self.folder)) for _ in range(2))
        environment, command = self.command(agent, url)
        result = []

        def run():
            done = subprocess.run(command, cwd=work, env={"HOME": str(home), "PATH": "/usr/bin:/bin", **environment},
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=300)
            result.append((done.returncode, done.stdout, work))

        thread = threading.Thread(target=run)
        thread.start()
        return thread, result

    @staticmethod
    def command(agent, url):
        if agent == "codex":
            provider = f'{{name="frt",base_url="{url}/v1",env_key="KEY",wire_api="responses"}}'
            return {"KEY": "x"}, [PACKAGES / "codex_cli_bin/bin/codex", "exec", "--skip-git-repo-check",
                                  "--dangerously-bypass-approvals-and-sandbox", "-c", "model=m", "-c",
                                  "model_provider=frt", "-c", f"model_providers.frt={provider}", TASK]
        if agent == "claude-code":
            return ({"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "x", "ANTHROPIC_MODEL": "m",
                     "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
                    [PACKAGES / "claude_agent_sdk/_bundled/claude", "-p", TASK, "--allowedTools", "Bash"])
        return ({"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "OPENAI_API_KEY": "x",
                 "OPENAI_API_BASE": f"{url}/v1"},
                [AGENTS / "bin/mini", "-m", "openai/m", "-t", TASK, "-y", "--exit-immediately"])

    def finish(self, *started):
        for thread, _ in started:
            thread.join()
        for _, result in started:
            self.assertTrue(result, "the agent did not end in time")
            status, output, work = result[0]
            self.assertEqual(status, 0, output)
            self.assertEqual((work / "one.txt").read_text(), "one\ntwo\n", output)

    def check_prefixes(self, log, agents):
        """Each turn but an agent's first went on behind what was read before: nothing was read twice."""
        turns = [turn for turn in map(json.loads, log.read_text().splitlines()) if "prefix_action" in turn]
        self.assertGreaterEqual(len(turns), agents * (len(COMMANDS) + 1))
        broken = [turn for turn in turns if turn["prefix_action"] == "read"]
        self.assertLessEqual(len(broken), agents, broken)

    def test_each_agent_does_a_task_of_five_turns(self):
        for agent in SHELLS:
            with self.subTest(agent):
                server, log = self.server()
                self.finish(self.start(agent, server))
                self.check_prefixes(log, 1)
                server.kill()

    def test_two_agents_at_once(self):
        server, log = self.server()
        self.finish(self.start("codex", server), self.start("claude-code", server))
        self.check_prefixes(log, 2)

    def test_faults_between_lose_nothing(self):
        for agent in ("codex", "claude-code"):
            with self.subTest(agent):
                server, _ = self.server()
                self.finish(self.start(agent, server, {2: "503", 4: "cut"}))
                server.kill()


if __name__ == "__main__":
    unittest.main()
