#include "reference/loader/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/base/check.h"
#include "files/strict_json.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxRank = 8;

struct DtypeInfo {
    std::string_view name;
    int64_t bytes;
};
// Indexed by TensorDtype.
constexpr std::array<DtypeInfo, 15> kDtypes = {{{"BOOL", 1},
                                                {"U8", 1},
                                                {"I8", 1},
                                                {"F8_E4M3", 1},
                                                {"F8_E5M2", 1},
                                                {"U16", 2},
                                                {"I16", 2},
                                                {"F16", 2},
                                                {"BF16", 2},
                                                {"U32", 4},
                                                {"I32", 4},
                                                {"F32", 4},
                                                {"U64", 8},
                                                {"I64", 8},
                                                {"F64", 8}}};

std::optional<TensorDtype> dtype_from_name(std::string_view name) {
    for (size_t i = 0; i < kDtypes.size(); ++i)
        if (kDtypes[i].name == name) return static_cast<TensorDtype>(i);
    return std::nullopt;
}

struct Place {  // of one tensor's data, from the start of the data section
    uint64_t begin = 0;
    uint64_t end = 0;
};

struct Located {
    TensorEntry entry;
    Place place;
};

// `where` is "FILE: tensor "NAME"".
Result<TensorDtype> parse_dtype(const Json& info, const std::string& where) {
    if (!info.contains("dtype") || !info["dtype"].is_string())
        return error("{}: got no dtype, wanted a string like \"BF16\"", where);
    const auto dtype = dtype_from_name(info["dtype"].get_ref<const std::string&>());
    if (!dtype) return error("{}: dtype {} is not one of the format's", where, quote_json(info["dtype"]));
    return *dtype;
}

Result<std::vector<int64_t>> parse_shape(const Json& info, const std::string& where) {
    if (!info.contains("shape") || !info["shape"].is_array())
        return error("{}: got no shape, wanted a list of extents", where);
    if (info["shape"].size() > kMaxRank)
        return error("{}: shape has {} extents, wanted at most {}", where, info["shape"].size(), kMaxRank);
    std::vector<int64_t> shape;
    for (const Json& extent : info["shape"]) {
        if (!extent.is_number_unsigned() || extent.get<uint64_t>() > uint64_t{1} << 62)
            return error("{}: shape {} has an extent that is not a natural number", where, quote_json(info["shape"]));
        shape.push_back(static_cast<int64_t>(extent.get<uint64_t>()));
    }
    return shape;
}

Result<Place> parse_place(const Json& info, uint64_t data_bytes, const std::string& where) {
    if (!info.contains("data_offsets") || !info["data_offsets"].is_array() || info["data_offsets"].size() != 2 ||
        !info["data_offsets"][0].is_number_unsigned() || !info["data_offsets"][1].is_number_unsigned())
        return error("{}: got no data_offsets, wanted [begin, end]", where);
    const Place place{info["data_offsets"][0].get<uint64_t>(), info["data_offsets"][1].get<uint64_t>()};
    if (place.begin > place.end) return error("{}: data_offsets [{}, {}] run backwards", where, place.begin, place.end);
    if (place.end > data_bytes)
        return error("{}: data_offsets [{}, {}] leave the file, which has {} bytes of data: is it truncated?", where,
                     place.begin, place.end, data_bytes);
    return place;
}

// The bytes that shape and dtype ask for; empty on overflow.
std::optional<uint64_t> wanted_bytes(std::span<const int64_t> shape, TensorDtype dtype) {
    auto bytes = static_cast<uint64_t>(dtype_bytes(dtype));
    for (const int64_t extent : shape)
        if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) return std::nullopt;
    return bytes;
}

Result<Located> parse_tensor(const std::string& name, const Json& info, uint64_t data_bytes, std::string_view source) {
    const std::string where = fmt::format("{}: tensor {}", source, quote_text(name));
    if (!info.is_object()) return error("{}: got {}, wanted an object", where, quote_json(info));
    for (const auto& [key, value] : info.get_ref<const Json::object_t&>())
        if (key != "dtype" && key != "shape" && key != "data_offsets")
            return error("{}: key {} is not part of the format", where, quote_text(key));
    Located located;
    located.entry.name = name;
    ASSIGN_OR_RETURN(located.entry.dtype, parse_dtype(info, where));
    ASSIGN_OR_RETURN(located.entry.shape, parse_shape(info, where));
    ASSIGN_OR_RETURN(located.place, parse_place(info, data_bytes, where));
    const auto wanted = wanted_bytes(located.entry.shape, located.entry.dtype);
    const uint64_t got = located.place.end - located.place.begin;
    if (!wanted || *wanted != got)
        return error("{}: shape {} of {} takes {} bytes, data_offsets give {}", where, shape_text(located.entry.shape),
                     dtype_name(located.entry.dtype), wanted ? fmt::to_string(*wanted) : "more than 2^64", got);
    return located;
}

Status check_metadata(const Json& metadata, std::string_view source) {
    if (!metadata.is_object()) return error("{}: __metadata__ is not an object", source);
    for (const auto& [key, value] : metadata.get_ref<const Json::object_t&>())
        if (!value.is_string()) return error("{}: __metadata__ {} is not a string", source, quote_text(key));
    return {};
}

