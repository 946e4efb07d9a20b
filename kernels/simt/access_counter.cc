#include "kernels/simt/access_counter.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::simt {
namespace {

constexpr size_t kSectorBytes = 32;
constexpr size_t kBankBytes = 4;
constexpr size_t kBanks = 32;

struct Passes {
    int64_t needed = 0;
    int64_t least = 0;  // without bank conflicts
};

// A warp's wide accesses are split into groups of lanes that request 128 bytes together.
Passes passes_of(const std::vector<AccessCounter::Access>& lanes) {
    const size_t words = std::max<size_t>(lanes[0].num_bytes / kBankBytes, 1);
    const size_t lanes_of_part = std::max<size_t>(kBanks / words, 1);
    Passes passes;
    for (size_t part = 0; part < size_t{kWarpSize}; part += lanes_of_part) {
        std::array<std::set<std::pair<const void*, size_t>>, kBanks> wanted;
        bool is_there = false;
        for (size_t i = 0; i < lanes.size(); ++i) {
            if (lanes[i].lane / lanes_of_part != part / lanes_of_part) continue;
            is_there = true;
            for (size_t word = lanes[i].offset / kBankBytes; word * kBankBytes < lanes[i].offset + lanes[i].num_bytes;
                 ++word) {
                wanted[word % kBanks].emplace(lanes[i].memory, word);
            }
        }
        size_t most = is_there ? 1 : 0;
        for (const auto& of_bank : wanted) most = std::max(most, of_bank.size());
        passes.needed += static_cast<int64_t>(most);
        passes.least += int64_t{is_there};
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

void AccessCounter::launched(const std::string& kernel_name) {
    CHECK(open_.empty(), "{} starts while {} requests of the kernel before are open", kernel_name, open_.size());
    counts_ = &kernels_[kernel_name];
    ++counts_->num_launches;
}

void AccessCounter::add_copy(size_t num_bytes, bool is_store) {
    AccessCounts::Device& counts = is_store ? counts_->stores : counts_->loads;
    ++counts.num_requests;
    counts.num_sectors += static_cast<int64_t>((num_bytes + kSectorBytes - 1) / kSectorBytes);
    counts.num_bytes += static_cast<int64_t>(num_bytes);
}

AccessCounts AccessCounter::counts() const {
    AccessCounts all;
    const auto add = [](AccessCounts::Device& to, const AccessCounts::Device& from) {
        to.num_requests += from.num_requests;
        to.num_sectors += from.num_sectors;
        to.num_bytes += from.num_bytes;
    };
    for (const auto& [name, counts] : kernels_) {
        all.num_launches += counts.num_launches;
        all.num_blocks += counts.num_blocks;
        all.num_threads += counts.num_threads;
        all.num_barriers += counts.num_barriers;
        add(all.loads, counts.loads);
        add(all.stores, counts.stores);
        all.shared_requests += counts.shared_requests;
        all.shared_passes += counts.shared_passes;
        all.shared_least_passes += counts.shared_least_passes;
    }
    return all;
}

AccessCounts AccessCounter::counts(const std::string& kernel_name) const {
    const auto found = kernels_.find(kernel_name);
    return found == kernels_.end() ? AccessCounts{} : found->second;
}

void AccessCounter::add(const Access& access, int32_t thread) {
    const int64_t time = met_[{access.site, thread}]++;
    const auto [open, fresh] = open_.try_emplace(Key{access.site, thread / kWarpSize, time});
    open->second.push_back(access);
    open->second.back().lane = static_cast<size_t>(thread % kWarpSize);
    if (open->second.size() < size_t{kWarpSize}) return;
    count(open->second);
    open_.erase(open);
}

void AccessCounter::block_over(int32_t num_threads, uint32_t num_barriers) {
    CHECK(counts_ != nullptr, "a block ends without a launch");
    for (const auto& [key, request] : open_) count(request);
    open_.clear();
    met_.clear();
    ++counts_->num_blocks;
    counts_->num_threads += num_threads;
    counts_->num_barriers += num_barriers;
}

void AccessCounter::count(const std::vector<Access>& lanes) {
    CHECK(!lanes.empty() && lanes.size() <= size_t{kWarpSize}, "a request of {} lanes", lanes.size());
    const Access& first = lanes[0];
    if (!first.is_shared) return add_request(first.is_store ? counts_->stores : counts_->loads, lanes);
    ++counts_->shared_requests;
    const Passes passes = passes_of(lanes);
    counts_->shared_passes += passes.needed;
    counts_->shared_least_passes += passes.least;
}

}  // namespace verbatim::simt
