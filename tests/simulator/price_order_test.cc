// More work is never cheaper: all kernels of all devices with tables, whatever grows, inside the tables and beyond.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "engine/base/prng.h"
#include "simulator/kernel_tables.h"

namespace verbatim::tests {
namespace {

constexpr const char* kDevices[] = {"a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"};

Device plain_gpu() {
    Device device;
    device.memory_bytes_per_s = 3e12;
    device.memory_efficiency = 0.8;
    device.bf16_flops = 9e14;
    device.flops_efficiency = 0.8;
    device.kernel_ns = 3000;
    return device;
}

// Sizes of all magnitudes.
class Sizes {
public:
    explicit Sizes(uint64_t seed) : prng_(seed) {}
    int64_t below(int64_t n) { return static_cast<int64_t>(prng_.below(static_cast<uint64_t>(n))); }
    int64_t up_to(int64_t most) {
        int64_t bound = 1;
        while (bound < most && below(20) > 0) bound *= 2;
        return 1 + below(std::min(bound, most));
    }

private:
    Prng prng_;
};

AttentionShape any_heads(Sizes& sizes) {
    constexpr int32_t kKvHeads[] = {1, 2, 3, 4, 8, 16, 32};
    constexpr int32_t kDims[] = {64, 96, 128, 256};
    const int32_t n_kv_heads = kKvHeads[sizes.below(7)];
    return {n_kv_heads * static_cast<int32_t>(1 + sizes.below(12)), n_kv_heads, kDims[sizes.below(4)]};
}

// Runs `check` for the tables of all devices, and for a roofline.
void for_every_device(const std::function<void(const KernelTimes&, Sizes&)>& check) {
    for (const char* name : kDevices) {
        SCOPED_TRACE(name);
        const auto tables =
            TableTimes::read(std::string(VERBATIM_SOURCE_DIR) + "/simulator/silicon/" + name, plain_gpu());
        ASSERT_TRUE(tables.has_value()) << tables.error().message;
        Sizes sizes(1);
        check(*tables, sizes);
    }
    SCOPED_TRACE("roofline");
    Sizes sizes(2);
    check(RooflineTimes(plain_gpu()), sizes);
}

constexpr double kRounding = 1 + 1e-12;

TEST(PriceOrder, ALargerMatmulIsNeverCheaper) {
    for_every_device([](const KernelTimes& times, Sizes& sizes) {
        for (int i = 0; i < 20'000; ++i) {
            const int64_t m = sizes.up_to(200'000), n = sizes.up_to(200'000), k = sizes.up_to(60'000);
            const double ns = times.matmul(m, n, k).ns;
            const int64_t more = sizes.up_to(5000);
            ASSERT_LE(ns, kRounding * times.matmul(m + more, n, k).ns) << m << " " << n << " " << k << " m+" << more;
            ASSERT_LE(ns, kRounding * times.matmul(m, n + more, k).ns) << m << " " << n << " " << k << " n+" << more;
            ASSERT_LE(ns, kRounding * times.matmul(m, n, k + more).ns) << m << " " << n << " " << k << " k+" << more;
        }
    });
}

TEST(PriceOrder, LongerChunksAndPastsAndOneMoreChunkAreNeverCheaper) {
    for_every_device([](const KernelTimes& times, Sizes& sizes) {
        for (int shapes = 0; shapes < 40; ++shapes) {
            const AttentionShape shape = any_heads(sizes);
            for (int i = 0; i < 400; ++i) {
                std::vector<Chunk> chunks(static_cast<size_t>(sizes.up_to(20)));
                for (Chunk& chunk : chunks) chunk = {sizes.up_to(30'000), sizes.up_to(300'000) - 1};
                const double ns = times.context_attention(shape, chunks).ns;
                const auto more = [&](const char* what, const std::vector<Chunk>& grown) {
                    ASSERT_LE(ns, kRounding * times.context_attention(shape, grown).ns)
                        << what << ", " << chunks.size() << " chunks, heads " << shape.n_heads << "/"
                        << shape.n_kv_heads << " x " << shape.head_dim;
                };
                std::vector<Chunk> grown = chunks;
                Chunk& one = grown[static_cast<size_t>(sizes.below(std::ssize(grown)))];
                one.num_new += sizes.up_to(1000);
                more("a longer chunk", grown);
                one.past += sizes.up_to(10'000);
                more("a longer past", grown);
            }
        }
    });
}

// The decode of the same length, and the chunk without a past, bound a chunk from below.
TEST(PriceOrder, AChunkIsNeverCheaperThanADecodeAtItsLength) {
    for_every_device([](const KernelTimes& times, Sizes& sizes) {
        for (int i = 0; i < 4000; ++i) {
            const AttentionShape shape = any_heads(sizes);
            const Chunk chunk{sizes.up_to(5000), sizes.up_to(300'000) - 1};
            const int64_t length = chunk.past + chunk.num_new;
            const double decode = times.decode_attention(shape, {1, real(length), real(length)}).ns;
            ASSERT_GE(kRounding * times.context_attention(shape, {&chunk, 1}).ns, decode)
                << chunk.num_new << " after " << chunk.past;
        }
    });
}

TEST(PriceOrder, LongerContextsMoreSequencesAndWindowsAreNeverCheaper) {
    for_every_device([](const KernelTimes& times, Sizes& sizes) {
        for (int shapes = 0; shapes < 40; ++shapes) {
            const AttentionShape shape = any_heads(sizes);
            for (int i = 0; i < 400; ++i) {
                const int64_t batch = sizes.up_to(1000), context = sizes.up_to(300'000), more = sizes.up_to(1000);
                const auto ns = [&](int64_t num_sequences, int64_t positions, double window_pairs = 0) {
                    return times
                        .decode_attention(shape, {num_sequences, real(num_sequences) * real(positions), real(positions),
                                                  window_pairs})
                        .ns;
                };
                ASSERT_LE(ns(batch, context), kRounding * ns(batch + more, context)) << batch << " of " << context;
                ASSERT_LE(ns(batch, context), kRounding * ns(batch, context + more)) << batch << " of " << context;
                ASSERT_LE(ns(batch, context), ns(batch, context, real(context)));
                // A short one together with them.
                const DecodeBatch mixed{batch + 1, real(batch) * real(context) + 1, real(context)};
                ASSERT_LE(ns(batch, context), kRounding * times.decode_attention(shape, mixed).ns);
            }
        }
    });
}

TEST(PriceOrder, MoreSequencesTokensAndChannelsOfAConvolutionAreNeverCheaper) {
    for_every_device([](const KernelTimes& times, Sizes& sizes) {
        for (int i = 0; i < 20'000; ++i) {
            const ConvShape shape{sizes.up_to(40'000), 4};
            const int64_t sequences = sizes.up_to(1000), tokens = sequences + sizes.up_to(100'000) - 1;
            const int64_t more = sizes.up_to(1000);
            const double ns = times.conv(shape, sequences, tokens).ns;
            ASSERT_LE(ns, kRounding * times.conv(shape, sequences, tokens + more).ns) << sequences << " " << tokens;
            ASSERT_LE(ns, kRounding * times.conv({shape.channels + more, 4}, sequences, tokens).ns);
            if (tokens > sequences) ASSERT_LE(ns, kRounding * times.conv(shape, sequences + 1, tokens + 1).ns);
        }
    });
}

}  // namespace
}  // namespace verbatim::tests
