#include "kernels/simt/ordering_places.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbatim::simt {

// FNV-1a.
uint64_t OrderingPlace::id() const {
    uint64_t sum = 0xCBF29CE484222325U;
    for (const char c : fmt::format("{} {} {} {}", what, line, column, file)) {
        sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    }
    return std::max<uint64_t>(sum, 1);
}

bool OrderingPlaces::meets(const char* what, std::source_location where) {
    const auto [entry, is_first] = known_.try_emplace({where.file_name(), where.line(), where.column()}, false);
    if (!is_first) return entry->second;
    OrderingPlace place{what, where.file_name(), where.line(), where.column()};
    entry->second = place.id() == left_out_;
    // The same file name may have two addresses when its text is compiled twice.
    if (std::ranges::find(met_, place) == met_.end()) met_.push_back(std::move(place));
    return entry->second;
}

}  // namespace verbatim::simt
