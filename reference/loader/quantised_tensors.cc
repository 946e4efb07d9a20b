#include "reference/loader/quantised_tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "reference/loader/fp4_tensors.h"
#include "reference/loader/tensor_values.h"
#include "reference/model/block_bytes.h"
#include "reference/model/scaled_blocks.h"

namespace verbatim::reference {
namespace {

constexpr int32_t kWordBits = 32;  // of packed quants
constexpr int64_t kRowGrain = 16;

bool is_transposed(QuantMethod method) { return method == QuantMethod::kGptq || method == QuantMethod::kAwq; }

// One number for each block of rows and columns.
struct ScaleGrid {
    int64_t block_rows = 1;
    int64_t block_columns = 1;
    int64_t row_stride = 0;  // in numbers, from one block to the next
    int64_t column_stride = 0;

    [[nodiscard]] int64_t index(int64_t row, int64_t column) const {
        return row / block_rows * row_stride + column / block_columns * column_stride;
    }
};

int64_t num_blocks(int64_t count, int64_t block) { return (count + block - 1) / block; }

// What reading a block of a matrix needs.
struct QuantSource {
    const std::byte* quants = nullptr;
    int64_t rows = 0;
    int64_t cols = 0;
    int32_t bits = 8;  // a quant
    ScaleGrid grid;
    std::vector<float> scales;
    std::vector<uint8_t> zeros;   // as the scales; empty: the middle of the quants
    std::vector<int64_t> groups;  // of each column; empty: groups are neighbours
    // Writes the kScaledWeights quants from `column` on, without sign where they are packed.
    void (*read)(const QuantSource& source, int64_t row, int64_t column, uint8_t* quants) = nullptr;
};

uint32_t word_at(const std::byte* words, int64_t i) { return value_at<uint32_t>(words, i * int64_t{sizeof(uint32_t)}); }

void quants_of_bytes(const QuantSource& source, int64_t row, int64_t column, uint8_t* quants) {
    std::memcpy(quants, source.quants + row * source.cols + column, kScaledWeights);
}

// Quant `place` of a word, the lowest bits first.
uint8_t unpack(uint32_t word, int64_t place, int32_t bits) {
    return static_cast<uint8_t>(word >> (place * bits) & ((1U << bits) - 1));
}

// [rows, words of neighbouring columns]
void quants_of_packed_rows(const QuantSource& source, int64_t row, int64_t column, uint8_t* quants) {
    const int64_t per_word = kWordBits / source.bits;
    const int64_t first = (row * source.cols + column) / per_word;
    for (int64_t i = 0; i < kScaledWeights; ++i)
        quants[i] = unpack(word_at(source.quants, first + i / per_word), i % per_word, source.bits);
}

// [words of neighbouring columns, rows]
void quants_of_gptq(const QuantSource& source, int64_t row, int64_t column, uint8_t* quants) {
    const int64_t per_word = kWordBits / source.bits;
    for (int64_t i = 0; i < kScaledWeights; ++i) {
        const uint32_t word = word_at(source.quants, (column + i) / per_word * source.rows + row);
        quants[i] = unpack(word, (column + i) % per_word, source.bits);
    }
}

// Of eight neighbouring rows: where each one's quant is in the word.
constexpr std::array<int64_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

// [columns, words of neighbouring rows]
void quants_of_awq(const QuantSource& source, int64_t row, int64_t column, uint8_t* quants) {
    for (int64_t i = 0; i < kScaledWeights; ++i) {
        const uint32_t word = word_at(source.quants, ((column + i) * source.rows + row) / 8);
        quants[i] = unpack(word, kAwqPlaces[static_cast<size_t>(row % 8)], source.bits);
    }
}

class QuantisedReader {
public:
    QuantisedReader(const QuantisationConfig& config, const QuantisedTensors& tensors, std::string_view weight,
                    int64_t rows, int64_t cols)
        : config_(config), tensors_(tensors), weight_(weight) {
        source_.rows = rows;
        source_.cols = cols;
    }

