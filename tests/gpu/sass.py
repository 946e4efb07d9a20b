"""sass.py: what a compiled kernel's machine code does, read from its SASS.

Knows the text that cuobjdump prints, and where to find cuobjdump and nvdisasm: in the toolkit of nvcc, or as wheels
from PyPI in an environment of the build's own.
"""

import dataclasses
import pathlib
import re
import subprocess
import sys

WHEELS = ["nvidia-cuda-cuobjdump", "nvidia-cuda-nvdisasm"]
KERNEL = re.compile(r"on_device\d+([A-Za-z0-9]+?)E+vT_")
# A kernel for a format of weights (kernels/cuda/ops/block_formats.h) and a number of rows.
BLOCK_KERNEL = re.compile(r"on_device\d+([A-Za-z]+)INS\w*?_\d+Blocks([A-Za-z0-9]+?)E(?:Li(\d+)E)?E+vT_")
FUNCTION = re.compile(r"^\s*Function : (\S+)")
INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?PT?\d*\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
BACK = re.compile(r"0x([0-9a-f]+)\s*$")
COPIES = ("LDGSTS", "UBLKCP")  # asynchronous ones, by a thread and by bulk
WAIT = "ACQBULK"               # for the kernel before
ARITHMETIC = {"FFMA": 1, "IDP": 4, "HMMA": 64, "HGMMA": 64}  # and what each multiplies for a lane, at least
REGISTER = re.compile(r"(?<![A-Z])R(\d+)\b")


def kernel_name(text):
    """Of the mangled name in the text: Matvec1, BlockMatvec1<Q4K>; None: there is none."""
    block = BLOCK_KERNEL.search(text)
    if block:
        return f"{block.group(1)}{block.group(3) or ''}<{block.group(2)}>"
    match = KERNEL.search(text)
    return match.group(1) if match else None


class NoTool(Exception):
    """Why there is no cuobjdump here."""


def find_cuobjdump(nvcc, work_dir):
    """The toolkit's, or PyPI's in work_dir/sass-env."""
    own = pathlib.Path(nvcc).resolve().parent / "cuobjdump"
    if own.exists():
        return own
    folder = pathlib.Path(work_dir) / "sass-env"
    found = sorted(folder.glob("lib/python*/site-packages/nvidia/*/bin/cuobjdump"))
    if found and len(list(found[0].parent.glob("nvdisasm"))) == 1:
        return found[0]
    made = subprocess.run([sys.executable, "-m", "venv", str(folder)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise NoTool("the toolkit has no cuobjdump, and python3 makes no environments (Debian: python3-venv)")
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries",
           "1", *WHEELS]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=300)
    found = sorted(folder.glob("lib/python*/site-packages/nvidia/*/bin/cuobjdump"))
    if installed.returncode != 0 or not found:
        raise NoTool("the toolkit has no cuobjdump, and PyPI gives no " + " and ".join(WHEELS))
    return found[0]


