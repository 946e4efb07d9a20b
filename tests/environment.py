"""environment.py FOLDER [NAME...]: the tests' own Python environment. Installs what tests/requirements.txt lists, or
those that are named of it and of tests/requirements_on_request.txt, into FOLDER, once.

tools/check calls it for all before the tests; a test calls it for what it needs itself. Exit code 77: something cannot
be had here: `skipped: ` lines say what, why, and what brings it.
"""

import fcntl
import pathlib
import re
import subprocess
import sys

SKIPPED = 77


def requirements(file):
    """{name: the line of it}"""
    lines = [line.strip() for line in pathlib.Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()]
    return {re.match(r"[\w.-]+", line).group(): line for line in lines if line and not line.startswith("#")}


def last_line(text, otherwise):
    lines = text.strip().splitlines()
    return lines[-1] if lines else otherwise


def install(folder, name, requirement):
    """Why it cannot be had; None: it is there."""
    python, ready = folder / "bin" / "python", folder / f"ready-{name}"
    if python.exists() and ready.exists() and ready.read_text(encoding="utf-8") == requirement:
        return None
    if not python.exists():
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], capture_output=True, text=True,
                              check=False)
        if made.returncode != 0:
            return "python3 makes no environments (Debian: python3-venv): " + last_line(made.stderr + made.stdout, "?")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
           "--timeout", "20", requirement]
    try:
        installed = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=400)
    except subprocess.TimeoutExpired:
        return f"pip has not installed {requirement} in 400 seconds"
    if installed.returncode != 0:
        return f"pip does not get {requirement}: " + last_line(installed.stderr, f"it ends with {installed.returncode}")
    ready.write_text(requirement, encoding="utf-8")
    return None


def main():
    folder, usual = pathlib.Path(sys.argv[1]), requirements("requirements.txt")
    known = usual | requirements("requirements_on_request.txt")
    folder.parent.mkdir(parents=True, exist_ok=True)
    code = 0
    with open(folder.with_name(folder.name + ".lock"), "w", encoding="utf-8") as lock:  # tests run side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in sys.argv[2:] or usual:
            why = install(folder, name, known[name])
            if why is None:
                continue
            print(f"skipped: {why}: where pip reaches a package index, "
                  f"`python3 -B tests/environment.py {folder} {name}` brings it")
            code = SKIPPED
    return code


if __name__ == "__main__":
    sys.exit(main())
