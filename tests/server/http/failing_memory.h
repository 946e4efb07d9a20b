// tests/server/http/failing_memory.h: owns this program's operator new, which fails when a test says so.
#pragma once

#include <cstddef>

namespace verbatim::tests {

// While it lives, no other thread but its own gets so many bytes in one piece.
class NoLargeMemory {
public:
    explicit NoLargeMemory(size_t least_bytes);
    NoLargeMemory(const NoLargeMemory&) = delete;
    NoLargeMemory& operator=(const NoLargeMemory&) = delete;
    ~NoLargeMemory();
};

// The calling thread gets no memory so many times, from its next request on.
void fail_memory_of_this_thread(int count);

}  // namespace verbatim::tests
