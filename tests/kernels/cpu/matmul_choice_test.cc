// Whichever loop a race has chosen, a model's logits are the same bits.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/cpu/cpu_backend.h"
#include "reference/forward_pass.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using namespace reference;

constexpr int32_t kBlockSize = 16;
constexpr int32_t kNumThreads = 2;

// All logits of a sequence, computed at once.
std::vector<float> logits_of(const Model& model, const MatmulChoice& choice, int32_t num_rows,
                             WeightFormat format = WeightFormat::kBf16) {
    const int32_t num_blocks = (num_rows + kBlockSize - 1) / kBlockSize;
    WorkerPool pool(kNumThreads);
    KernelModel kernel_model(model.config, model.weights);
    PackedWeights packed(model.config, model.weights, pool, format);
    const StateTensors tensors = state_tensors(model.config);
    PagedKv kv(tensors, kBlockSize, num_blocks);
    StateRows states(tensors, 1);
    StateLog log(model.config, 0);
    CpuBackend backend(kernel_model, packed, choice, {kv, states, log}, pool);

    std::vector<BlockId> blocks(num_blocks);
    for (int32_t i = 0; i < num_blocks; ++i) blocks[i] = BlockId{i};
    PooledSequence sequence;
    sequence.blocks = blocks;
    sequence.state_dst = StateIndex{0};
    std::vector<TokenId> tokens(num_rows);
    for (int32_t i = 0; i < num_rows; ++i) tokens[i] = i * 37 % model.config.vocab_size;
    std::vector<int32_t> logit_rows(num_rows);
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const WalkSequence part{0, num_rows, 0};
    backend.set_step(model.config, {.sequences = {&sequence, 1}});
    walk(model.config, forward_pass(model.config), {tokens, {&part, 1}, logit_rows}, backend);

    std::vector<float> all;
    for (int32_t row = 0; row < num_rows; ++row) {
        const auto logits = backend.logits(row);
        all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
}

// Rows around a tile, a band and the rows that share a panel's trip through the cache.
TEST(MatmulChoice, EveryLoopOfEveryTableGivesAModelTheSameBits) {
    const Model model = make_random_model(preset("tiny-granite").value(), 1);
    for (const int32_t num_rows : {1, 6, 7, 16, 25, 120, 131}) {
        const MatmulLoop portable{.ops = &cpu_ops(Isa::kPortable)};
        const auto want = bits_of(logits_of(model, {portable, portable, portable}, num_rows));
        for (const Isa isa : supported_isas()) {
            for (const MatmulLoop& loop : matmul_loops(cpu_ops(isa), num_rows)) {
                EXPECT_EQ(bits_of(logits_of(model, {loop, loop, loop}, num_rows)), want)
                    << num_rows << " rows, " << isa_name(isa) << (loop.bands ? ", bands" : "")
                    << (loop.reads_ahead ? ", ahead" : "");
            }
        }
    }
}

// The slowest instruction set of the exact profile may be the fastest of the fast one: races are per profile.
TEST(MatmulChoice, EachProfileRacesItsLoops) {
    const auto isas = supported_isas();
    const Isa last = isas.back();
    const Isa other = isas[isas.size() > 2 ? isas.size() - 2 : isas.size() - 1];
    const auto race = [&](std::span<const MatmulLoop> loops, int64_t num_rows) {
        for (const MatmulLoop& loop : loops) {
            const bool fast = loop.ops == &cpu_ops(loop.ops->isa, Profile::kFast);
            const bool exact = loop.ops == &cpu_ops(loop.ops->isa, Profile::kExact);
            if (loop.ops->isa == (fast ? last : other) && fast != exact) return loop;
        }
        ADD_FAILURE() << num_rows << " rows: no loop of " << isa_name(other);
        return loops[0];
    };
    if (isas.size() == 1) GTEST_SKIP() << "this processor has no vectors: there is one loop";
    const MatmulChoice exact = raced_choice(isas, Profile::kExact, race);
    const MatmulChoice fast = raced_choice(isas, Profile::kFast, race);
    for (const MatmulLoop& loop : {exact.one, exact.few, exact.many}) EXPECT_EQ(loop.ops, &cpu_ops(other));
    for (const MatmulLoop& loop : {fast.one, fast.few, fast.many}) {
        EXPECT_EQ(loop.ops, &cpu_ops(last, Profile::kFast));
    }
}

// What the real race finds is a loop of its profile's tables, for the number of rows that it is chosen for.
TEST(MatmulChoice, ARaceIsWonByALoopOfItsProfile) {
    for (const Profile profile : {Profile::kExact, Profile::kFast}) {
        for (const Isa isa : supported_isas()) {
            const MatmulChoice choice = matmul_choice(isa, profile);
            for (const int64_t num_rows : {1, 4, 16}) {
                const auto loops = matmul_loops(cpu_ops(isa, profile), num_rows);
                EXPECT_EQ(std::ranges::count(loops, choice.of_rows(num_rows)), 1) << isa_name(isa) << num_rows;
            }
        }
    }
}

// Weights in int8 have a separate loop for few rows, which reads no bands: also for the remainder of many rows.
TEST(MatmulChoice, EveryLoopOfTheFastTablesReadsInt8Weights) {
    const Model model = make_random_model(preset("tiny-granite").value(), 1);
    for (const int32_t num_rows : {1, 5, 6, 7, 126}) {
        const MatmulLoop portable{.ops = &cpu_ops(Isa::kPortable, Profile::kFast)};
        const auto want = logits_of(model, {portable, portable, portable}, num_rows, WeightFormat::kInt8);
        const float largest = *std::ranges::max_element(want);
        for (const Isa isa : supported_isas()) {
            for (const MatmulLoop& loop : matmul_loops(cpu_ops(isa, Profile::kFast), num_rows)) {
                const auto got = logits_of(model, {loop, loop, loop}, num_rows, WeightFormat::kInt8);
                for (size_t i = 0; i < want.size(); ++i) {
                    ASSERT_NEAR(got[i], want[i], 0.02F * largest)
                        << num_rows << " rows, " << isa_name(isa) << (loop.bands ? ", bands" : "");
                }
            }
        }
    }
}

}  // namespace
}  // namespace verbatim::cpu
