// kernels/sandbox/bound_call.h: owns an operation's struct for another process: its bytes, and where its pointers lie.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

struct BoundPointer {
    int64_t at = 0;      // bytes from the struct's beginning
    int64_t tensor = 0;  // whose first element it is the address of
};
struct BoundCall {
    AbiArgs abi;  // with addresses of nothing
    std::vector<BoundPointer> pointers;
};
// placed: data of which no more is read than whether it is null.
BoundCall bound_call(const Operation& operation, Placed placed);

}  // namespace verbatim::sandbox
