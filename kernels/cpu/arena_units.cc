#include "kernels/cpu/arena_units.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace verbatim::cpu {
namespace {

uintptr_t page_bytes() {
    static const auto bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

// Whole pages between two addresses.
std::span<std::byte> whole_pages(std::byte* begin, std::byte* end) {
    const uintptr_t first = (reinterpret_cast<uintptr_t>(begin) + page_bytes() - 1) / page_bytes() * page_bytes();
    const uintptr_t last = reinterpret_cast<uintptr_t>(end) / page_bytes() * page_bytes();
    if (first >= last) return {};
    return {reinterpret_cast<std::byte*>(first), last - first};
}

}  // namespace

void Arena::change(std::span<const MemoryChange> changes) {
    for (const MemoryChange& change : changes) {
        CHECK(
            change.to >= 0 && change.to + change.count <= bytes_.size() && change.from + change.count <= bytes_.size(),
            "{} bytes to {} of {}", change.count, change.to, bytes_.size());
        std::byte* to = bytes_.data() + change.to;
        if (change.kind == MemoryChange::Kind::kClear) {
            std::memset(to, 0, static_cast<size_t>(change.count));
        } else {
            std::memcpy(to, bytes_.data() + change.from, static_cast<size_t>(change.count));
        }
    }
}

// What is left of a page at a range's ends is cleared: units expect zeros.
void Arena::give_back(std::span<const ArenaRange> ranges) {
    for (const ArenaRange& range : ranges) {
        std::byte* begin = bytes_.data() + range.begin;
        std::byte* end = bytes_.data() + range.end;
        const std::span<std::byte> pages = whole_pages(begin, end);
        if (pages.empty()) {
            std::fill(begin, end, std::byte{0});
            continue;
        }
        std::fill(begin, pages.data(), std::byte{0});
        std::fill(pages.data() + pages.size(), end, std::byte{0});
        CHECK_EQ(madvise(pages.data(), pages.size(), MADV_DONTNEED), 0);
    }
}

int64_t Arena::resident_bytes() const {
    std::byte* end = bytes_.data() + bytes_.size();
    const auto first = reinterpret_cast<uintptr_t>(bytes_.data()) / page_bytes() * page_bytes();
    const uintptr_t length = reinterpret_cast<uintptr_t>(end) - first;
    std::vector<unsigned char> pages((length + page_bytes() - 1) / page_bytes());
    if (mincore(reinterpret_cast<void*>(first), length, pages.data()) != 0) return 0;
    const auto count = std::ranges::count_if(pages, [](unsigned char page) { return (page & 1U) != 0; });
    return static_cast<int64_t>(count) * static_cast<int64_t>(page_bytes());
}

}  // namespace verbatim::cpu