    Result<QuantSource> read() {
        RETURN_IF_ERROR(read_quants());
        RETURN_IF_ERROR(read_scales());
        RETURN_IF_ERROR(read_zeros());
        RETURN_IF_ERROR(read_order());
        return std::move(source_);
    }

private:
    Status read_quants() {
        const TensorEntry& quants = *tensors_.quants;
        source_.quants = quants.bytes.data();
        const int64_t rows = source_.rows;
        const int64_t cols = source_.cols;
        if (is_transposed(config_.method)) {
            source_.bits = config_.bits;
            const int64_t per_word = kWordBits / source_.bits;
            if (rows % per_word != 0) return error("{}: {} rows, wanted a multiple of {}", quants.name, rows, per_word);
            const bool awq = config_.method == QuantMethod::kAwq;
            source_.read = awq ? quants_of_awq : quants_of_gptq;
            return expect_shape(quants, TensorDtype::kI32,
                                awq ? std::vector{cols, rows / per_word} : std::vector{cols / per_word, rows});
        }
        if (!quants.name.ends_with(".weight_packed")) {
            source_.read = quants_of_bytes;
            const bool fp8 = quants.dtype == TensorDtype::kF8E4M3;
            return expect_shape(quants, fp8 ? TensorDtype::kF8E4M3 : TensorDtype::kI8, {rows, cols});
        }
        if (!config_.has_integers)
            return error("{}: packed integers, but quantization_config names no weights of type int", weight_);
        if (tensors_.shape == nullptr) return error("{}: its weight_shape is missing", weight_);
        RETURN_IF_ERROR(check_stated_shape(*tensors_.shape, source_.rows, source_.cols));
        source_.read = quants_of_packed_rows;
        source_.bits = quants.shape.size() == 2 && quants.shape[1] * 4 == cols ? 8 : 4;
        return expect_shape(quants, TensorDtype::kI32, {rows, cols * source_.bits / kWordBits});
    }

    Status read_scales() {
        const TensorEntry& scales = *tensors_.scales;
        const bool are_powers = scales.dtype == TensorDtype::kU8 && tensors_.quants->dtype == TensorDtype::kF8E4M3 &&
                                config_.block_rows == 1 && config_.block_columns == kScaledWeights;
        if (!is_convertible(scales.dtype) && !are_powers)
            return error("{}: {}, wanted BF16, F16 or F32", scales.name, dtype_name(scales.dtype));
        const auto grid = grid_of(scales);
        if (!grid)
            return error("{}: shape {} is not that of the scales of a matrix of shape {} in this quantization_config",
                         scales.name, shape_text(scales.shape), shape_text(std::array{source_.rows, source_.cols}));
        source_.grid = *grid;
        if (grid->block_columns < source_.cols && grid->block_columns % kScaledWeights != 0)
            return error("{}: groups of {} columns, wanted a multiple of {}", scales.name, grid->block_columns,
                         kScaledWeights);
        source_.scales.resize(static_cast<size_t>(scales.num_elements()));
        if (are_powers) return read_powers(scales);
        convert_to_float(scales, source_.scales);
        return {};
    }

    // MXFP8: bytes e that stand for 2^(e − 127).
    Status read_powers(const TensorEntry& scales) {
        for (size_t i = 0; i < source_.scales.size(); ++i) {
            const uint8_t power = byte_at(scales.bytes.data(), static_cast<int64_t>(i));
            if (power == 255) return error("{}: a scale is NaN", scales.name);
            source_.scales[i] = std::ldexp(1.0F, power - 127);
        }
        return {};
    }

