// The pool beside a model that is a reference count per unit and the step that a free unit waits for.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "engine/base/prng.h"
#include "engine/cache/id_pool.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

class PoolModel {
public:
    explicit PoolModel(uint64_t seed) : prng_(seed), pool_(static_cast<int32_t>(prng_.below(12))) {
        counts_.assign(static_cast<size_t>(pool_.num_units()), 0);
    }

    void operate() {
        switch (prng_.below(6)) {
            case 0:
            case 1: return allocate(static_cast<int32_t>(prng_.below(5)));
            case 2: return change(true);
            case 3: return change(false);
            case 4: return pool_.begin_step(++open_step_);
            default: return complete();
        }
    }

    void check() const {
        int32_t num_used = 0;
        for (const int32_t count : counts_) num_used += count > 0 ? 1 : 0;
        EXPECT_EQ(pool_.num_used(), num_used);
        EXPECT_EQ(pool_.num_fenced(), static_cast<int32_t>(fenced_.size()));
        EXPECT_EQ(pool_.num_free(), pool_.num_units() - num_used - pool_.num_fenced());
        pool_.verify(counts_);
    }

private:
    // The lowest free ids, all or none.
    void allocate(int32_t count) {
        std::vector<int32_t> wanted;
        for (int32_t id = 0; id < pool_.num_units() && static_cast<int32_t>(wanted.size()) < count; ++id) {
            if (counts_[id] == 0 && !fenced_.contains(id)) wanted.push_back(id);
        }
        const auto runs = pool_.allocate(count);
        ASSERT_EQ(runs.has_value(), static_cast<int32_t>(wanted.size()) == count);
        if (!runs) return;
        std::vector<int32_t> got;
        for (const BlockRun& run : *runs) {
            for (int32_t i = 0; i < run.count; ++i) got.push_back(index(run.first) + i);
        }
        EXPECT_EQ(got, wanted);
        for (const int32_t id : got) ++counts_[id];
    }

    // One more or one less reference to a run of used units.
    void change(bool retain) {
        if (counts_.empty()) return;
        const auto first = static_cast<int32_t>(prng_.below(counts_.size()));
        int32_t count = 0;
        while (first + count < pool_.num_units() && counts_[first + count] > 0 && count < 4) ++count;
        if (count == 0) return;
        retain ? pool_.retain({BlockId{first}, count}) : pool_.release({BlockId{first}, count});
        for (int32_t id = first; id < first + count; ++id) {
            counts_[id] += retain ? 1 : -1;
            if (counts_[id] == 0 && open_step_ > complete_step_) fenced_[id] = open_step_;
        }
    }

    void complete() {
        if (open_step_ == complete_step_) return;
        complete_step_ += static_cast<int64_t>(1 + prng_.below(static_cast<uint64_t>(open_step_ - complete_step_)));
        pool_.complete_step(complete_step_);
        std::erase_if(fenced_, [&](const auto& entry) { return entry.second <= complete_step_; });
    }

    Prng prng_;
    BlockPool pool_;
    std::vector<int32_t> counts_;
    std::map<int32_t, int64_t> fenced_;  // unit -> the step that it waits for
    int64_t open_step_ = -1;
    int64_t complete_step_ = -1;
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
