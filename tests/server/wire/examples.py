"""examples.py PROGRAM DOCUMENT...: every curl of the documents' blocks is run against a server, in its order; what a
document shows behind it is what it says."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

from served import Served, program, skip


def commands_of(block):
    """(command, shown): commands with the lines that go on from them, and the line behind one that has a prompt."""
    found = []
    for line in block.splitlines():
        if line.startswith(("curl ", "$ curl ", "B=")):
            found.append([line, None])
        elif found and re.match(r"\s", line):
            found[-1][0] += "\n" + line
        elif found and found[-1][0].startswith("$ ") and found[-1][1] is None:
            found[-1][1] = line
    return found


def run(command, setting, base):
    script = "\n".join([*setting, command.removeprefix("$ ").replace("curl ", "curl -sS ")])
    script = script.replace("http://127.0.0.1:8000", base)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def check(document, base):
    text = pathlib.Path(document).read_text(encoding="utf-8")
    num_run = 0
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if language:
            continue
        setting = []
        for command, shown in commands_of(block):
            if command.startswith("B="):
                setting.append(command)
                continue
            said = run(command, setting, base)
            if "structured_output_unavailable" in said:  # without the library
                print(f"not run: {command}")
                continue
            assert json.loads(said).get("error") is None, f"{command}: {said}"
            assert shown is None or said == shown, f"{command}: {said}, not {shown}"
            num_run += 1
    print(f"{document}: {num_run} examples")
    assert num_run > 0, document


def main():
    if shutil.which("curl") is None:
        skip("curl is not installed: `apt-get install curl` brings it")
    with Served(program()) as server:
        for document in sys.argv[2:]:
            check(document, server.base)


if __name__ == "__main__":
    main()
