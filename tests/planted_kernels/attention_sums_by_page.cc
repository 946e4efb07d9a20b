// Sums the softmax page by page: right within a tolerance, and the bits know how long a page is.
#include <cmath>
#include <cstdint>
#include <vector>

#include "reference/numerics/bf16.h"
#include "tests/planted_kernels/planted.h"

namespace {

using verbatim::reference::bf16_to_float;
using verbatim::reference::bf16_value;

struct Head {
    const verbatim_attention& op;
    int64_t sequence, kv_head;
    const float* q;

    const uint16_t* slot(const uint16_t* pages, int64_t i) const {
        const int64_t block = op.block_tables[sequence * op.max_blocks + i / op.block_size];
        return pages + ((block * op.block_size + i % op.block_size) * op.n_kv_heads + kv_head) * op.head_dim;
    }
    float score(int64_t i) const {
        float sum = 0.0F;
        for (int64_t d = 0; d < op.head_dim; ++d) sum += bf16_value(q[d]) * bf16_to_float(slot(op.k, i)[d]);
        return sum * op.scale;
    }
};

void attend(const Head& head, int64_t position, float* out) {
    std::vector<float> weights;
    float most = head.score(0);
    for (int64_t i = 0; i <= position; ++i) {
        weights.push_back(head.score(i));
        most = weights.back() > most ? weights.back() : most;
    }
    const int64_t page = head.op.block_size;
    float total = 0.0F;
    std::vector<float> sums(static_cast<size_t>(head.op.head_dim));
    for (int64_t first = 0; first <= position; first += page) {
        float of_page = 0.0F;
        std::vector<float> sums_of_page(sums.size());
        for (int64_t i = first; i <= position && i < first + page; ++i) {
            const float weight = std::exp(weights[static_cast<size_t>(i)] - most);
            of_page += weight;
            for (size_t d = 0; d < sums.size(); ++d)
                sums_of_page[d] += weight * bf16_to_float(head.slot(head.op.v, i)[d]);
        }
        total += of_page;
        for (size_t d = 0; d < sums.size(); ++d) sums[d] += sums_of_page[d];
    }
    for (size_t d = 0; d < sums.size(); ++d) out[d] = sums[d] / total;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_attention& op = *run->args.attention;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t r = op.sequences.first_row[s]; r < op.sequences.first_row[s + 1]; ++r) {
            const int64_t position = op.first_position[s] + r - op.sequences.first_row[s];
            for (int64_t h = 0; h < op.n_heads; ++h) {
                const Head head{op, s, h / (op.n_heads / op.n_kv_heads), op.q.data + r * op.q.stride + h * op.head_dim};
                attend(head, position, op.out.data + r * op.out.stride + h * op.head_dim);
            }
        }
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("attention", "fast", "cpu", run)
