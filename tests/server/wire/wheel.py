"""The Python package: built, installed into a fresh environment away from the repository, and used on a server."""

import os
import shutil
import subprocess
import sys
import tempfile

from served import Served, program

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))

USE = """
import sys
import verbatim
result = verbatim.audit(sys.argv[1], only=["again", "stream-whole"], seed=1)
assert result.verdict == "equal", result.summary()
assert result["stream-whole"].compared > 0, result.summary()
try:
    verbatim.audit("http://127.0.0.1:9")
    raise SystemExit("no error without a server")
except verbatim.AuditError as problem:
    assert problem.code == 3 and "no answer" in str(problem), problem
"""

TESTS = """
import pytest

@pytest.mark.stream_equals_whole
def test_marked():
    pass

@pytest.mark.speculated_equals_plain
def test_not_tried():
    pass

def test_by_hand(verbatim_audit):
    assert verbatim_audit(only=["order"]).verdict == "equal"
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def main():
    with tempfile.TemporaryDirectory() as folder, Served(program()) as server:
        builder = os.path.join(ROOT, "tools", "wheel")
        wheel = run(sys.executable, builder, "--program", program(), "--out", folder).strip()
        environment = os.path.join(folder, "environment")
        run(sys.executable, "-m", "venv", environment)
        python = os.path.join(environment, "bin", "python")
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
        bare = {"PATH": "/usr/bin:/bin", "HOME": folder}
        run(python, "-c", USE, server.base, cwd=folder, env=bare)
        run(os.path.join(environment, "bin", "verbatim"), "audit", "--help", cwd=folder, env=bare)

        emulator = shutil.which("qemu-x86_64")
        if emulator:
            binary = run(python, "-c", "import verbatim; print(verbatim.program())", env=bare, cwd=folder).strip()
            libraries = os.path.join(os.path.dirname(os.path.dirname(binary)), "lib")
            run(emulator, "-cpu", "Nehalem", binary, "audit", server.base, "--only", "again,stream-whole", cwd=folder,
                env=dict(bare, LD_LIBRARY_PATH=libraries))
        else:
            print("not tested: a processor without AVX: apt-get install qemu-user")

        installed = subprocess.run([python, "-m", "pip", "install", "-q", "pytest"], capture_output=True, text=True)
        if installed.returncode != 0:
            print("not tested: the pytest plugin: pip has no index that it reaches")
            return
        with open(os.path.join(folder, "test_server.py"), "w", encoding="utf-8") as file:
            file.write(TESTS)
        report = os.path.join(folder, "report.xml")
        said = run(python, "-m", "pytest", "-q", "test_server.py", "--verbatim-url", server.base, "--junit-xml", report,
                   cwd=folder, env=bare)
        assert "2 passed, 1 skipped" in said, said
        with open(report, encoding="utf-8") as file:
            assert "give --against URL" in file.read()


if __name__ == "__main__":
    sys.exit(main())