def dumped(cuobjdump, what, built, architecture):
    """What cuobjdump prints of an object's code for an architecture; `what` is its flag."""
    command = [str(cuobjdump), what, "-arch", f"sm_{architecture}", str(built)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read_object(cuobjdump, built, architecture):
    """SASS and registers of what the object holds for an architecture: ({kernel: Code}, {kernel: registers})."""
    sass, resources = (dumped(cuobjdump, what, built, architecture) for what in ("-sass", "-res-usage"))
    return kernels_of(sass), registers_of(resources)


@dataclasses.dataclass
class Code:
    """Counts of one kernel's instructions, as they stand there (not as often as they run)."""
    instructions: int = 0
    counts: dict = dataclasses.field(default_factory=dict)  # by what comes before the first dot
    bytes_under_way: int = 0  # the most that a thread has asked of global memory before it needs any of it
    hidden: int = 0  # the most multiplications that stand between a load of global memory and its first use
    wide: int = 0    # loads and copies of 16 bytes or more from global memory, so far
    asked_early: int = 0  # of these, before the wait for the kernel before; without such a wait 0
    far_fences: int = 0   # of all memory, beyond the block
    text: list = dataclasses.field(default_factory=list)   # (address, what comes before the first dot)
    loops: list = dataclasses.field(default_factory=list)  # (first address, last address)

    def count(self, *names):
        return sum(self.counts.get(name, 0) for name in names)

    def inner_loop(self):
        """(FFMA and four for each IDP, HMMA and HGMMA, instructions) of the smallest loop that has most of what it
        multiplies; None: none."""
        loop = self.smallest_loop(0.5)
        return None if loop is None else counts_of(self.inside(loop))

    def brings(self):
        """Loads and copies of global memory inside inner_loop()."""
        loop = self.smallest_loop(0.5)
        return 0 if loop is None else sum(name in ("LDG", *COPIES) for name in self.inside(loop))

    def outer_loop(self):
        """The same of the smallest loop that has all of what loops multiply, without the loops inside it."""
        loop = self.smallest_loop(1.0)
        if loop is None:
            return None
        nested = [other for other in self.loops if loop[0] <= other[0] and other[1] <= loop[1] and other != loop]
        return counts_of([name for address, name in self.text if loop[0] <= address <= loop[1]
                          and not any(first <= address <= last for first, last in nested)])

    def inside(self, loop):
        return [name for address, name in self.text if loop[0] <= address <= loop[1]]

    def smallest_loop(self, share):
        """With at least that share of what the loop with most of them multiplies."""
        loops = [(sum(ARITHMETIC.get(name, 0) for name in self.inside(loop)), loop) for loop in self.loops]
        most = max((number for number, _ in loops), default=0)
        if most == 0:
            return None
        has_share = [loop for number, loop in loops if number > share * most or number == most]
        return min(has_share, key=lambda loop: len(self.inside(loop)))

    def loop_with(self, ffma):
        """Instructions of the shortest loop with so many FFMA; None: there is none."""
        loops = ([name for address, name in self.text if first <= address <= last] for first, last in self.loops)
        return min((len(names) for names in loops if names.count("FFMA") == ffma), default=None)


def counts_of(names):
    return names.count("FFMA") + 4 * names.count("IDP"), names.count("HMMA") + names.count("HGMMA"), len(names)


def width_of(opcode):
    """Bytes of a load."""
    parts = opcode.split(".")
    return 16 if "128" in parts else 8 if "64" in parts else 2 if "U16" in parts or "S16" in parts else \
        1 if "U8" in parts or "S8" in parts else 4


class LoadsUnderWay:
    """Follows a kernel's text from top to bottom: which loads are not used yet?"""

    def __init__(self):
        self.pending = {}  # register -> number of its load
        self.bytes = {}    # number of a load -> bytes
        self.began = {}    # number of a load -> multiplications before it
        self.next = 0
        self.multiplications = 0
        self.most = 0
        self.hidden = 0

    def take(self, opcode, operands):
        self.multiplications += opcode.split(".")[0] in ARITHMETIC
        registers = [int(number) for number in REGISTER.findall(operands)]
        is_load = opcode.startswith("LDG.") and registers
        # What is read: all but a load's own destination. A destination that is written anew ends a wait as well.
        for register in registers[1:] if is_load else registers:
            self.arrived(register)
        if not is_load:
            return
        first, width = registers[0], width_of(opcode)
        for register in range(first, first + max(1, width // 4)):
            self.arrived(register)
            self.pending[register] = self.next
        self.bytes[self.next] = width
        self.began[self.next] = self.multiplications
        self.next += 1
        self.most = max(self.most, sum(self.bytes.values()))

    def arrived(self, register):
        load = self.pending.pop(register, None)
        if load in self.bytes:
            del self.bytes[load]
            self.hidden = max(self.hidden, self.multiplications - self.began[load])


def kernels_of(text):
    """{kernel: Code} of cuobjdump -sass."""
    kernels, code, loads = {}, None, None
    for line in text.splitlines():
        function = FUNCTION.match(line)
        if function:
            code, loads = Code(), LoadsUnderWay()
            kernels[kernel_name(function.group(1)) or function.group(1)] = code
        match = INSTRUCTION.match(line) if code is not None else None
        if match:
            address, opcode, operands = match.groups()
            name = opcode.split(".")[0]
            if name == "NOP":
                continue
            back = BACK.search(operands) if name == "BRA" else None
            if back and int(back.group(1), 16) < int(address, 16):
                code.loops.append((int(back.group(1), 16), int(address, 16)))
            code.text.append((int(address, 16), name))
            code.instructions += 1
            code.counts[name] = code.counts.get(name, 0) + 1
            code.wide += name == "UBLKCP" or (name in ("LDG", "LDGSTS") and width_of(opcode) == 16)
            code.far_fences += name == "MEMBAR" and not opcode.endswith(".CTA")
            if name == WAIT and code.counts[WAIT] == 1:
                code.asked_early = code.wide
            loads.take(opcode, operands)
            code.bytes_under_way, code.hidden = loads.most, loads.hidden
    return kernels


def registers_of(text):
    """{kernel: registers} of cuobjdump -res-usage."""
    registers, kernel = {}, None
    for line in text.splitlines():
        match = re.match(r"\s*Function (\S+):", line)
        if match:
            kernel = kernel_name(match.group(1)) or match.group(1)
        match = re.search(r"REG:(\d+)", line)
        if match and kernel:
            registers[kernel] = int(match.group(1))
    return registers


def expected_of(kernel, expectations):
    """The line of a kernel, or that of its formats together, BlockMatvec1<*>; None: there is none."""
    return expectations.get(kernel, expectations.get(re.sub("<.*>", "<*>", kernel)))


def read_expectations(path):
    """{kernel: (threads, bytes under way, hidden, asked early, multiplications of the loop, its instructions, what it
    brings)}"""
    kernels = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            kernel, threads, under_way, hidden, early, multiplications, _, instructions, brings = line.split()
            kernels[kernel] = tuple(int(x) for x in (threads, under_way, hidden, early, multiplications, instructions,
                                                     brings))
    return kernels
