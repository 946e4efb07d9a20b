"""Kernels in Python against the sandbox's contracts: numpy or PyTorch functions, Triton kernels in its interpreter.

    import verbatim.kernel

    def test_my_norm():
        verbatim.kernel.check(my_norm, op="rms_norm")            # AssertionError, with the smallest case
        verbatim.kernel.invariance(my_scan, op="scan", holds=["batch", "chunk"])

A function takes operands, scalars and sizes by the names of `verbatim kernel list --contract OP`: those that it has
parameters for. It returns its outputs (one array, or several in the contract's order, or a dict), or returns None and
has written the arrays of its output parameters. Arrays are views of the sandbox's memory: rows as [rows, width], also
with gaps between rows; a weight as it is in memory, flat. An operand that a call does not have is None.

dtypes that numpy does not have (bf16, f8_e4m3, f8_e5m2) are their bits, uint16 and uint8: `to_float` and `from_float`
convert them. With arrays="torch" they are torch's.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import mmap
import os
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

import verbatim

__all__ = ["Contract", "KernelFailure", "KernelResult", "Operand", "Size", "check", "from_float", "invariance",
           "to_float"]

_PASSED, _DIFFERENT, _NOT_ALL = 0, 1, 5  # exit codes of a check that ran
_NUMPY = {"f32": "float32", "f16": "float16", "bf16": "uint16", "f8_e4m3": "uint8", "f8_e5m2": "uint8", "i8": "int8",
          "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64"}
_TORCH = {"bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2"}


class KernelFailure(AssertionError):
    """The kernel does not keep its contract. `result` is the whole report."""

    def __init__(self, message: str, result: "KernelResult") -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True)
class KernelResult:
    """A report. `raw` is the JSON of `verbatim kernel`."""

    verdict: str
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def invariant(self) -> Mapping[str, bool] | None:
        """Of `invariance`: whether each property holds."""
        return self.raw["invariant"]

    def summary(self) -> str:
        """The verdict, and the smallest failing case."""
        text = f"{self.raw['op']} {self.raw['kernel']}: {self.verdict}, {self.raw['cases']} cases"
        failure = self.raw["first_failure"]
        if failure:
            sizes = ", ".join(f"{name} {size}" for name, size in failure["sizes"].items())
            text += f"\n  {failure['detail']}\n  {sizes}; values {failure['values']}, seed {failure['seed']}"
        return text


# --- contracts


@dataclass(frozen=True)
class Size:
    """A size: `usual` while another one is at its edges."""

    name: str
    least: int = 1
    usual: int = 3
    edges: Sequence[int] = ()
    is_choice: bool = False  #: only the edges are valid
    real: Sequence[int] = ()  #: of real batches


@dataclass(frozen=True)
class Operand:
    """A tensor: `width` elements, an expression of sizes, per row, sequence or call."""

    name: str
    width: str
    role: str = "in"  #: "in", "out" or "in_out"
    dtype: str = "f32"  #: f32, bf16, f16, f8_e4m3, f8_e5m2, i8, i32, i64
    unit: str = "row"  #: "row", "sequence" or "call"
    below: str = ""  #: of an integer: values are 0 ... below - 1
    is_plain: bool = False  #: values about 1, as weights have
    lies_in: str = ""  #: of an output: the input whose memory it may share
    continues: str = ""  #: of an input per sequence: the output that the next call continues from


@dataclass(frozen=True)
class Contract:
    """An operation of one's own: docs/kernel-sandbox.md. `reference` is a function as `check` takes them."""

    name: str
    sizes: Sequence[Size]
    operands: Sequence[Operand]
    reference: Callable[..., Any]
    formula: str = ""
    batch: str = "rows"  #: or "sequences"
    parameters: Mapping[str, Sequence[float]] = field(default_factory=dict)
    admits: str = ""
    flops: str = ""
    shapes: str = ""
    tolerance: tuple[str, float] = ("bits", 0)  #: ("ulps", 4) or ("ulps_of_unit", 256), of the fast profile
    has_no_nan: bool = False

    def description(self) -> dict[str, Any]:
        """What `verbatim` reads of it."""
        return {"name": self.name, "formula": self.formula, "batch": self.batch, "admits": self.admits,
                "flops": self.flops, "shapes": self.shapes, "has_no_nan": self.has_no_nan,
                "sizes": [asdict(size) for size in self.sizes],
                "operands": [asdict(operand) for operand in self.operands],
                "parameters": {name: list(values) for name, values in self.parameters.items()},
                "tolerance_kind": self.tolerance[0], "tolerance": self.tolerance[1]}


