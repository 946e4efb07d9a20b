// tests/house/include_rule.h: which folder may include which.
//
//             tools/  tests/            tools/ sees all but tests/, tests/ sees all; nothing below includes them
//      kernels/   server/   simulator/  kernels/ and server/ see reference/, simulator/ sees traces/
//          reference/        traces/    see files/
//                    files/             sees engine/, as all of these do
//                   engine/             sees no other folder: integers only; no floating point, threads or wall clock
//
// In reference/, model/ does not see loader/, and ops/ and numerics/ see neither loader/ nor records/. In kernels/,
// cpu/ and cuda/ see the files directly below kernels/ and not each other, simt/ neither. Code that runs on a GPU does
// not see the emulator: only kernels/simt/ and kernels/cuda/emulated_device.* include kernels/simt/emul*.
//
// The one file of engine/ with floating point is engine/request/sampling.h: numbers passed through to the executor.
#pragma once

#include "tests/house/source_text.h"

namespace verbatim::house {

// Forbidden includes: another folder, a path that does not start at the root, a header that engine/ must not use.
Violations forbidden_includes(const SourceFile& file);

// Floating point in engine/, as a type or as a literal; libm calls where the numerics forbid them (reference/ops/ and
// kernels/, which use the functions of one header).
Violations forbidden_arithmetic(const SourceFile& file);

// Files opened for writing by any means except files/output_file.h.
Violations forbidden_writing(const SourceFile& file);

}  // namespace verbatim::house
