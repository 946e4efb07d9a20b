"""load_tools.py PROGRAM wrk|slowhttptest|stalled|half-open|headers: a tool of Debian's, or a thousand clients that do
not read, or do not go on, or send headers of 10 MB, against a server that answers others meanwhile."""

import json
import multiprocessing
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from served import Served, program, skip

# Chats that hang up when the time is over.
SCRIPT = """
wrk.method = "POST"
wrk.path = "/v1/chat/completions"
wrk.body = '{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "stream": true}'
"""


def with_wrk(server):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(SCRIPT)
        script.flush()
        tool = subprocess.run(["wrk", "-t1", "-c32", "-d3s", "-s", script.name, server.base], capture_output=True,
                              text=True, check=False, timeout=60)
    print(tool.stdout, tool.stderr)
    assert tool.returncode == 0
    assert "Non-2xx" not in tool.stdout and "Socket errors" not in tool.stdout


def with_slowhttptest(server):
    for how in ([], ["-B"], ["-X"]):  # slow headers, slow bodies, slow reading
        attack = ["slowhttptest", *(how or ["-H"]), "-c", "200", "-r", "200", "-i", "1", "-l", "3", "-p", "2",
                  "-u", server.base + "/health"]
        tool = subprocess.Popen(attack, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        times = []
        while tool.poll() is None:
            began = time.monotonic()
            assert server.ask("/health")[0] == 200
            times.append((time.monotonic() - began) * 1000)
            time.sleep(0.2)
        print(f"{how or ['-H']}: /health took {max(times):.1f} ms at most")
        assert sorted(times)[len(times) // 2] < 50, times
        tool.communicate()


def address_of(server):
    host, port = server.base.removeprefix("http://").split(":")
    return host, int(port)


def allow_files():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1100:
        skip(f"a process may have {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def print_health(server, beside):
    times = []
    for _ in range(40):
        began = time.monotonic()
        assert server.ask("/health")[0] == 200
        times.append((time.monotonic() - began) * 1000)
        time.sleep(0.05)
    median = sorted(times)[20]
    print(f"beside {beside} /health took {median:.1f} ms, {times[0]:.1f} the first time, {max(times):.1f} at most")
    assert median < 50, times


def with_stalled_readers(server):
    allow_files()
    body = json.dumps({"prompt": [7] * 8, "max_tokens": 3000, "stream": True, "ignore_eos": True})
    request = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
    readers = []
    for _ in range(1000):
        reader = socket.socket()
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        reader.connect(address_of(server))
        reader.send(request)
        readers.append(reader)
    print_health(server, f"{len(readers)} stalled readers")
    for reader in readers:
        reader.close()


def with_half_open(server):
    allow_files()
    parts = (b"", b"POST /v1/comple", b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
    clients = []
    for i in range(1000):
        client = socket.create_connection(address_of(server))
        client.send(parts[i % 3])
        clients.append(client)
    print_health(server, f"{len(clients)} clients that do not go on")
    for client in clients:
        client.close()


def send_long_headers(address, refused):
    request = b"GET /health HTTP/1.1\r\nX: " + b"x" * (10 << 20) + b"\r\n\r\n"
    while True:
        with socket.create_connection(address) as client:
            try:
                client.sendall(request)
                answer = client.recv(64)
            except OSError:
                answer = b""  # the server has hung up
            assert not answer or b" 431" in answer, answer
        with refused.get_lock():
            refused.value += 1


def with_headers(server):
    refused = multiprocessing.Value("i", 0)
    senders = [multiprocessing.Process(target=send_long_headers, args=(address_of(server), refused)) for _ in range(8)]
    for sender in senders:
        sender.start()
    print_health(server, f"{len(senders)} clients that send headers of 10 MB")
    assert all(sender.is_alive() for sender in senders)
    for sender in senders:
        sender.kill()
    print(f"{refused.value} of those")
    assert refused.value > 0


def main():
    tool = sys.argv[2]
    if tool in ("wrk", "slowhttptest") and shutil.which(tool) is None:
        skip(f"{tool} is not installed: `apt-get install {tool}` brings it")
    with Served(program(), "--max-requests", "1100") as server:
        {"wrk": with_wrk, "slowhttptest": with_slowhttptest, "stalled": with_stalled_readers,
         "half-open": with_half_open, "headers": with_headers}[tool](server)
        status, answer = server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}],
                                                             "max_tokens": 4})
        assert status == 200, json.dumps(answer)


if __name__ == "__main__":
    main()
