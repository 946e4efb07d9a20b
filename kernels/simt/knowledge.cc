#include "kernels/simt/knowledge.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace verbatim::simt {
namespace {

// Bare pointers, so that the compiler vectorises the loop: test builds of the standard library check every index.
bool any_above(const uint32_t* a, const uint32_t* b, size_t count) {
    uint32_t above = 0;
    for (size_t i = 0; i < count; ++i) above |= static_cast<uint32_t>(a[i] > b[i]);
    return above != 0;
}

}  // namespace

VectorClock::Epochs::List& VectorClock::Epochs::alone() {
    if (shared_ == nullptr) {
        shared_ = std::make_shared<List>();
    } else if (shared_.use_count() > 1) {
        shared_ = std::make_shared<List>(*shared_);
    }
    return *shared_;
}

void VectorClock::Epochs::raise(int32_t i, uint32_t epoch) {
    if (at(i) >= epoch) return;
    List& epochs = alone();
    if (static_cast<size_t>(i) >= epochs.size()) epochs.resize(static_cast<size_t>(i) + 1);
    epochs[static_cast<size_t>(i)] = epoch;
}

// The clock with less information shares the other's list; joining a smaller clock changes nothing.
void VectorClock::Epochs::join(const Epochs& other) {
    if (other.shared_ == nullptr || shared_ == other.shared_) return;
    if (shared_ == nullptr) {
        shared_ = other.shared_;
        return;
    }
    const List& theirs = *other.shared_;
    if (shared_.use_count() > 1) {
        const size_t both = std::min(shared_->size(), theirs.size());
        const bool has_less = theirs.size() > both || any_above(theirs.data(), shared_->data(), both);
        if (!has_less) return;
        const bool has_more = shared_->size() > both || any_above(shared_->data(), theirs.data(), both);
        if (!has_more) {
            shared_ = other.shared_;
            return;
        }
    }
    List& epochs = alone();
    if (epochs.size() < theirs.size()) epochs.resize(theirs.size());
    uint32_t* mine = epochs.data();
    const uint32_t* added = theirs.data();
    for (size_t i = 0; i < theirs.size(); ++i) mine[i] = std::max(mine[i], added[i]);
}

}  // namespace verbatim::simt
