#include "reference/model/weight_storage.h"

#include "engine/base/check.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

std::span<uint16_t> WeightStorage::allocate_bf16(int64_t count) {
    CHECK_GE(count, 0);
    bf16_.push_back(std::make_unique_for_overwrite<uint16_t[]>(static_cast<size_t>(count)));
    owned_bytes_ += count * int64_t{sizeof(uint16_t)};
    return {bf16_.back().get(), static_cast<size_t>(count)};
}

std::span<float> WeightStorage::allocate_float(int64_t count) {
    CHECK_GE(count, 0);
    floats_.push_back(std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count)));
    owned_bytes_ += count * int64_t{sizeof(float)};
    return {floats_.back().get(), static_cast<size_t>(count)};
}

void WeightStorage::keep(MappedFile file) { files_.push_back(std::move(file)); }

void WeightStorage::release(std::span<const std::byte> bytes) const {
    for (const MappedFile& file : files_) file.release(bytes);
}

ModelWeights::ModelWeights() : storage(std::make_unique<WeightStorage>()) {}
ModelWeights::ModelWeights(ModelWeights&&) noexcept = default;
ModelWeights& ModelWeights::operator=(ModelWeights&&) noexcept = default;
ModelWeights::~ModelWeights() = default;

}  // namespace verbatim::reference
