// tests/house/include_rule.h: who may include whom.
//
//             tools/  tests/            tools/ sees all but tests/, tests/ sees all; nothing below includes them
//      kernels/   server/   simulator/  kernels/ and server/ see reference/, simulator/ sees traces/
//          reference/        traces/    see files/
//                    files/             sees engine/, as all of these do
//                   engine/             sees nothing of ours: integers only; no floating point, threads or wall clock
//
// In kernels/, cpu/ and cuda/ see what is directly below kernels/ and not each other. What runs on a GPU does not see
// the emulator: kernels/cuda/simt/emul* is known to kernels/cuda/simt/ and kernels/cuda/emulated_device.* alone.
//
// The one place of engine/ with floating point is engine/request/sampling.h: numbers carried through to the executor.
#pragma once

#include "tests/house/source_text.h"

namespace verbatim::house {

// What this file includes and must not: another folder, a path that does not start at the root, a header that engine/
// must not use.
Violations forbidden_includes(const SourceFile& file);

// Floating point in engine/, as a type or as a literal; libm calls where the numerics forbid them (reference/ops/ and
// kernels/, whose functions come from one header of their own).
Violations forbidden_arithmetic(const SourceFile& file);

// Files opened for writing by other means than files/output_file.h.
Violations forbidden_writing(const SourceFile& file);

}  // namespace verbatim::house
