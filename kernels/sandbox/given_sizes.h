// kernels/sandbox/given_sizes.h: owns what cases have that an operation does not describe: shapes and classes of values
// of the command line, and integers of the source.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

struct GivenSizes {
    std::vector<Sizes> shapes;       // tried in every class of values, whatever they cost
    std::vector<int64_t> constants;  // ascending; a kernel may change its way at them
    bool with_real = true;           // with the sizes of real batches and contexts (SizeSpec::real)
    std::vector<ValueClass> values;  // alone; empty: all
};

// "rows=256,width=4096"; sizes without a value are usual. Errors: an unknown size, a value that the operation cannot
// have, a call that is too large to try.
Result<Sizes> read_shape(const Operation& operation, std::string_view text);

// "normal,integers". Errors: an unknown class (it lists the known ones), or none.
Result<std::vector<ValueClass>> read_values(std::string_view text);

// The integer literals of C++ or CUDA code from 2 to 65536, and what literals and named constants alone compute
// (`3 * 32`, `1 << 10`, `kTile * kTiles`), without those of comments, texts and includes; ascending. At most 32: those
// that something is compared with (`m > 96`, `n % 96`), then the least ones.
std::vector<int64_t> constants_of(std::string_view source);

}  // namespace verbatim::sandbox
