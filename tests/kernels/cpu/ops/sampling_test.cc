// Sampling over the whole vocabulary against the definition: the same token, for all parameters.
#include "kernels/cpu/ops/sampling.h"

#include <gtest/gtest.h>

#include "kernels/cpu/ops/cpu_ops.h"
#include "tests/kernels/sampling_cases.h"

namespace verbatim::cpu {
namespace {

using tests::draw_logit;
using tests::SamplingCase;

TEST(CpuSampling, NoisesAreThoseOfTheDefinition) {
    for (const size_t count : {1, 4, 255, 256, 257, 1000}) {
        std::vector<float> noises(count);
        gumbel_noises(0x123456789ABCDEFU, 77, 8, noises);
        for (size_t i = 0; i < count; ++i) {
            ASSERT_EQ(noises[i], reference::gumbel_noise(0x123456789ABCDEFU, 77, 8 + static_cast<int32_t>(i)));
        }
    }
}

TEST(CpuSampling, ArgMaxIsTheLowestOfTheGreatest) {
    Prng prng(4);
    for (int round = 0; round < 400; ++round) {
        std::vector<float> values(1 + prng.below(130));
        for (float& value : values) value = draw_logit(prng, round % 4);
        size_t wanted = 0;
        for (size_t i = 1; i < values.size(); ++i) wanted = values[i] > values[wanted] ? i : wanted;
        for (const Isa isa : supported_isas()) {
            ASSERT_EQ(cpu_ops(isa).rows->arg_max(values.data(), static_cast<int64_t>(values.size())),
                      static_cast<int32_t>(wanted))
                << isa_name(isa);
        }
    }
}

TEST(CpuSampling, DrawsTheDefinitionsToken) {
    Prng prng(5);
    SamplingScratch scratch;
    for (int round = 0; round < 600; ++round) {
        SamplingCase drawn(prng, 1 + prng.below(3000), round % 4);
        if (round % 3 == 0) drawn.change_single_tokens(prng);
        const reference::SamplingArgs args = drawn.args();
        const int32_t wanted = reference::sample(args);
        for (const Isa isa : supported_isas()) {
            ASSERT_EQ(sample(args, *cpu_ops(isa).rows, scratch), wanted) << isa_name(isa) << ", round " << round;
        }
        if (args.params.temperature == 0.0F) continue;
        std::vector<float> scaled = drawn.logits;
        for (float& logit : scaled) logit = logit / args.params.temperature;
        const reference::KeepRule keep{args.params.top_k, args.params.top_p, args.params.min_p};
        kept_ids(scaled, keep, scratch);
        ASSERT_EQ(scratch.order, reference::kept_ids(scaled, keep)) << "round " << round;
    }
}

}  // namespace
}  // namespace verbatim::cpu
