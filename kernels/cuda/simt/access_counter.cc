#include "kernels/cuda/simt/access_counter.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace verbatim::simt {
namespace {

constexpr size_t kSectorBytes = 32;
constexpr size_t kBankBytes = 4;
constexpr size_t kBanks = 32;

// Wide accesses go in parts of a warp whose lanes want 128 bytes together.
int64_t passes_of(const std::vector<AccessCounter::Access>& lanes) {
    const size_t words = std::max<size_t>(lanes[0].num_bytes / kBankBytes, 1);
    const size_t lanes_of_part = std::max<size_t>(kBanks / words, 1);
    int64_t passes = 0;
    for (size_t first = 0; first < lanes.size(); first += lanes_of_part) {
        std::array<std::set<std::pair<const void*, size_t>>, kBanks> wanted;
        for (size_t i = first; i < std::min(first + lanes_of_part, lanes.size()); ++i) {
            for (size_t word = lanes[i].offset / kBankBytes; word * kBankBytes < lanes[i].offset + lanes[i].num_bytes;
                 ++word) {
                wanted[word % kBanks].emplace(lanes[i].memory, word);
            }
        }
        size_t most = 1;
        for (const auto& of_bank : wanted) most = std::max(most, of_bank.size());
        passes += static_cast<int64_t>(most);
    }
    return passes;
}

void add_request(AccessCounts::Device& counts, const std::vector<AccessCounter::Access>& lanes) {
    std::set<std::pair<const void*, size_t>> sectors;
    for (const AccessCounter::Access& lane : lanes) {
        counts.num_bytes += static_cast<int64_t>(lane.num_bytes);
        for (size_t sector = lane.offset / kSectorBytes; sector * kSectorBytes < lane.offset + lane.num_bytes;
             ++sector) {
            sectors.emplace(lane.memory, sector);
        }
    }
    ++counts.num_requests;
    counts.num_sectors += static_cast<int64_t>(sectors.size());
}

}  // namespace

void AccessCounter::add(const Access& access, int32_t thread) {
    const int64_t time = met_[{access.site, thread}]++;
    const auto [open, fresh] = open_.try_emplace(Key{access.site, thread / kWarpSize, time});
    open->second.push_back(access);
    if (open->second.size() < size_t{kWarpSize}) return;
    count(open->second);
    open_.erase(open);
}

void AccessCounter::block_over(int32_t num_threads, uint32_t num_barriers) {
    for (const auto& [key, request] : open_) count(request);
    open_.clear();
    met_.clear();
    ++counts_.num_blocks;
    counts_.num_threads += num_threads;
    counts_.num_barriers += num_barriers;
}

void AccessCounter::count(const std::vector<Access>& lanes) {
    const Access& first = lanes[0];
    if (!first.is_shared) return add_request(first.is_store ? counts_.stores : counts_.loads, lanes);
    ++counts_.shared_requests;
    counts_.shared_passes += passes_of(lanes);
}

}  // namespace verbatim::simt
