// The pool compared with a model that knows for every unit whether it is used, and the step that a free one waits for.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "engine/base/prng.h"
#include "engine/cache/id_pool.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

class PoolModel {
public:
    explicit PoolModel(uint64_t seed) : prng_(seed), pool_(static_cast<int32_t>(prng_.below(12))) {
        used_.assign(static_cast<size_t>(pool_.num_units()), 0);
    }

    void operate() {
        if (prng_.below(20) == 0) return add_units();
        switch (prng_.below(5)) {
            case 0:
            case 1: return allocate(static_cast<int32_t>(prng_.below(5)));
            case 2:
            case 3: return release();
            default: return complete();
        }
    }

    void check() const {
        int32_t num_used = 0;
        for (const int32_t used : used_) num_used += used;
        EXPECT_EQ(pool_.num_used(), num_used);
        EXPECT_EQ(pool_.num_fenced(), static_cast<int32_t>(fenced_.size()));
        EXPECT_EQ(pool_.num_free(), pool_.num_units() - num_used - pool_.num_fenced());
        pool_.verify(used_);
    }

private:
    [[nodiscard]] bool is_free(int32_t id) const {
        return id >= 0 && id < pool_.num_units() && used_[id] == 0 && !fenced_.contains(id);
    }

    // Sometimes past the end of a word of the pool's sets.
    void add_units() {
        const auto count = static_cast<int32_t>(prng_.below(prng_.below(4) == 0 ? 80 : 4));
        pool_.add_units(count);
        used_.resize(used_.size() + static_cast<size_t>(count), 0);
    }

    // What follows `after` and is free, then the lowest free ids; all or none.
    void allocate(int32_t count) {
        std::optional<BlockId> after;
        if (!used_.empty() && prng_.below(2) == 0) after = BlockId{static_cast<int32_t>(prng_.below(used_.size()))};
        std::vector<int32_t> wanted;
        const auto missing = [&] { return static_cast<int32_t>(wanted.size()) < count; };
        for (int32_t id = after ? index(*after) + 1 : -1; is_free(id) && missing(); ++id) wanted.push_back(id);
        for (int32_t id = 0; id < pool_.num_units() && missing(); ++id) {
            if (is_free(id) && std::ranges::count(wanted, id) == 0) wanted.push_back(id);
        }
        const auto runs = pool_.allocate(count, after);
        ASSERT_EQ(runs.has_value(), !missing());
        if (!runs) return;
        std::vector<int32_t> got;
        for (const BlockRun& run : *runs) {
            for (int32_t i = 0; i < run.count; ++i) got.push_back(index(run.first) + i);
        }
        EXPECT_EQ(got, wanted);
        for (const int32_t id : got) used_[id] = 1;
    }

    // A run of used units, which some step may still write.
    void release() {
        if (used_.empty()) return;
        const auto first = static_cast<int32_t>(prng_.below(used_.size()));
        int32_t count = 0;
        while (first + count < pool_.num_units() && used_[first + count] == 1 && count < 4) ++count;
        if (count == 0) return;
        const auto busy_through = complete_step_ + static_cast<int64_t>(prng_.below(4)) - 1;
        pool_.release({BlockId{first}, count}, busy_through);
        for (int32_t id = first; id < first + count; ++id) {
            used_[id] = 0;
            if (busy_through > complete_step_) fenced_[id] = busy_through;
        }
    }

    void complete() {
        complete_step_ += static_cast<int64_t>(prng_.below(3));
        pool_.complete_step(complete_step_);
        std::erase_if(fenced_, [&](const auto& entry) { return entry.second <= complete_step_; });
    }

    Prng prng_;
    BlockPool pool_;
    std::vector<int32_t> used_;
    std::map<int32_t, int64_t> fenced_;  // unit -> the step that it waits for
    int64_t complete_step_ = kNoStep;
};

TEST(IdPoolModel, EveryRandomSequenceOfCallsAgrees) {
    const RandomCases cases = RandomCases::from_environment(200);
    for (uint64_t i = 0; i < cases.count && !::testing::Test::HasFailure(); ++i) {
        SCOPED_TRACE(cases.seed + i);
        PoolModel model(cases.seed + i);
        for (int operation = 0; operation < 100; ++operation) {
            model.operate();
            model.check();
        }
    }
}

}  // namespace
}  // namespace verbatim::tests
