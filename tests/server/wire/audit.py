"""`verbatim audit` of this build's server over HTTP: every relation equal. Behind a proxy that plants a fault: corrupt,
and equal again without it. Behind one that only adds noise: no corruption."""

import itertools
import json
import os
import subprocess
import sys
import tempfile

import fault_proxy
from served import Served, program

RELATIONS = ["again", "cold-warm", "alone-batched", "stream-whole", "chunked", "stop-resume", "aborted", "n", "order",
             "logprobs", "template"]
FAULTS = {"token-once-seen": "cold-warm", "stale-prefix": "cold-warm", "neighbours-token": "alone-batched",
          "cut-character": "stream-whole", "lost-last-chunk": "stream-whole"}


SEEDS = itertools.count(7)  # an equal seed would send prompts that the server has seen


def audit(folder, base, *flags, expected):
    seed = str(next(SEEDS))
    command = [program(), "audit", base, "--format", "json", "--seed", seed, "--bundles", folder, *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500,
                          env=dict(os.environ, OPENAI_API_KEY="sk-not-in-any-file"))
    assert done.returncode in expected, f"{command} returned {done.returncode}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def verdicts(result):
    return {one["relation"]: one["verdict"] for one in result["relations"]}


def check_fault(folder, server, fault):
    relation = FAULTS[fault]
    proxy = fault_proxy.start(server.base, fault)
    found = audit(folder, fault_proxy.base_of(proxy), "--only", relation, "--skip", "order", expected=[1])
    assert verdicts(found)[relation] == "corrupt", (fault, found)
    bundle = os.path.join(folder, relation + ".json")
    again = audit(folder, fault_proxy.base_of(proxy), "--bundle", bundle, expected=[1])
    assert verdicts(again)[relation] == "corrupt", (fault, again)
    healed = audit(folder, server.base, "--bundle", bundle, expected=[0, 5])
    assert verdicts(healed)[relation] in ("equal", "not tried"), (fault, healed)
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            assert "sk-not-in-any-file" not in file.read(), name
    proxy.shutdown()


def main():
    """PROGRAM [FAULT]: everything, or one fault alone."""
    with tempfile.TemporaryDirectory() as folder, Served(program()) as server:
        if len(sys.argv) > 2:
            check_fault(folder, server, sys.argv[2])
            return
        whole = audit(folder, server.base, "--only", ",".join(RELATIONS), expected=[0])
        assert whole["exact"], whole["server"]
        for one in whole["relations"]:
            assert one["verdict"] == "equal", one
            assert one["compared"] > 0, one
        engaged = next(one for one in whole["relations"] if one["relation"] == "cold-warm")
        assert engaged["counts"]["equal"] > 30, engaged["counts"]
        assert not os.listdir(folder), os.listdir(folder)

        for fault in FAULTS:
            check_fault(folder, server, fault)

        proxy = fault_proxy.start(server.base, "noise")
        noisy = audit(folder, fault_proxy.base_of(proxy), "--only", "again,cold-warm,stream-whole,order",
                      "--budget", "200,200000", expected=[0])
        assert not noisy["exact"]
        assert "drift" in verdicts(noisy).values(), verdicts(noisy)
        proxy.shutdown()


if __name__ == "__main__":
    sys.exit(main())
