// Draws over the whole vocabulary beside the definition: the same token, whatever the parameters.
#include "kernels/cpu/ops/sampling.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/prng.h"
#include "kernels/cpu/ops/cpu_ops.h"

namespace verbatim::cpu {
namespace {

float draw_logit(Prng& prng, int kind) {
    const float plain = static_cast<float>(prng.below(20001)) / 1000.0F - 10.0F;
    if (kind == 0) return plain;
    if (kind == 1) return std::round(plain);                    // many equals
    if (kind == 2) return prng.below(2) == 0 ? 0.0F : -0.0F;    // equals of two signs
    return prng.below(50) == 0 ? plain * 8.0F : plain / 64.0F;  // a few that tower
}

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
        std::vector<float> logits(1 + prng.below(3000));
        for (float& logit : logits) logit = draw_logit(prng, round % 4);
        std::vector<int32_t> prefix(prng.below(20));
        for (int32_t& id : prefix) id = static_cast<int32_t>(prng.below(logits.size()));
        const auto prompt = std::span<const int32_t>(prefix).first(prefix.size() / 2);
        SamplingParams params;
        params.seed = prng.next();
        const float temperatures[] = {0.0F, 1.0F, 0.7F, 1e-30F};
        const float top_ps[] = {1.0F, 0.9F, 0.5F, 0.999F, 1e-6F};
        params.temperature = temperatures[prng.below(4)];
        params.top_p = top_ps[prng.below(5)];
        params.top_k = prng.below(2) == 0 ? 0 : static_cast<int32_t>(prng.below(logits.size() + 2));
        if (prng.below(3) == 0) params.repetition_penalty = 1.3F;
        if (prng.below(3) == 0) params.frequency_penalty = 0.4F;
        const reference::SamplingArgs args{
            logits, params, {prompt, std::span<const int32_t>(prefix).subspan(prompt.size())}, prng.next()};
        const int32_t wanted = reference::sample(args);
        for (const Isa isa : supported_isas()) {
            ASSERT_EQ(sample(args, *cpu_ops(isa).rows, scratch), wanted) << isa_name(isa) << ", round " << round;
        }
        if (params.temperature == 0.0F) continue;
        std::vector<float> scaled = logits;
        for (float& logit : scaled) logit = logit / params.temperature;
        kept_ids(scaled, params.top_k, params.top_p, scratch);
        ASSERT_EQ(scratch.order, reference::kept_ids(scaled, params.top_k, params.top_p)) << "round " << round;
    }
}

}  // namespace
}  // namespace verbatim::cpu
