// reference/loader/gguf_config.h: the metadata of a GGUF file as a ModelConfig.
//
// An architecture's keys become the config.json of its family, which the family's reader then checks. Nothing is
// guessed: a key of the architecture that is neither read nor known to change nothing is an error, as is an
// architecture that is not supported.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "reference/loader/gguf.h"
#include "reference/model/model_config.h"

namespace verbatim::reference {

// `source` names the file in errors.
Result<ModelConfig> gguf_config(const GgufFile& file, std::string_view source);

// Layers behind the model's that predict more tokens (nextn_predict_layers); 0 of a file that says nothing sensible.
int64_t num_prediction_blocks(const GgufFile& file);
// Whether a tensor is of one of these layers. `config`: of the file.
bool is_prediction_tensor(const GgufFile& file, const ModelConfig& config, std::string_view name);

// Metadata that owns its keys, texts and lists.
class OwnedMetadata {
public:
    void set(std::string key, GgufValue value);  // texts, strings and numbers are copied
    void set_numbers(std::string key, std::vector<int32_t> numbers);
    [[nodiscard]] const GgufMetadata& view() const { return view_; }

private:
    std::string_view keep(std::string_view text);
    std::deque<std::string> texts_;
    std::deque<std::vector<int32_t>> numbers_;
    GgufMetadata view_;
};

// The metadata that gguf_config() reads back as `config`, without a tokenizer's. Errors: the family is not written;
// the config has what its metadata cannot express.
Result<OwnedMetadata> gguf_metadata(const ModelConfig& config);

}  // namespace verbatim::reference