    // Empty: the shape is none of those that the method has.
    [[nodiscard]] std::optional<ScaleGrid> grid_of(const TensorEntry& scales) const {
        const int64_t rows = source_.rows;
        const int64_t cols = source_.cols;
        const int64_t columns = config_.block_columns == 0 ? cols : config_.block_columns;
        const int64_t groups = num_blocks(cols, columns);
        if (is_transposed(config_.method)) {
            if (scales.shape != std::vector{groups, rows}) return std::nullopt;
            return ScaleGrid{1, columns, 1, rows};
        }
        const int64_t row_groups = num_blocks(rows, config_.block_rows);
        const bool is_modelopts = config_.method == QuantMethod::kModelOpt && config_.block_rows > 1 &&
                                  scales.shape == std::vector<int64_t>{row_groups, 1, groups, 1};
        if (is_modelopts || (config_.block_columns != 0 && scales.shape == std::vector{row_groups, groups}))
            return ScaleGrid{config_.block_rows, columns, groups, 1};
        if (scales.shape == std::vector{rows} || scales.shape == std::vector{rows, int64_t{1}})
            return ScaleGrid{1, cols, 1, 0};
        if (scales.num_elements() == 1) return ScaleGrid{rows, cols, 0, 0};
        return std::nullopt;
    }

    Status read_zeros() {
        if (tensors_.zeros == nullptr) {
            if (is_transposed(config_.method)) return error("{}: its qzeros are missing", weight_);
            return {};
        }
        const TensorEntry& zeros = *tensors_.zeros;
        if (source_.read == quants_of_bytes) {
            RETURN_IF_ERROR(expect_shape(zeros, TensorDtype::kI8, tensors_.scales->shape));
            if (std::ranges::all_of(zeros.bytes, [](std::byte zero) { return zero == std::byte{0}; })) return {};
            return error("{}: 8 bits with zero points: not supported", zeros.name);
        }
        RETURN_IF_ERROR(unpack_zeros(zeros));
        const int32_t middle = 1 << (source_.bits - 1);
        if (std::ranges::all_of(source_.zeros, [&](uint8_t zero) { return zero == middle; }))
            source_.zeros.clear();
        else if (source_.bits == 8)
            return error("{}: 8 bits with zero points: not supported", zeros.name);
        return {};
    }

    // Zero points lie as the scales do, but for eight (or four) rows in a word.
    Status unpack_zeros(const TensorEntry& zeros) {
        const int64_t per_word = kWordBits / source_.bits;
        const int64_t groups = num_blocks(source_.cols, source_.grid.block_columns);
        const int64_t row_words = num_blocks(source_.rows, per_word);
        const bool transposed = is_transposed(config_.method);
        if (source_.grid.block_rows != 1) return error("{}: zero points of blocks: not supported", zeros.name);
        RETURN_IF_ERROR(expect_shape(zeros, TensorDtype::kI32,
                                     transposed ? std::vector{groups, row_words} : std::vector{row_words, groups}));
        source_.zeros.resize(source_.scales.size());
        for (int64_t row = 0; row < source_.rows; ++row) {
            const auto place = static_cast<size_t>(row % per_word);
            for (int64_t group = 0; group < groups; ++group) {
                const int64_t word = transposed ? group * row_words + row / per_word : row / per_word * groups + group;
                const int64_t at = config_.method == QuantMethod::kAwq ? kAwqPlaces[place] : row % per_word;
                const int32_t zero = unpack(word_at(zeros.bytes.data(), word), at, source_.bits) + config_.zero_offset;
                const int64_t i = source_.grid.index(row, group * source_.grid.block_columns);
                // 256 is no byte, and no middle of 8 bits either.
                source_.zeros[static_cast<size_t>(i)] = static_cast<uint8_t>(std::min(zero, 255));
            }
        }
        return {};
    }

    // The group of each column, where columns were put in order of their weight in a calibration (act-order).
    Status read_order() {
        if (tensors_.order == nullptr) return {};
        const TensorEntry& order = *tensors_.order;
        RETURN_IF_ERROR(expect_shape(order, TensorDtype::kI32, {source_.cols}));
        const int64_t num_groups = num_blocks(source_.cols, source_.grid.block_columns);
        bool in_order = true;
        for (int64_t column = 0; column < source_.cols; ++column) {
            const auto group = static_cast<int32_t>(word_at(order.bytes.data(), column));
            if (group < 0 || group >= num_groups)
                return error("{}: column {} is of group {}, there are {}", order.name, column, group, num_groups);
            in_order &= group == column / source_.grid.block_columns;
            source_.groups.push_back(group);
        }
        if (in_order) source_.groups.clear();
        if (!in_order && source_.read == quants_of_bytes)
            return error("{}: columns of bytes in another order than their groups are not supported", order.name);
        return {};
    }

