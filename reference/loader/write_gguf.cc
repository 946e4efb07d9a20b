#include "reference/loader/write_gguf.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/base/check.h"
#include "reference/loader/gguf_rope.h"
#include "reference/loader/gguf_tensors.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/math64.h"

namespace verbatim::reference {
namespace {

constexpr std::string_view kVectorFormat = "F32";

// Row `r` of the file's tensor. `scratch` has the same size.
void read_file_row(const GgufPlace& place, int64_t r, std::span<float> scratch, std::span<float> values) {
    const int64_t rows = place.matrices.front()->rows;
    const int64_t wanted = place.rows.in_checkpoint(r);
    const MatrixView& view = *place.matrices[static_cast<size_t>(wanted / rows)];
    if (!place.columns.changes()) return view.read_row(wanted % rows, values);
    view.read_row(wanted % rows, scratch);
    for (size_t c = 0; c < values.size(); ++c)
        values[c] = scratch[static_cast<size_t>(place.columns.in_checkpoint(static_cast<int64_t>(c)))];
}

float in_file(GgufChange change, float value) {
    switch (change) {
        case GgufChange::kNegativeExp: return static_cast<float>(-exp_f64(static_cast<double>(value)));
        case GgufChange::kPlusOne: return 1.0F + value;
        case GgufChange::kNone: break;
    }
    return value;
}

Status quantise_row(const BlockFormat& format, std::span<const float> values, std::span<std::byte> blocks,
                    std::string_view name) {
    if (format.name == kVectorFormat) {
        std::ranges::copy(std::as_bytes(values), blocks.begin());
        return {};
    }
    if (format.name == "BF16") {
        for (size_t i = 0; i < values.size(); ++i) {
            const uint16_t bits = round_to_bf16(values[i]);
            std::copy_n(reinterpret_cast<const std::byte*>(&bits), sizeof(bits), blocks.data() + i * sizeof(bits));
        }
        return {};
    }
    const auto fits = [](float value) { return std::abs(value) <= 65504.0F; };  // NaN does not
    if (!std::ranges::all_of(values, fits))
        return error("{} has a value that is not finite, or beyond the 65504 that a scale can be", name);
    quantise(format, values, blocks);
    return {};
}

Status write_matrix(const GgufPlace& place, const BlockFormat& format, const WriteBytes& write) {
    const int64_t cols = place.shape.back();
    std::vector<float> values(static_cast<size_t>(cols));
    std::vector<float> scratch = values;
    std::string row(static_cast<size_t>(format.row_bytes(cols)), '\0');
    for (int64_t r = 0; r < place.num_elements() / cols; ++r) {
        read_file_row(place, r, scratch, values);
        RETURN_IF_ERROR(quantise_row(format, values, std::as_writable_bytes(std::span(row)), place.name));
        RETURN_IF_ERROR(write(row));
    }
    return {};
}

Status write_vector(const GgufPlace& place, const WriteBytes& write) {
    std::string bytes;
    const int64_t width = place.num_elements() / place.shape.front();
    for (int64_t i = 0; i < place.num_elements(); ++i) {
        const int64_t from = place.rows.in_checkpoint(i / width) * width + i % width;
        const float value = in_file(place.change, (*place.vector)[static_cast<size_t>(from)]);
        bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    return write(bytes);
}

// Empty without a scaling of Llama 3.1.
std::vector<float> divisors_of(const ModelConfig& config) {
    for (const LayerConfig& layer : config.layers)
        if (layer.attention && layer.attention->rope.kind == RopeKind::kLlama3)
            return rope_divisors(layer.attention->rope);
    return {};
}

// llama.cpp's choice where rows are not whole blocks of 256.
std::string_view fallback_of(std::string_view format) {
    if (format == "Q4_K") return "Q5_0";
    return format == "Q6_K" ? "Q8_0" : format;
}

const BlockFormat& format_of(const GgufPlace& place, const BlockFormat& wanted, bool is_tied) {
    if (place.vector || place.is_float) return *find_block_format(kVectorFormat);
    const bool is_head = place.name == (is_tied ? "token_embd.weight" : "output.weight");
    const std::string_view name = is_head && wanted.name == "Q4_K" ? "Q6_K" : wanted.name;
    const BlockFormat& format = *find_block_format(name);
    return place.shape.back() % format.num_weights == 0 ? format : *find_block_format(fallback_of(name));
}

Status pad(const GgufLayout& layout, const WriteBytes& write) {
    const auto rest = static_cast<size_t>(layout.num_bytes() % kGgufAlignment);
    return rest == 0 ? Status{} : write(std::string(kGgufAlignment - rest, '\0'));
}

}  // namespace

Status write_gguf(const ModelConfig& config, ModelWeights& weights, const BlockFormat& format,
                  const GgufMetadata& metadata, const WriteBytes& write) {
    const std::vector<GgufPlace> places = gguf_places(config, weights);
    std::vector<GgufLayout> layouts;
    for (const GgufPlace& place : places) {
        const BlockFormat& of_place = format_of(place, format, config.tie_word_embeddings);
        if (place.shape.back() % of_place.num_weights != 0)
            return error(
                "{} has rows of {} elements, wanted whole blocks of {}, which has {}: no GGUF file of that type can "
                "hold this model; bf16 has no blocks",
                place.name, place.shape.back(), of_place.name, of_place.num_weights);
        layouts.push_back({place.name, place.shape, &of_place});
    }
    const std::vector<float> divisors = divisors_of(config);
    if (!divisors.empty())
        layouts.push_back(
            {std::string(kRopeFreqs), {static_cast<int64_t>(divisors.size())}, find_block_format(kVectorFormat)});
    RETURN_IF_ERROR(write(gguf_prefix(metadata, layouts)));
    for (size_t i = 0; i < places.size(); ++i) {
        RETURN_IF_ERROR(places[i].vector ? write_vector(places[i], write)
                                         : write_matrix(places[i], *layouts[i].format, write));
        RETURN_IF_ERROR(pad(layouts[i], write));
    }
    if (divisors.empty()) return {};
    const std::span<const std::byte> bytes = std::as_bytes(std::span(divisors));
    RETURN_IF_ERROR(write({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
    return pad(layouts.back(), write);
}

}  // namespace verbatim::reference
