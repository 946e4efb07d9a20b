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

// What llama.cpp's converter does to the numbers of a vector.
enum class GgufChange : uint8_t {
    kNone,
    kNegativeExp,  // −exp(A_log)
    kPlusOne,      // 1 + w, of norms that multiply by it
};

// Where the converter puts rows or columns: those from `first` on are groups of n_outer · n_inner · run; in each group
// the checkpoint's order [n_outer, n_inner, run] is [n_inner, n_outer, run] in the file.
struct GgufOrder {
    int64_t first = 0;
    int64_t n_outer = 1;
    int64_t n_inner = 1;
    int64_t run = 1;

    [[nodiscard]] bool changes() const { return n_outer > 1 && n_inner > 1; }
    // The place in the file of what has place `i` in the checkpoint, and the other way round.
    [[nodiscard]] int64_t in_file(int64_t i) const { return moved(i, n_outer, n_inner); }
    [[nodiscard]] int64_t in_checkpoint(int64_t i) const { return moved(i, n_inner, n_outer); }

private:
    // From [outer, inner, run] to [inner, outer, run].
    [[nodiscard]] int64_t moved(int64_t i, int64_t outer, int64_t inner) const {
        if (i < first) return i;
        const int64_t place = (i - first) % (outer * inner * run);
        const int64_t o = place / (inner * run);
        const int64_t n = place / run % inner;
        return i - place + (n * outer + o) * run + place % run;
    }
};

struct GgufPlace {
    std::string name;            // "blk.3.ssm_a"
    std::vector<int64_t> shape;  // outermost first; a file's extents of 1 do not count
    GgufChange change = GgufChange::kNone;
    GgufOrder rows = {};
    GgufOrder columns = {};  // of a matrix
    // A matrix fills these views with equal shares of its rows, in order (experts), or of its columns; a vector fills
    // `vector`. The pointers aim into the ModelWeights that the table was made for.
    std::vector<MatrixView*> matrices = {};
    bool by_columns = false;
    VectorView* vector = nullptr;
    bool is_float = false;  // a matrix that files have in F32

    [[nodiscard]] int64_t num_elements() const;
};

// Which of llama.cpp's forms a file has.
struct GgufForm {
    int64_t first_block = 0;     // the number of layer 0's block; of a prediction layer it is behind the model's
    bool fused_gate_up = false;  // gate and up of an expert are one matrix
};

// The general.architecture of a config whose files are read and written. Error: the family is not supported.
Result<std::string_view> gguf_architecture(const ModelConfig& config);

// Resizes weights.layers to the config's and lists the tensors in a fixed order; the head is absent when tied. Of a
// config that reads hidden rows: the prediction layer's, whose embedding and head are the model's.
// REQUIRES: validate(config) is empty, gguf_architecture(config). The pointers are valid until weights.layers is
// resized or weights is moved.
std::vector<GgufPlace> gguf_places(const ModelConfig& config, ModelWeights& weights, const GgufForm& form = {});

// A_log of −exp(A_log): the bf16 number whose exp is the stored value within one unit of it, if there is one (then
// A_log was stored in bf16 before the conversion), else the binary32 number nearest to log(−a). REQUIRES: a < 0,
// normal.
float log_of_decay(float a);

}  // namespace verbatim::reference