# --- numbers that numpy does not have


def _small_formats() -> Mapping[str, tuple[int, int]]:
    return {"f8_e4m3": (4, 3), "f8_e5m2": (5, 2)}


def to_float(array: Any, dtype: str) -> Any:
    """The float32 values of bf16, f8_e4m3 or f8_e5m2 bits; other arrays as float32."""
    import numpy as np
    if dtype == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    if dtype not in _small_formats():
        return array.astype(np.float32)
    return _values_of(dtype)[array]


def _values_of(dtype: str) -> Any:
    import numpy as np
    exponent_bits, mantissa_bits = _small_formats()[dtype]
    bits = np.arange(256)
    mantissa, exponent = bits & ((1 << mantissa_bits) - 1), (bits >> mantissa_bits) & ((1 << exponent_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    fraction = np.where(exponent == 0, mantissa, mantissa + (1 << mantissa_bits))
    values = np.ldexp(fraction.astype(np.float32), np.maximum(exponent, 1) - bias - mantissa_bits)
    if dtype == "f8_e4m3":
        values = np.where((bits & 0x7F) == 0x7F, np.float32(np.nan), values)
    else:
        ends = np.where(mantissa == 0, np.float32(np.inf), np.float32(np.nan))
        values = np.where(exponent == (1 << exponent_bits) - 1, ends, values)
    return np.where(bits >= 128, -values, values).astype(np.float32)


def from_float(array: Any, dtype: str) -> Any:
    """Rounds float32 values to nearest even: the bits of bf16, f8_e4m3 or f8_e5m2, or an array of another dtype."""
    import numpy as np
    array = np.asarray(array, np.float32)
    if dtype == "bf16":
        bits = array.view(np.uint32)
        rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(array), np.uint16(0x7FC0), rounded)
    if dtype not in _small_formats():
        return array.astype(_NUMPY[dtype])
    # The nearest of the 127 magnitudes; of two, the one with even bits.
    values = _values_of(dtype)[:128]
    finite = values[np.isfinite(values)].astype(np.float64)
    middles = (finite[:-1] + finite[1:]) / 2
    magnitude = np.abs(array.astype(np.float64))
    rounded = np.searchsorted(middles, magnitude, side="left")
    is_tie = (rounded < len(middles)) & (magnitude == middles[np.minimum(rounded, len(middles) - 1)])
    rounded = rounded + (is_tie & (rounded % 2 == 1))
    middle = finite[-1] + (finite[-1] - finite[-2]) / 2
    beyond = (magnitude > middle) | ((magnitude == middle) & (len(finite) % 2 == 0))
    bits = np.where(np.isnan(array), 0x7F, np.where(beyond, 0x7F if dtype == "f8_e4m3" else 0x7C, rounded))
    return (bits | np.where(np.signbit(array), 0x80, 0)).astype(np.uint8)


# --- one call


class BadAnswer(Exception):
    """What a function returns is not its outputs."""


def _view(memory: mmap.mmap, tensor: Mapping[str, Any]) -> Any:
    import numpy as np
    if tensor["offset"] is None:
        return None
    dtype = np.dtype(_NUMPY[tensor["dtype"]])
    shape, stride = (tensor["units"], tensor["width"]), tensor["stride"] * dtype.itemsize
    array = np.ndarray(shape, dtype, memory, tensor["offset"], (stride, dtype.itemsize))
    return array[0] if tensor["per_call"] else array


def _as_torch(array: Any, dtype: str) -> Any:
    """Shares the memory. The signed integers of its size where this PyTorch has no such dtype (uint64 before 2.3)."""
    import torch
    if array is None:
        return None
    view = torch.from_numpy(array.view(array.dtype.str.replace("u", "i")) if array.dtype.itemsize > 1 else array)
    own = getattr(torch, _TORCH.get(dtype, array.dtype.name), None)
    return view if own is None else view.view(own)


def _as_numpy(value: Any, dtype: str) -> Any:
    import numpy as np
    if not hasattr(value, "detach"):
        return np.asarray(value)
    import torch
    value = value.detach().cpu()
    if dtype in _TORCH and value.dtype == getattr(torch, _TORCH[dtype], None):
        value = value.view(torch.int16 if dtype == "bf16" else torch.uint8)
    array, wanted = value.numpy(), np.dtype(_NUMPY[dtype])
    return array.view(wanted) if array.dtype.str == wanted.str.replace("u", "i") else array


def _chosen(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return dict(offered)
    for name, one in parameters.items():
        if name not in offered and one.default is inspect.Parameter.empty and one.kind is not one.VAR_POSITIONAL:
            raise BadAnswer(f"it has a parameter {name!r}: there are {', '.join(offered)}")
    return {name: offered[name] for name in parameters if name in offered}


def _store(returned: Any, outputs: Sequence[tuple[str, str, Any]], given: Mapping[str, Any]) -> None:
    import numpy as np
    names = [name for name, _, _ in outputs]
    if returned is None:
        missing = [name for name in names if name not in given]
        if missing:
            raise BadAnswer(f"it returns None, and has no parameter for its output {missing[0]!r}")
        return
    if not isinstance(returned, Mapping):
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if len(values) != len(names):
            raise BadAnswer(f"it returns {len(values)} values, wanted {len(names)}: {', '.join(names)}")
        returned = dict(zip(names, values))
    for name, dtype, view in outputs:
        if name not in returned:
            raise BadAnswer(f"it returns no {name!r}")
        value = _as_numpy(returned[name], dtype)
        if value.dtype != view.dtype:
            bits = f" ({dtype} as bits)" if _NUMPY[dtype] != dtype and dtype in ("bf16", "f8_e4m3", "f8_e5m2") else ""
            raise BadAnswer(f"{name} has dtype {value.dtype}, wanted {view.dtype}{bits}")
        if value.shape != view.shape:
            raise BadAnswer(f"{name} has shape {value.shape}, wanted {view.shape}")
        np.copyto(view, value)


def _call(function: Callable[..., Any], memory: mmap.mmap, call: Mapping[str, Any], arrays: str) -> None:
    import numpy as np
    # An operand may have the name of the size that says whether there is one: `bias`.
    offered: dict[str, Any] = {**call["sizes"]}
    outputs = []
    for tensor in call["tensors"]:
        view = _view(memory, tensor)
        offered[tensor["name"]] = _as_torch(view, tensor["dtype"]) if arrays == "torch" else view
        if tensor["role"] != "in" and view is not None:
            outputs.append((tensor["name"], tensor["dtype"], view))
    scalar = float if arrays == "torch" else np.float32  # Triton takes Python's numbers
    offered.update({name: scalar(np.float32(value)) for name, value in call["scalars"].items()})
    given = _chosen(function, offered)
    _store(function(**given), outputs, given)


def _words(error: BaseException) -> str:
    """The error, and the innermost line that is not of this file."""
    if isinstance(error, BadAnswer):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    frames = [one for one in traceback.extract_tb(error.__traceback__) if one.filename != __file__]
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}: {text}" if frames else text


def _serve(connection: socket.socket, function: Callable[..., Any] | Exception, arrays: str) -> None:
    """Answers calls until the other end closes. The first message brings the shared memory."""
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    if not descriptors:
        return
    memory = mmap.mmap(descriptors[0], 0)
    with connection.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            answer = {"error": ""}
            try:
                if isinstance(function, Exception):
                    raise function
                _call(function, memory, json.loads(line), arrays)
            except Exception as error:  # of the user's function: any
                answer["error"] = _words(error) or type(error).__name__
            connection.sendall((json.dumps(answer) + "\n").encode())


def _load(target: str) -> Callable[..., Any]:
    """module:function or path.py:name.of.function"""
    module_name, _, path = target.rpartition(":")
    sys.path.insert(0, os.getcwd())
    if module_name.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(module_name)))
        specification = importlib.util.spec_from_file_location(Path(module_name).stem, module_name)
        if specification is None or specification.loader is None:
            raise ImportError(f"{module_name} cannot be loaded")
        found: Any = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(found)
    else:
        found = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    return found


