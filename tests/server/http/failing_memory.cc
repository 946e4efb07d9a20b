#include "tests/server/http/failing_memory.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <new>

namespace verbatim::tests {
namespace {

constexpr size_t kNothingFails = std::numeric_limits<size_t>::max();
std::atomic<size_t> large_bytes = kNothingFails;
thread_local bool has_large_memory = false;
thread_local int num_failures = 0;

bool fails(size_t size) {
    if (num_failures > 0) return num_failures-- > 0;
    return !has_large_memory && size >= large_bytes.load(std::memory_order_relaxed);
}

}  // namespace

NoLargeMemory::NoLargeMemory(size_t least_bytes) {
    has_large_memory = true;
    large_bytes = least_bytes;
}

NoLargeMemory::~NoLargeMemory() { large_bytes = kNothingFails; }

void fail_memory_of_this_thread(int count) { num_failures = count; }

}  // namespace verbatim::tests

// Not inlined: the compiler would see free() with what another function gave. All that gives a single object: a
// sanitizer's own would not go with this delete.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
    return verbatim::tests::fails(size) ? nullptr : std::malloc(size == 0 ? 1 : size);
}
[[gnu::noinline]] void* operator new(size_t size) {
    void* const memory = operator new(size, std::nothrow);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
