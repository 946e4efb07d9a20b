#include "reference/loader/write_checkpoint.h"

#include <algorithm>
#include <span>
#include <vector>

#include "files/output_file.h"
#include "reference/loader/config_json.h"
#include "reference/loader/safetensors.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/random_model.h"

namespace verbatim::reference {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkElements = int64_t{1} << 20;

Status write_tensor(const CheckpointTensor& tensor, uint64_t seed, files::OutputFile& file) {
    std::vector<uint16_t> matrix;
    std::vector<float> vector;
    for (int64_t first = 0; first < tensor.num_elements(); first += kChunkElements) {
        const auto count = static_cast<size_t>(std::min(kChunkElements, tensor.num_elements() - first));
        if (tensor.vector) {
            vector.resize(count);
            fill_random_vector(tensor, seed, first, vector);
            RETURN_IF_ERROR(file.write(std::as_bytes(std::span(vector))));
        } else {
            matrix.resize(count);
            fill_random_matrix(tensor, seed, first, matrix);
            RETURN_IF_ERROR(file.write(std::as_bytes(std::span(matrix))));
        }
    }
    return {};
}

Status write_weights(const ModelConfig& config, uint64_t seed, const fs::path& path, const WriteProgress& progress) {
    ModelWeights shapes_only;
    const std::vector<CheckpointTensor> tensors = checkpoint_tensors(config, shapes_only);
    std::vector<TensorLayout> layouts;
    for (const CheckpointTensor& tensor : tensors)
        layouts.push_back({tensor.name, tensor.vector ? TensorDtype::kF32 : TensorDtype::kBf16, tensor.shape});
    ASSIGN_OR_RETURN(files::OutputFile file, files::OutputFile::create(path));
    const std::string prefix = safetensors_prefix(layouts);
    RETURN_IF_ERROR(file.write(std::as_bytes(std::span(prefix))));
    int64_t num_written = 0;
    for (const CheckpointTensor& tensor : tensors) {
        RETURN_IF_ERROR(write_tensor(tensor, seed, file));
        num_written += tensor.num_elements();
        if (progress) progress(num_written);
    }
    return file.finish();
}

Error not_written(const fs::path& path, const std::string& why) {
    return {path.string() + ": " + why, ErrorKind::kMachine};
}

}  // namespace

Result<files::OutputFile> new_checkpoint(const fs::path& folder) {
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) return tl::unexpected(not_written(folder, "cannot be made: " + code.message()));
    RETURN_IF_ERROR(files::sync_folder(fs::absolute(folder).parent_path()));
    // Its lock is the whole folder's, and it comes last: a folder with a config is whole.
    ASSIGN_OR_RETURN(files::OutputFile config_file, files::OutputFile::create(folder / "config.json"));
    for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"})
        if (fs::exists(folder / name, code))
            return tl::unexpected(not_written(folder / name, "already exists: choose another folder or remove it"));
    return config_file;
}

Status write_random_checkpoint(const ModelConfig& config, uint64_t seed, const fs::path& folder,
                               const WriteProgress& progress) {
    ASSIGN_OR_RETURN(const std::string config_text, write_config(config));
    ASSIGN_OR_RETURN(files::OutputFile config_file, new_checkpoint(folder));
    RETURN_IF_ERROR(write_weights(config, seed, folder / "model.safetensors", progress));
    return config_file.finish_with(config_text);
}

}  // namespace verbatim::reference