# --- in tests


def _accepting(listener: socket.socket, program: subprocess.Popen, function: Callable[..., Any], arrays: str) -> None:
    """Forks a process for each connection: a function that hangs or crashes ends with it."""
    server = 0
    try:
        while program.poll() is None:
            ready, _, _ = select.select([listener], [], [], 0.02)
            if not ready:
                continue
            connection, _ = listener.accept()
            _end(server)
            server = os.fork()
            if server == 0:
                status = 1
                try:
                    if "torch" in sys.modules:  # its threads do not survive a fork: a parallel loop would wait for ever
                        sys.modules["torch"].set_num_threads(1)
                    _serve(connection, function, arrays)
                    status = 0
                finally:
                    os._exit(status)
            connection.close()
    finally:
        _end(server)


def _end(process: int) -> None:
    if process > 0:
        try:
            os.kill(process, 9)
        except ProcessLookupError:
            pass
        os.waitpid(process, 0)


def _run(verb: str, function: Callable[..., Any], op: str | None, contract: str | os.PathLike | None, arrays: str,
         options: Mapping[str, Any]) -> KernelResult:
    if (op is None) == (contract is None):
        raise TypeError("op or contract: one of them")
    with tempfile.TemporaryDirectory(prefix="verbatim-") as folder:
        path = os.path.join(folder, "kernel")
        arguments = ["kernel", verb, *([op] if op else []), "--python", f"socket:{path}", "--format", "json"]
        if contract is not None:
            arguments += ["--contract", os.fspath(contract)]
        for name, value in options.items():
            if value is not None:
                arguments += ["--" + name.replace("_", "-"), str(value)]
        with socket.socket(socket.AF_UNIX) as listener, tempfile.TemporaryFile("w+") as out, \
                tempfile.TemporaryFile("w+") as err:
            listener.bind(path)
            listener.listen()
            environment = {**verbatim._environment(), "VERBATIM_PYTHON": sys.executable}
            with subprocess.Popen([str(verbatim.program()), *arguments], stdout=out, stderr=err,
                                  env=environment) as program:
                _accepting(listener, program, function, arrays)
            out.seek(0)
            err.seek(0)
            if program.returncode not in (_PASSED, _DIFFERENT, _NOT_ALL):
                raise RuntimeError(err.read().strip() or f"verbatim ended with {program.returncode}")
            raw = json.load(out)
    result = KernelResult(raw["verdict"], raw)
    if verb == "check" and program.returncode != _PASSED:
        raise KernelFailure(result.summary(), result)
    return result


