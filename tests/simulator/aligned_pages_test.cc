#include "simulator/aligned_pages.h"

#include <gtest/gtest.h>

namespace verbatim::tests {
namespace {

struct Published {
    const char* name;
    AttentionShape attention;
    MambaShape mamba;
    int32_t with_bf16;  // tokens of a block
    int32_t with_fp32;
};

// Shapes of the published configs. vLLM logs "Setting attention block size to N tokens" with these numbers.
const Published kPublished[] = {
    {"bamba-9b", {32, 8, 128, 3}, {128, 64, 128, 1, 4, 29}, 528, 1040},
    {"granite-4.0-h-tiny", {12, 4, 128, 4}, {48, 64, 128, 1, 4, 36}, 400, 784},
    {"granite-4.0-h-micro", {32, 8, 64, 4}, {64, 64, 128, 1, 4, 36}, 528, 1040},
    {"nemotron-h-8b", {32, 8, 128, 4}, {128, 64, 128, 8, 4, 24}, 528, 1040},
};

TEST(AlignedPages, ThePublishedModelsHaveTheBlocksThatTheirEnginesLog) {
    for (const Published& one : kPublished) {
        SCOPED_TRACE(one.name);
        ModelShape model;
        model.kvs = {{4 * int64_t{one.attention.n_kv_heads} * one.attention.head_dim, one.attention.count}};
        model.states = {{one.mamba.scan_elements(), (one.mamba.d_conv - 1) * one.mamba.conv_dim(), one.mamba.count}};
        const auto bf16 = aligned_pages(model, {.state_value_bytes = 2});
        const auto fp32 = aligned_pages(model, {.state_value_bytes = 4});
        ASSERT_TRUE(bf16 && fp32);
        EXPECT_EQ(bf16->block_tokens, one.with_bf16);
        EXPECT_EQ(fp32->block_tokens, one.with_fp32);
        const int64_t page = int64_t{4} * one.attention.n_kv_heads * one.attention.head_dim * one.with_fp32;
        EXPECT_EQ(fp32->kv_page_bytes, page * one.attention.count);
        EXPECT_EQ(fp32->state_page_bytes, page * one.mamba.count);
        const int64_t state = one.mamba.scan_elements() * 4 + 3 * one.mamba.conv_dim() * 2;
        EXPECT_GE(page, state) << "a page holds a layer's state";
        EXPECT_LT(page - state, int64_t{16} * 4 * one.attention.n_kv_heads * one.attention.head_dim);
    }
}

TEST(AlignedPages, WithoutStatesNothingIsInflated) {
    ModelShape model;
    model.kvs = {{4 * 8 * 128, 32}};
    const auto pages = aligned_pages(model, {});
    ASSERT_TRUE(pages);
    EXPECT_EQ(*pages, (AlignedPages{.block_tokens = 16, .kv_page_bytes = 16 * 4096 * 32, .state_page_bytes = 0}));
    model.kvs.clear();
    EXPECT_FALSE(aligned_pages(model, {}));
}

}  // namespace
}  // namespace verbatim::tests
