"""load_tools.py PROGRAM wrk|slowhttptest: a tool of Debian's against a server that answers others meanwhile."""

import json
import shutil
import subprocess
import sys
import tempfile
import time

from served import Served, program, skip

# Every request is answered with status 200, or with 429 when there is no room.
SCRIPT = """
wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.body = '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": true}'
local bad = 0
function response(status)
  if status ~= 200 and status ~= 429 then bad = bad + 1 end
end
"""


def with_wrk(server):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        tool = subprocess.run(["wrk", "-t1", "-c32", "-d3s", "-s", script.name, server.base], capture_output=True,
                              text=True, check=False, timeout=60)
    print(tool.stdout, tool.stderr)
    assert tool.returncode == 0
    assert "Socket errors" not in tool.stdout or "connect 0, read 0, write 0" in tool.stdout


def with_slowhttptest(server):
    for how in ([], ["-B"], ["-X"]):  # slow headers, slow bodies, slow reading
        attack = ["slowhttptest", *(how or ["-H"]), "-c", "200", "-r", "200", "-i", "1", "-l", "3", "-p", "2",
                  "-u", server.base + "/health"]
        tool = subprocess.Popen(attack, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        slowest = 0.0
        while tool.poll() is None:
            began = time.monotonic()
            assert server.ask("/health")[0] == 200
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.2)
        print(f"{how or ['-H']}: /health took {slowest * 1000:.1f} ms at most")
        tool.communicate()


def main():
    tool = sys.argv[2]
    if shutil.which(tool) is None:
        skip(f"{tool} is not installed (Debian: {tool})")
    with Served(program()) as server:
        {"wrk": with_wrk, "slowhttptest": with_slowhttptest}[tool](server)
        status, answer = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}],
                                                             "max_tokens": 4})
        assert status == 200, json.dumps(answer)


if __name__ == "__main__":
    main()
