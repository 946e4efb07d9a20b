#include "reference/model/weight_storage.h"

#include <algorithm>

#include "engine/base/check.h"
#include "reference/model/weights.h"
#include "reference/numerics/bf16.h"

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

std::span<std::byte> WeightStorage::allocate_bytes(int64_t count) {
    CHECK_GE(count, 0);
    bytes_.push_back(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count)));
    owned_bytes_ += count;
    return {bytes_.back().get(), static_cast<size_t>(count)};
}

void WeightStorage::keep(MappedFile file) { files_.push_back(std::move(file)); }

void WeightStorage::release(std::span<const std::byte> bytes) const {
    for (const MappedFile& file : files_) file.release(bytes);
}

std::span<const std::byte> MatrixView::bytes() const {
    const auto* first = is_quantised() ? blocks : reinterpret_cast<const std::byte*>(data);
    return {first, static_cast<size_t>(rows * row_bytes())};
}

void MatrixView::read_row(int64_t r, std::span<float> values) const {
    CHECK_EQ(static_cast<int64_t>(values.size()), cols);
    if (is_quantised()) return dequantise(*format, slice_rows(r, 1).bytes(), values);
    std::ranges::transform(row(r), values.begin(), bf16_to_float);
}

ModelWeights::ModelWeights() : storage(std::make_unique<WeightStorage>()) {}
ModelWeights::ModelWeights(ModelWeights&&) noexcept = default;
ModelWeights& ModelWeights::operator=(ModelWeights&&) noexcept = default;
ModelWeights::~ModelWeights() = default;

}  // namespace verbatim::reference