// Sorts by place and refuses holes and overlaps.
Status check_coverage(std::vector<Located>& tensors, uint64_t data_bytes, std::string_view source) {
    std::sort(tensors.begin(), tensors.end(), [](const Located& a, const Located& b) {
        return std::tie(a.place.begin, a.place.end, a.entry.name) < std::tie(b.place.begin, b.place.end, b.entry.name);
    });
    uint64_t covered = 0;
    for (const Located& tensor : tensors) {
        if (tensor.place.begin != covered)
            return error("{}: tensor {} begins at byte {} of the data, wanted {}: {}", source,
                         quote_text(tensor.entry.name), tensor.place.begin, covered,
                         tensor.place.begin < covered ? "it overlaps another" : "there is a hole before it");
        covered = tensor.place.end;
    }
    if (covered != data_bytes)
        return error("{}: {} bytes of data belong to no tensor (after byte {})", source, data_bytes - covered, covered);
    return {};
}

Result<Json> parse_header(std::span<const std::byte> file, uint64_t& data_begin, std::string_view source) {
    if (file.size() < kLengthBytes)
        return error("{}: has {} bytes, wanted at least {}: this is no safetensors file", source, file.size(),
                     kLengthBytes);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, file.data(), kLengthBytes);
    if (header_bytes > kMaxHeaderBytes || header_bytes > file.size() - kLengthBytes)
        return error("{}: header of {} bytes does not fit into the file's {}: truncated, or no safetensors file",
                     source, header_bytes, file.size());
    const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_bytes);
    if (!text.starts_with('{')) return error("{}: the header does not begin with '{{': no safetensors file", source);
    ASSIGN_OR_RETURN(Json header, parse_strict_json(text, fmt::format("{}: header", source)));
    data_begin = kLengthBytes + header_bytes;
    return header;
}

Result<std::vector<TensorEntry>> tensors_of(const Json& header, uint64_t data_begin, std::span<const std::byte> file,
                                            std::string_view source) {
    const uint64_t data_bytes = file.size() - data_begin;
    std::vector<Located> tensors;
    for (const auto& [name, info] : header.get_ref<const Json::object_t&>()) {
        if (name == "__metadata__") {
            RETURN_IF_ERROR(check_metadata(info, source));
            continue;
        }
        ASSIGN_OR_RETURN(Located located, parse_tensor(name, info, data_bytes, source));
        tensors.push_back(std::move(located));
    }
    RETURN_IF_ERROR(check_coverage(tensors, data_bytes, source));
    std::vector<TensorEntry> entries;
    for (Located& tensor : tensors) {
        tensor.entry.bytes = file.subspan(data_begin + tensor.place.begin, tensor.place.end - tensor.place.begin);
        entries.push_back(std::move(tensor.entry));
    }
    return entries;
}

Result<SafetensorsHeader> header_of(const Json& header, uint64_t data_begin, std::span<const std::byte> file,
                                    std::string_view source) {
    SafetensorsHeader read;
    read.text = {reinterpret_cast<const char*>(file.data()) + kLengthBytes, data_begin - kLengthBytes};
    const auto metadata = header.find("__metadata__");
    if (metadata == header.end()) return read;
    RETURN_IF_ERROR(check_metadata(*metadata, source));
    read.metadata = metadata->get<SafetensorsMetadata>();
    return read;
}

}  // namespace

std::string_view dtype_name(TensorDtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)).name; }
int64_t dtype_bytes(TensorDtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)).bytes; }
std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file, std::string_view source) {
    uint64_t data_begin = 0;
    ASSIGN_OR_RETURN(const Json header, parse_header(file, data_begin, source));
    return tensors_of(header, data_begin, file, source);
}

Result<SafetensorsHeader> safetensors_header(std::span<const std::byte> file, std::string_view source) {
    uint64_t data_begin = 0;
    ASSIGN_OR_RETURN(const Json header, parse_header(file, data_begin, source));
    return header_of(header, data_begin, file, source);
}

Result<SafetensorsFile> read_safetensors(std::span<const std::byte> file, std::string_view source) {
    uint64_t data_begin = 0;
    ASSIGN_OR_RETURN(const Json header, parse_header(file, data_begin, source));
    SafetensorsFile read;
    ASSIGN_OR_RETURN(read.tensors, tensors_of(header, data_begin, file, source));
    ASSIGN_OR_RETURN(read.header, header_of(header, data_begin, file, source));
    return read;
}

std::string safetensors_prefix(std::span<const TensorLayout> tensors, const SafetensorsMetadata& metadata) {
    Json header = Json::object();
    header["__metadata__"] = metadata;
    uint64_t offset = 0;
    for (const TensorLayout& tensor : tensors) {
        const auto bytes = wanted_bytes(tensor.shape, tensor.dtype);
        CHECK(bytes.has_value(), "{} {}", tensor.name, shape_text(tensor.shape));
        Json& entry = header[tensor.name];
        entry["dtype"] = dtype_name(tensor.dtype);
        entry["shape"] = tensor.shape;
        entry["data_offsets"] = std::array{offset, offset + *bytes};
        offset += *bytes;
    }
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');  // so that the data is aligned
    const uint64_t length = text.size();
    std::string prefix(reinterpret_cast<const char*>(&length), kLengthBytes);
    return prefix + text;
}

}  // namespace verbatim::reference
