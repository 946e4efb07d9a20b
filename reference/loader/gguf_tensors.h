// reference/loader/gguf_tensors.h: the tensors of a model's GGUF file: their names, shapes, how llama.cpp's converter
// changes them, and the view of ModelWeights that each fills. The one table behind reading and writing GGUF.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// What llama.cpp's converter does to a tensor.
enum class GgufChange : uint8_t {
    kNone,
    kRotaryRows,   // rows of a head: those of its two halves alternate (q and k, for adjacent rotary pairs)
    kNegativeExp,  // −exp(A_log)
};

struct GgufPlace {
    std::string name;            // "blk.3.ssm_a"
    std::vector<int64_t> shape;  // outermost first; a file's extents of 1 do not count
    GgufChange change = GgufChange::kNone;
    int64_t head_dim = 0;  // of kRotaryRows
    // A matrix fills these views with equal shares of its rows, in order (experts); a vector fills `vector`. The
    // pointers aim into the ModelWeights that the table was made for.
    std::vector<MatrixView*> matrices = {};
    VectorView* vector = nullptr;

    [[nodiscard]] int64_t num_elements() const;
};

// The general.architecture of a family whose files are read and written. Error: the family is not supported.
Result<std::string_view> gguf_architecture(Architecture architecture);

// Resizes weights.layers to the config's and lists the tensors in a fixed order; the head is absent when tied.
// REQUIRES: validate(config) is empty, gguf_architecture(config.architecture). The pointers are valid until
// weights.layers is resized or weights is moved.
std::vector<GgufPlace> gguf_places(const ModelConfig& config, ModelWeights& weights);

// The row of a converted tensor that holds row `r` of the checkpoint's.
inline int64_t rotary_source_row(int64_t r, int64_t head_dim) {
    const int64_t in_head = r % head_dim;
    const int64_t half = in_head / (head_dim / 2);
    return r - in_head + in_head % (head_dim / 2) * 2 + half;
}

// A_log of −exp(A_log): the bf16 number whose exp is the stored value within one unit of it, if there is one (then
// A_log was stored in bf16 before the conversion), else the binary32 number nearest to log(−a). REQUIRES: a < 0,
// normal.
float log_of_decay(float a);

}  // namespace verbatim::reference