    const QuantisationConfig& config_;
    const QuantisedTensors& tensors_;
    std::string_view weight_;
    QuantSource source_;
};

const BlockFormat& format_of(const QuantSource& source, const QuantisedTensors& tensors) {
    if (!source.groups.empty()) return kOrderedIntegers;
    if (tensors.quants->dtype == TensorDtype::kF8E4M3) return kScaledFp8;
    if (source.bits == 8) return kScaledInt8;
    return source.zeros.empty() ? kScaledInt4 : kScaledInt4Zero;
}

// scale · (q − zero) of each column's group, rounded once.
void write_ordered_row(const QuantSource& source, int64_t row, std::byte* out) {
    uint8_t quants[kScaledWeights];
    const int32_t middle = 1 << (source.bits - 1);
    for (int64_t column = 0; column < source.cols; ++column) {
        if (column % kScaledWeights == 0) source.read(source, row, column, quants);
        const int64_t group = source.groups[static_cast<size_t>(column)];
        const auto block = static_cast<size_t>(source.grid.index(row, group * source.grid.block_columns));
        const int32_t zero = source.zeros.empty() ? middle : source.zeros[block];
        const float value = source.scales[block] * static_cast<float>(quants[column % kScaledWeights] - zero);
        std::memcpy(out + column * int64_t{sizeof(float)}, &value, sizeof(float));
    }
}

void write_row(const QuantSource& source, const BlockFormat& format, int64_t row, std::byte* out) {
    if (&format == &kOrderedIntegers) return write_ordered_row(source, row, out);
    uint8_t quants[kScaledWeights];
    for (int64_t column = 0; column < source.cols; column += kScaledWeights, out += format.num_bytes) {
        source.read(source, row, column, quants);
        const auto block = static_cast<size_t>(source.grid.index(row, column));
        std::byte* to = out + sizeof(float);
        std::memcpy(out, &source.scales[block], sizeof(float));
        if (&format == &kScaledInt4Zero) *to++ = static_cast<std::byte>(source.zeros[block]);
        if (source.bits == 4) {
            for (int32_t j = 0; j < kScaledWeights / 2; ++j)
                to[j] = static_cast<std::byte>(quants[2 * j] | quants[2 * j + 1] << 4);
        } else {
            // Packed quants are stored without sign, 128 above their values.
            const uint8_t flip = source.read == quants_of_bytes ? 0 : 128;
            for (int32_t i = 0; i < kScaledWeights; ++i) to[i] = static_cast<std::byte>(quants[i] ^ flip);
        }
    }
}

const TensorEntry* tensor_named(const TensorsByName& tensors, const std::string& name) {
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
}

}  // namespace

std::optional<QuantisedTensors> find_quantised(const QuantisationConfig& config, const TensorsByName& tensors,
                                               std::string_view weight) {
    constexpr std::string_view kWeight = ".weight";
    if (!weight.ends_with(kWeight)) return std::nullopt;
    const std::string base(weight.substr(0, weight.size() - kWeight.size()));
    QuantisedTensors found;
    const auto take = [&](std::string_view part) {
        const TensorEntry* tensor = tensor_named(tensors, base + std::string(part));
        if (tensor != nullptr) found.names.push_back(tensor->name);
        return tensor;
    };
    if (is_transposed(config.method)) {
        found.quants = take(".qweight");
        if (found.quants == nullptr) return std::nullopt;
        found.scales = take(".scales");
        found.zeros = take(".qzeros");
        found.order = take(".g_idx");
        return found;
    }
    found.quants = take(".weight_packed");
    if (found.quants == nullptr) found.quants = take(".weight");
    if (found.quants == nullptr || is_convertible(found.quants->dtype)) return std::nullopt;
    found.scales = take(".weight_scale_inv");
    if (found.scales == nullptr) found.scales = take(".weight_scale");
    found.zeros = take(".weight_zero_point");
    found.shape = take(".weight_shape");
    found.order = take(".weight_g_idx");
    found.global_scale = take(config.method == QuantMethod::kModelOpt ? ".weight_scale_2" : ".weight_global_scale");
    found.input_scale = take(".input_scale");
    if (found.input_scale == nullptr) found.input_scale = take(".activation_scale");
    for (const std::string_view part : {".input_global_scale", ".input_zero_point"}) take(part);
    return found;
}

Result<float> static_scale_of(const QuantisedTensors& tensors, std::string_view weight) {
    if (tensors.input_scale == nullptr) return error("{}: its input_scale is missing", weight);
    const TensorEntry& entry = *tensors.input_scale;
    if (!is_convertible(entry.dtype) || entry.num_elements() != 1)
        return error("{}: {} of shape {}, wanted one number in BF16, F16 or F32", entry.name, dtype_name(entry.dtype),
                     shape_text(entry.shape));
    float scale = 0.0F;
    convert_to_float(entry, std::span(&scale, 1));
    if (!(scale > 0.0F && std::isfinite(scale))) return error("{}: is {}, wanted a positive number", entry.name, scale);
    return scale;
}

bool is_of_kv_cache(const QuantisationConfig& config, std::string_view tensor) {
    if (config.method != QuantMethod::kModelOpt) return false;
    return tensor.ends_with(".k_scale") || tensor.ends_with(".v_scale");
}

Status expect_shape(const TensorEntry& got, TensorDtype dtype, const std::vector<int64_t>& shape) {
    if (got.dtype == dtype && got.shape == shape) return {};
    return error("{}: {} of shape {}, wanted {} of shape {}", got.name, dtype_name(got.dtype), shape_text(got.shape),
                 dtype_name(dtype), shape_text(shape));
}

Status check_stated_shape(const TensorEntry& stated, int64_t rows, int64_t cols) {
    RETURN_IF_ERROR(expect_shape(stated, TensorDtype::kI64, {2}));
    const std::array says = {value_at<int64_t>(stated.bytes.data(), 0), value_at<int64_t>(stated.bytes.data(), 8)};
    if (says == std::array{rows, cols}) return {};
    return error("{}: says {}, config.json wants {}", stated.name, shape_text(says),
                 shape_text(std::array{rows, cols}));
}

MatrixView make_blocks(const BlockFormat& format, int64_t rows, int64_t cols, WorkerPool& pool, WeightStorage& storage,
                       const std::function<void(int64_t row, std::byte* out)>& write_row) {
    const int64_t row_bytes = format.row_bytes(cols);
    const std::span<std::byte> blocks = storage.allocate_bytes(rows * row_bytes);
    pool.for_ranges(rows, kRowGrain, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) write_row(row, blocks.data() + row * row_bytes);
    });
    return MatrixView{nullptr, rows, cols, &format, blocks.data()};
}

Result<MatrixView> to_blocks(const QuantisationConfig& config, const QuantisedTensors& tensors, std::string_view weight,
                             int64_t rows, int64_t cols, WorkerPool& pool, WeightStorage& storage) {
    if (tensors.quants == nullptr) return error("{}: its quants are missing", weight);
    if (tensors.scales == nullptr) return error("{}: its scales are missing", weight);
    if (cols % kScaledWeights != 0)
        return error("{}: quantised rows of {} weights, wanted a multiple of {}", weight, cols, kScaledWeights);
    if (is_fp4(tensors)) return fp4_to_blocks(config, tensors, weight, rows, cols, pool, storage);
    ASSIGN_OR_RETURN(const QuantSource source, QuantisedReader(config, tensors, weight, rows, cols).read());
    const BlockFormat& format = format_of(source, tensors);
    MatrixView blocks = make_blocks(format, rows, cols, pool, storage,
                                    [&](int64_t row, std::byte* out) { write_row(source, format, row, out); });
    if (&format == &kScaledFp8) blocks.activations = config.activations;
    return blocks;
}

}  // namespace verbatim::reference
