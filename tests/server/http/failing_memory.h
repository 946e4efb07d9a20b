// tests/server/http/failing_memory.h: owns this program's operator new, which fails on a test's request.
#pragma once

#include <cstddef>

namespace verbatim::tests {

// During its lifetime, no thread but its creator can allocate this many bytes at once.
class NoLargeMemory {
public:
    explicit NoLargeMemory(size_t least_bytes);
    NoLargeMemory(const NoLargeMemory&) = delete;
    NoLargeMemory& operator=(const NoLargeMemory&) = delete;
    ~NoLargeMemory();
};

// The calling thread's next `count` allocations fail.
void fail_memory_of_this_thread(int count);

}  // namespace verbatim::tests
