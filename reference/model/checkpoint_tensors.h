// reference/model/checkpoint_tensors.h: the tensors of a checkpoint: their names, shapes, and the view of ModelWeights
// that each fills. The one table behind loading, writing, random weights and parameter counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "reference/model/weight_storage.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// The distribution of a tensor's random weights (reference/model/random_model.h).
enum class TensorRole : uint8_t { kMatrix, kNorm, kNormOffset, kBias, kConv, kALog, kD, kDtBias, kRouter };

struct CheckpointTensor {
    std::string name;            // "model.layers.3.mamba.A_log"
    std::vector<int64_t> shape;  // as in the file: conv weights are [conv_dim, 1, d_conv]
    TensorRole role = TensorRole::kMatrix;
    // A matrix fills these views with equal shares of its rows, in order (Granite's input_linear: gate, up; one of
    // three dimensions: each expert's in turn); a vector fills `vector`. The pointers aim into the ModelWeights that
    // the table was made for.
    std::vector<MatrixView*> matrices;
    VectorView* vector = nullptr;
    // Instead of `matrices`: the rows are n_groups equal runs, and each run has rows of every part in turn
    // (Qwen3-Next's in_proj_qkvz, key head by key head).
    struct Part {
        MatrixView* view = nullptr;
        int64_t first_row = 0;       // of the view: where the first group's rows of this part go
        int64_t rows_per_group = 0;  // the next group's rows follow directly
    };
    std::vector<Part> parts = {};
    int64_t n_groups = 1;
    bool by_columns = false;  // `matrices` get equal shares of its columns instead of its rows

    [[nodiscard]] int64_t num_elements() const;
};

// The experts of Qwen3.5 and Qwen3-Next are two tensors of three dimensions in published checkpoints, and three tensors
// of two dimensions per expert in re-saved ones. All other families have one layout.
enum class ExpertFiling : uint8_t { kAsPublished, kTogether, kOneByOne };

// Resizes weights.layers to the config's and lists the tensors in a fixed order: embedding, layers ascending, final
// norm, head (absent when tied). REQUIRES: validate(config) is empty. The pointers are valid until weights.layers is
// resized or weights is moved.
std::vector<CheckpointTensor> checkpoint_tensors(const ModelConfig& config, ModelWeights& weights,
                                                 ExpertFiling filing = ExpertFiling::kAsPublished);

// Points the tensor's matrix views at its rows. `all` is the whole tensor, [num_elements / cols, cols]; its memory
// outlives the views. Rows in groups are copied into `storage`, part by part.
void split_rows(const CheckpointTensor& tensor, const MatrixView& all, WeightStorage& storage);

// Errors: an expert has one of gate and up in blocks and the other in bf16. A row of activations is rounded once for
// both, in the form that both kinds of weights read. `source` names the model.
Status check_experts(const ModelWeights& weights, std::string_view source);

}  // namespace verbatim::reference
