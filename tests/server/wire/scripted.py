"""A server whose answers are scripted (scripted_server.cc), for one test."""

import json
import subprocess


def hermes(path, lines):
    """A call of read_file as models of the family write it."""
    return ('<tool_call>\n{"name": "read_file", "arguments": '
            + json.dumps({"path": path, "lines": lines}, ensure_ascii=False) + "}\n</tool_call>")


def qwen(path, lines):
    """Likewise."""
    return (f"<tool_call>\n<function=read_file>\n<parameter=path>\n{path}\n</parameter>\n<parameter=lines>\n{lines}\n"
            "</parameter>\n</function>\n</tool_call>")


class Scripted:
    """`with Scripted(program, "hermes") as server:`; server.say(text) is the next answer, server.base its address."""

    def __init__(self, program, family):
        self.command = [program, family]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.base = self.line_with("scripted at ").split(" at ")[1].strip().removesuffix("/v1")
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(timeout=30) == 0

    def line_with(self, mark):
        for line in self.process.stdout:
            if line.startswith(mark):
                return line
        raise SystemExit(f"the server ended with {self.process.wait()}")

    def say(self, text):
        self.process.stdin.write(json.dumps(text) + "\n")
        self.process.stdin.flush()
        self.line_with("said")
