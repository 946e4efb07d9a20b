"""make_environment.py FOLDER: the tests' own Python environment with the stock openai client, made once."""

import pathlib
import subprocess
import sys

from served import skip

PACKAGE = "openai==3.54.0"


def main():
    folder = pathlib.Path(sys.argv[1])
    python = folder / "bin" / "python"
    have = [str(python), "-c", "import importlib.metadata as m; print('openai==' + m.version('openai'))"]
    if python.exists() and subprocess.run(have, capture_output=True, text=True, check=False).stdout.strip() == PACKAGE:
        return
    made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        skip("python3 makes no environments (Debian: python3-venv): " + made.stdout.strip().splitlines()[0])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", PACKAGE]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=300)
    if installed.returncode != 0:
        skip("PyPI gives no " + PACKAGE + ": " + installed.stderr.strip().splitlines()[-1])


if __name__ == "__main__":
    main()
