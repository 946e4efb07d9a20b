"""`verbatim audit` of servers with planted faults (tests/planted/faults/served/): each relation names its own corrupt,
and the same program without a fault has none.

    planted_audit.py PROGRAM PLANTED_PROGRAM [RELATION | restart | honest]...     (everything)
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import fault_proxy
from served import Served, program

FAULTS = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "planted", "faults", "served")
# No fault can be served: this program's server does not speculate, so the proxy says that it does.
OF_PROXY = ["speculation"]


def served_faults():
    return sorted(name.removesuffix(".fault") for name in os.listdir(FAULTS)
                  if name.endswith(".fault"))


def planted(fault):
    """The planted program's server with a fault; without one: None."""
    env = {key: value for key, value in os.environ.items() if key != "VERBATIM_BUG"}
    return Served(sys.argv[2], env=dict(env, VERBATIM_BUG=fault) if fault else env, errors=subprocess.DEVNULL)


def audit(folder, base, *flags):
    """Verdicts by relation, exit code and the whole result."""
    done = subprocess.run([program(), "audit", base, "--format", "json", "--bundles", folder, *flags],
                          capture_output=True, text=True, timeout=500)
    assert done.returncode in (0, 1, 5), f"{flags} returned {done.returncode}: {done.stdout}{done.stderr}"
    result = json.loads(done.stdout)
    return {one["relation"]: one["verdict"] for one in result["relations"]}, done.returncode, result


def check_named(folder, base, relation, *flags):
    found, code, result = audit(folder, base, "--only", relation, *flags)
    assert found == {relation: "corrupt"} and code == 1, (relation, result)
    assert os.path.exists(os.path.join(folder, relation + ".json")), relation


def check_relation(folder, relation):
    if relation in OF_PROXY:
        with planted(None) as server:
            for fault, verdict in (("one-draft-too-many", "corrupt"), ("drafts", "equal")):
                proxy = fault_proxy.start(server.base, fault)
                found, _, result = audit(folder, fault_proxy.base_of(proxy), "--only", relation,
                                         "--against", server.base)
                proxy.shutdown()
                assert found == {relation: verdict}, result
        return
    with planted(relation) as server:
        if relation != "cache":
            return check_named(folder, server.base, relation)
        with planted(None) as other:
            return check_named(folder, server.base, relation, "--against", other.base)


class Restartable:
    """A server at a fixed port. `again` is a shell command that ends it and starts it again, without a wait."""

    def __init__(self, folder, fault):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        self.base, self.pid = f"http://127.0.0.1:{port}", os.path.join(folder, "pid")
        serve = f"{sys.argv[2]} serve --port {port} --threads 1 --cache 128MiB --ledger none"
        self.begin = f"VERBATIM_BUG={fault or ''} {serve} >/dev/null 2>&1 & echo $! > {self.pid}"
        self.end = f"kill $(cat {self.pid})"
        self.again = f"{self.end}; while kill -0 $(cat {self.pid}) 2>/dev/null; do sleep 0.05; done; {self.begin}"

    def __enter__(self):
        subprocess.run(self.begin, shell=True, check=True)
        while True:
            try:
                urllib.request.urlopen(self.base + "/v1/models", timeout=5).close()
                return self
            except OSError:
                time.sleep(0.05)

    def __exit__(self, *_):
        subprocess.run(self.end, shell=True, check=True)


def check_restart(folder):
    """The relation `cache` of one server, before and after a restart."""
    with Restartable(folder, "cache") as server:
        check_named(folder, server.base, "cache", "--restart", server.again)
    with Restartable(folder, None) as server:
        found, code, result = audit(folder, server.base, "--only", "cache", "--restart", server.again)
        assert found == {"cache": "equal"} and code == 0, result
        found, code, result = audit(folder, server.base, "--only", "cache", "--restart", "true")
        assert found == {"cache": "not tried"} and code == 5, result
        assert "nothing shows that the server was restarted" in result["relations"][0]["why"], result
        found, code, result = audit(folder, server.base, "--only", "cache", "--restart", "exit 3")
        assert "exit code 3" in result["relations"][0]["why"] and code == 5, result
        found, code, result = audit(folder, server.base, "--only", "cache", "--restart", server.end,
                                    "--restart-timeout", "1")
        assert "does not answer 1 s after the restart command" in result["relations"][0]["why"], result
        subprocess.run(server.begin, shell=True, check=True)


def check_honest(folder):
    """No fault: everything is equal."""
    with planted(None) as server, planted(None) as other:
        found, code, result = audit(folder, server.base, "--against", other.base)
        assert found.pop("speculation") == "not tried", result
        assert set(found.values()) == {"equal"} and len(found) == 12 and code == 0, result


def main():
    wanted = sys.argv[3:] or ["honest", "restart", *OF_PROXY, *served_faults()]
    for relation in wanted:
        with tempfile.TemporaryDirectory() as folder:
            if relation == "honest":
                check_honest(folder)
            elif relation == "restart":
                check_restart(folder)
            else:
                check_relation(folder, relation)
        print(f"{relation}: as it should be", flush=True)


if __name__ == "__main__":
    sys.exit(main())
