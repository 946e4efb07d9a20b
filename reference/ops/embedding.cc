#include "reference/ops/embedding.h"

#include "reference/numerics/bf16.h"

namespace verbatim::reference {

void check(const EmbeddingArgs& args) {
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_pointer(args.tokens, args.out.num_rows);
    check_pointer(args.table, args.vocab_size * args.out.width);
    for (int64_t r = 0; r < args.out.num_rows; ++r) {
        CHECK(args.tokens[r] >= 0 && args.tokens[r] < args.vocab_size, "token {} of row {}, vocabulary {}",
              args.tokens[r], r, args.vocab_size);
    }
}

void embedding(const EmbeddingArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.out.num_rows; ++r) {
        const uint16_t* entry = args.table + args.tokens[r] * args.out.width;
        float* out = args.out.row(r);
        for (int64_t i = 0; i < args.out.width; ++i) out[i] = bf16_to_float(entry[i]) * args.multiplier;
    }
}

}  // namespace verbatim::reference