def check(function: Callable[..., Any], op: str | None = None, *, contract: str | os.PathLike | None = None,
          arrays: str = "numpy", profile: str = "fast", effort: str = "short", values: str | None = None,
          shape: str | None = None, seed: int | None = None, time_limit: int | None = None) -> KernelResult:
    """Holds a function against an operation's contract, or against that of a file. Raises KernelFailure.

    `profile`: "exact" for the definition's bits, "fast" for its bound. `values`: classes of values, as
    "normal,integers". RuntimeError: the check could not run (an unknown operation, a contract that is wrong).
    """
    return _run("check", function, op, contract, arrays,
                {"profile": profile, "effort": effort, "values": values, "shape": shape, "seed": seed,
                 "time_limit": time_limit})


def invariance(function: Callable[..., Any], op: str | None = None, *, contract: str | os.PathLike | None = None,
               holds: Sequence[str] = ("run", "batch", "position", "chunk", "threads"), arrays: str = "numpy",
               profile: str = "fast", effort: str = "short", seed: int | None = None,
               time_limit: int | None = None) -> KernelResult:
    """Whether a function's bits depend on the run, the other rows, the position, chunks, threads and alignment.

    Raises KernelFailure where one of `holds` does not hold. RuntimeError: as `check`.
    """
    result = _run("invariance", function, op, contract, arrays,
                  {"profile": profile, "effort": effort, "seed": seed, "time_limit": time_limit})
    broken = [name for name in holds if not (result.invariant or {}).get(name, False)]
    if broken:
        raise KernelFailure(f"{', '.join(broken)}: no\n{result.summary()}", result)
    return result


def _main(arguments: Sequence[str]) -> int:
    """What `verbatim` starts: describe FILE, or serve DESCRIPTOR TARGET ARRAYS."""
    if arguments[0] == "describe":
        contract = _load(f"{arguments[1]}:contract")
        print(json.dumps(contract.description()))
        return 0
    function: Any
    try:
        function = _load(arguments[2])
        if arguments[3] == "torch":
            importlib.import_module("torch")
    except Exception as error:  # of the user's module: any
        function = error
    _serve(socket.socket(fileno=int(arguments[1])), function, arguments[3])
    return 0


if __name__ == "__main__":
    # The module that users import, so that a contract's class is one.
    sys.exit(importlib.import_module("verbatim.kernel")._main(sys.argv[1:]))
