#include "tests/system/pooled_memory.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>

namespace verbatim::tests {
#if VERBATIM_SANITIZED

bool pool_sqlite_memory() { return true; }

#else
namespace {

constexpr size_t kStep = 16;
constexpr size_t kLargest = size_t{8} << 10;  // a page of SQLite with what belongs to it; larger blocks are malloc()'s

// In front of a block's bytes, which are aligned as malloc()'s are.
struct alignas(kStep) Header {
    size_t size;   // of the bytes, a multiple of kStep
    Header* next;  // while the block is free
};

thread_local constinit std::array<Header*, kLargest / kStep + 1> free_blocks{};  // by size / kStep

size_t rounded(size_t size) { return (std::max(size, size_t{1}) + kStep - 1) / kStep * kStep; }
Header* header_of(void* bytes) { return static_cast<Header*>(bytes) - 1; }

// Null: there is no memory.
void* take(size_t wanted) {
    const size_t size = rounded(wanted);
    if (size < wanted) return nullptr;
    if (size <= kLargest) {
        Header*& first = free_blocks[size / kStep];
        if (Header* const block = first; block != nullptr) {
            first = block->next;
            return block + 1;
        }
    }
    auto* const block = static_cast<Header*>(std::malloc(sizeof(Header) + size));
    if (block == nullptr) return nullptr;
    block->size = size;
    return block + 1;
}

void give(void* bytes) {
    if (bytes == nullptr) return;
    Header* const block = header_of(bytes);
    if (block->size > kLargest) return std::free(block);
    Header*& first = free_blocks[block->size / kStep];
    block->next = first;
    first = block;
}

// --- as SQLite calls them

void* take_for_sqlite(int size) { return take(static_cast<size_t>(size)); }
int size_for_sqlite(void* bytes) { return bytes == nullptr ? 0 : static_cast<int>(header_of(bytes)->size); }
int round_for_sqlite(int size) { return static_cast<int>(rounded(static_cast<size_t>(size))); }
int init_for_sqlite(void*) { return SQLITE_OK; }
void end_for_sqlite(void*) {}

void* resize_for_sqlite(void* bytes, int size) {
    const auto before = static_cast<size_t>(size_for_sqlite(bytes));
    const auto wanted = static_cast<size_t>(size);
    if (before == rounded(wanted)) return bytes;
    void* const moved = take(wanted);
    if (moved == nullptr) return nullptr;
    if (bytes != nullptr) std::memcpy(moved, bytes, std::min(before, wanted));
    give(bytes);
    return moved;
}

}  // namespace

bool pool_sqlite_memory() {
    static constexpr sqlite3_mem_methods kMethods = {
        take_for_sqlite, give,   resize_for_sqlite, size_for_sqlite, round_for_sqlite, init_for_sqlite,
        end_for_sqlite,  nullptr};
    return sqlite3_config(SQLITE_CONFIG_MALLOC, &kMethods) == SQLITE_OK;
}

#endif
}  // namespace verbatim::tests

#if !VERBATIM_SANITIZED
// Not inlined: the compiler would see free() with memory of an unknown function.
[[gnu::noinline]] void* operator new(size_t size) {
    void* const memory = verbatim::tests::take(size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { verbatim::tests::give(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { verbatim::tests::give(memory); }
#endif
