#include "reference/loader/gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>

#include "engine/base/check.h"
#include "files/strict_json.h"
#include "reference/model/shape.h"

namespace verbatim::reference {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr int64_t kMaxExtents = 4;
constexpr size_t kMaxNameBytes = 64;  // of a tensor, in bytes: the format's own limit
constexpr int64_t kMaxAlignment = 1 << 16;
constexpr int64_t kMaxParts = 4096;

enum : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kNumTypes };
// Bytes of a value of the type; 0: the length is in the file.
constexpr std::array<size_t, kNumTypes> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Types of ggml without a formula here, for errors.
struct OtherType {
    uint32_t number;
    std::string_view name;
};
constexpr std::array<OtherType, 17> kOtherTypes = {{{9, "Q8_1"},
                                                    {15, "Q8_K"},
                                                    {16, "IQ2_XXS"},
                                                    {17, "IQ2_XS"},
                                                    {18, "IQ3_XXS"},
                                                    {19, "IQ1_S"},
                                                    {21, "IQ3_S"},
                                                    {22, "IQ2_S"},
                                                    {24, "I8"},
                                                    {25, "I16"},
                                                    {26, "I32"},
                                                    {27, "I64"},
                                                    {28, "F64"},
                                                    {29, "IQ1_M"},
                                                    {34, "TQ1_0"},
                                                    {35, "TQ2_0"},
                                                    {40, "NVFP4"}}};

std::string type_text(uint32_t number) {
    const auto* other = std::ranges::find(kOtherTypes, number, &OtherType::number);
    return other == kOtherTypes.end() ? fmt::format("number {}", number) : std::string(other->name);
}

template <typename T>
T load(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    return value;
}

double number_of(uint32_t type, const std::byte* bytes) {
    switch (type) {
        case kU8: return load<uint8_t>(bytes);
        case kI8: return load<int8_t>(bytes);
        case kU16: return load<uint16_t>(bytes);
        case kI16: return load<int16_t>(bytes);
        case kU32: return load<uint32_t>(bytes);
        case kI32: return load<int32_t>(bytes);
        case kF32: return load<float>(bytes);
        case kBool: return load<uint8_t>(bytes) != 0 ? 1 : 0;
        case kU64: return static_cast<double>(load<uint64_t>(bytes));
        case kI64: return static_cast<double>(load<int64_t>(bytes));
        case kF64: return load<double>(bytes);
        default: CHECK(false, "type {}", type);
    }
}

// Reads the header from front to back; no read leaves the file.
class Cursor {
public:
    Cursor(std::span<const std::byte> file, std::string_view source) : file_(file), source_(source) {}

    [[nodiscard]] size_t place() const { return place_; }
    [[nodiscard]] size_t rest() const { return file_.size() - place_; }

    Result<std::span<const std::byte>> bytes(uint64_t count, std::string_view what) {
        if (count > rest())
            return error("{}: {} of {} bytes at byte {} leaves the file, which has {}: is it truncated?", source_, what,
                         count, place_, file_.size());
        place_ += count;
        return file_.subspan(place_ - count, count);
    }
    template <typename T>
    Result<T> take(std::string_view what) {
        ASSIGN_OR_RETURN(const auto from, bytes(sizeof(T), what));
        return load<T>(from.data());
    }
    Result<std::string_view> string(std::string_view what) {
        ASSIGN_OR_RETURN(const auto length, take<uint64_t>(what));
        ASSIGN_OR_RETURN(const auto text, bytes(length, what));
        return std::string_view(reinterpret_cast<const char*>(text.data()), text.size());
    }
    // A number of things, each of which takes at least `least` bytes of the file.
    Result<uint64_t> count(size_t least, std::string_view what) {
        ASSIGN_OR_RETURN(const auto number, take<uint64_t>(what));
        if (number > rest() / least)
            return error("{}: {} {} at byte {} do not fit into the file's {} bytes", source_, number, what,
                         place_ - sizeof(uint64_t), file_.size());
        return number;
    }

private:
    std::span<const std::byte> file_;
    std::string_view source_;
    size_t place_ = 0;
};

Result<GgufValue> read_scalar(Cursor& cursor, uint32_t type, const std::string& where) {
    if (type == kString) {
        ASSIGN_OR_RETURN(const std::string_view text, cursor.string("a string"));
        return GgufValue(text);
    }
    ASSIGN_OR_RETURN(const auto bytes, cursor.bytes(kTypeBytes[type], "a value"));
    if (type == kF32 || type == kF64) return GgufValue(number_of(type, bytes.data()));
    if (type == kBool) return GgufValue(load<uint8_t>(bytes.data()) != 0);
    if (type == kI64) return GgufValue(load<int64_t>(bytes.data()));
    if (type != kU64) return GgufValue(static_cast<int64_t>(number_of(type, bytes.data())));
    const auto value = load<uint64_t>(bytes.data());
    if (value > INT64_MAX) return error("{} = {}, wanted less than 2^63", where, value);
    return GgufValue(static_cast<int64_t>(value));
}

Result<GgufValue> read_array(Cursor& cursor, const std::string& where) {
    ASSIGN_OR_RETURN(const auto type, cursor.take<uint32_t>("an array's type"));
    if (type >= kNumTypes || type == kArray)
        return error("{}: an array of type {}, wanted numbers, truth values or strings", where, type);
    if (type != kString) {
        ASSIGN_OR_RETURN(const uint64_t count, cursor.count(kTypeBytes[type], "array elements"));
        ASSIGN_OR_RETURN(const auto bytes, cursor.bytes(count * kTypeBytes[type], "an array"));
        return GgufValue(GgufNumbers{type, bytes});
    }
    ASSIGN_OR_RETURN(const uint64_t count, cursor.count(sizeof(uint64_t), "strings"));
    GgufStrings strings;
    for (uint64_t i = 0; i < count; ++i) {
        ASSIGN_OR_RETURN(const std::string_view text, cursor.string("a string of an array"));
        strings.push_back(text);
    }
    return GgufValue(std::move(strings));
}

Status read_metadata(Cursor& cursor, uint64_t count, std::string_view source, GgufMetadata& metadata) {
    for (uint64_t i = 0; i < count; ++i) {
        ASSIGN_OR_RETURN(const std::string_view key, cursor.string("a key"));
        const std::string where = fmt::format("{}: {}", source, quote_text(key));
        ASSIGN_OR_RETURN(const auto type, cursor.take<uint32_t>("a value's type"));
        if (type >= kNumTypes) return error("{}: value type {} is not one of the format's", where, type);
        ASSIGN_OR_RETURN(GgufValue value,
                         type == kArray ? read_array(cursor, where) : read_scalar(cursor, type, where));
        if (!metadata.emplace(key, std::move(value)).second) return error("{}: the key occurs twice", where);
    }
    return {};
}

struct LocatedTensor {
    GgufTensor tensor;
    uint64_t offset = 0;
    uint64_t num_bytes = 0;
};

Result<LocatedTensor> read_tensor(Cursor& cursor, std::string_view source) {
    LocatedTensor located;
    GgufTensor& tensor = located.tensor;
    ASSIGN_OR_RETURN(tensor.name, cursor.string("a tensor's name"));
    const std::string where = fmt::format("{}: tensor {}", source, quote_text(tensor.name));
    if (tensor.name.size() > kMaxNameBytes)
        return error("{}: the name has {} bytes, wanted at most {}", where, tensor.name.size(), kMaxNameBytes);
    ASSIGN_OR_RETURN(const auto rank, cursor.take<uint32_t>("a tensor's rank"));
    if (rank < 1 || rank > kMaxExtents) return error("{}: {} extents, wanted 1 to {}", where, rank, kMaxExtents);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {
        ASSIGN_OR_RETURN(const auto extent, cursor.take<uint64_t>("a tensor's extent"));
        if (extent == 0 || __builtin_mul_overflow(elements, extent, &elements) || elements > uint64_t{1} << 56)
            return error("{}: extent {} is {}: wanted extents from 1, at most 2^56 elements", where, i, extent);
        tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(extent));
    }
    ASSIGN_OR_RETURN(const auto type, cursor.take<uint32_t>("a tensor's type"));
    tensor.format = find_block_format(type);
    if (tensor.format == nullptr)
        return error("{}: type {} is not supported: wanted one of {}", where, type_text(type), block_format_names());
    if (tensor.shape.back() % tensor.format->num_weights != 0)
        return error("{}: rows of {} elements are not whole blocks of {}, which has {}", where, tensor.shape.back(),
                     tensor.format->name, tensor.format->num_weights);
    ASSIGN_OR_RETURN(located.offset, cursor.take<uint64_t>("a tensor's offset"));
    located.num_bytes =
        elements / static_cast<uint64_t>(tensor.format->num_weights) * static_cast<uint64_t>(tensor.format->num_bytes);
    return located;
}

Result<uint64_t> alignment_of(const GgufMetadata& metadata, std::string_view source) {
    const auto found = metadata.find("general.alignment");
    if (found == metadata.end()) return kGgufAlignment;
    const auto* value = std::get_if<int64_t>(&found->second);
    if (value == nullptr || *value < 1 || *value > kMaxAlignment || (*value & (*value - 1)) != 0)
        return error("{}: general.alignment = {}, wanted a power of two up to {}", source, value_text(found->second),
                     kMaxAlignment);
    return static_cast<uint64_t>(*value);
}

uint64_t align(uint64_t place, uint64_t alignment) { return (place + alignment - 1) / alignment * alignment; }

// Sorts by place and points the tensors at their bytes.
Status place_tensors(std::vector<LocatedTensor>& tensors, std::span<const std::byte> file, uint64_t header_bytes,
                     uint64_t alignment, std::string_view source) {
    std::ranges::sort(tensors, {}, &LocatedTensor::offset);
    const uint64_t begin = std::min<uint64_t>(align(header_bytes, alignment), file.size());
    const std::span<const std::byte> data = file.subspan(begin);
    uint64_t next = 0;
    for (LocatedTensor& located : tensors) {
        const std::string where = fmt::format("{}: tensor {}", source, quote_text(located.tensor.name));
        if (located.offset != next)
            return error("{}: begins at byte {} of the data, wanted {}, where the tensor before it ends", where,
                         located.offset, next);
        if (located.num_bytes > data.size() || located.offset > data.size() - located.num_bytes)
            return error("{}: {} bytes from byte {} of the data leave the file, which has {}: is it truncated?", where,
                         located.num_bytes, located.offset, data.size());
        located.tensor.bytes = data.subspan(located.offset, located.num_bytes);
        next = align(located.offset + located.num_bytes, alignment);
    }
    if (data.size() > next)
        return error("{}: {} bytes after the last tensor belong to none", source, data.size() - next);
    return {};
}

Status check_names(const std::vector<LocatedTensor>& tensors, std::string_view source) {
    std::vector<std::string_view> names;
    for (const LocatedTensor& located : tensors) names.push_back(located.tensor.name);
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end()) return error("{}: tensor {} occurs twice", source, quote_text(*twice));
    return {};
}

Status check_version(Cursor& cursor, std::string_view source) {
    const auto magic = cursor.bytes(kMagic.size(), "the magic");
    if (!magic || !std::ranges::equal(*magic, std::as_bytes(std::span(kMagic))))
        return error("{}: does not begin with \"GGUF\": this is no GGUF file", source);
    ASSIGN_OR_RETURN(const auto version, cursor.take<uint32_t>("the version"));
    if (version == 2 || version == 3) return {};
    if (version == 0x0200'0000 || version == 0x0300'0000)
        return error("{}: a big-endian GGUF file, wanted a little-endian one", source);
    return error("{}: GGUF version {}, wanted 2 or 3", source, version);
}

// --- split files

std::optional<int64_t> integer(const GgufMetadata& metadata, std::string_view key) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) return std::nullopt;
    const auto* value = std::get_if<int64_t>(&found->second);
    return value == nullptr ? -1 : *value;
}

Status add_part(const std::filesystem::path& path, int64_t number, int64_t count, GgufFile& all) {
    const std::string source = path.string();
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    ASSIGN_OR_RETURN(GgufContents contents, parse_gguf(file.bytes(), source));
    const int64_t got = integer(contents.metadata, "split.no").value_or(0);
    if (got != number)
        return error("{}: is part {} of a split file, wanted part {}{}", source, got + 1, number + 1,
                     number == 0 ? ": name the first part, the others are found by its name" : "");
    if (const auto parts = integer(contents.metadata, "split.count"); number > 0 && parts != count)
        return error("{}: split.count = {}, that of the first part is {}", source, parts.value_or(1), count);
    if (number == 0) all.metadata = std::move(contents.metadata);
    for (GgufTensor& tensor : contents.tensors) {
        const std::string_view name = tensor.name;
        if (!all.tensors.emplace(name, std::move(tensor)).second)
            return error("{}: tensor {} is in an earlier part, too", source, quote_text(name));
    }
    all.files.push_back(std::move(file));
    all.paths.push_back(path);
    return {};
}

// --- writing

template <typename T>
void put(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}
void put_string(std::string& out, std::string_view text) {
    put(out, uint64_t{text.size()});
    out += text;
}

struct ValueWriter {
    std::string& out;
    void operator()(int64_t value) const {
        CHECK(value >= INT32_MIN && value <= UINT32_MAX, "{}", value);
        put(out, value < 0 ? uint32_t{kI32} : uint32_t{kU32});
        put(out, static_cast<uint32_t>(value));
    }
    void operator()(double value) const {
        put(out, uint32_t{kF32});
        put(out, static_cast<float>(value));
    }
    void operator()(bool value) const {
        put(out, uint32_t{kBool});
        put(out, uint8_t{value});
    }
    void operator()(std::string_view text) const {
        put(out, uint32_t{kString});
        put_string(out, text);
    }
    void operator()(const GgufNumbers& numbers) const {
        put(out, uint32_t{kArray});
        put(out, numbers.type);
        put(out, uint64_t{numbers.size()});
        out.append(reinterpret_cast<const char*>(numbers.bytes.data()), numbers.bytes.size());
    }
    void operator()(const GgufStrings& strings) const {
        put(out, uint32_t{kArray});
        put(out, uint32_t{kString});
        put(out, uint64_t{strings.size()});
        for (const std::string_view text : strings) put_string(out, text);
    }
};

}  // namespace

size_t GgufNumbers::size() const { return bytes.size() / kTypeBytes.at(type); }
double GgufNumbers::at(size_t i) const {
    CHECK_LT(i, size());
    return number_of(type, bytes.data() + i * kTypeBytes[type]);
}

std::string value_text(const GgufValue& value) {
    struct Visitor {
        std::string operator()(int64_t number) const { return fmt::to_string(number); }
        std::string operator()(double number) const { return fmt::to_string(number); }
        std::string operator()(bool flag) const { return flag ? "true" : "false"; }
        std::string operator()(std::string_view text) const { return quote_text(text); }
        std::string operator()(const GgufNumbers& numbers) const { return fmt::format("{} numbers", numbers.size()); }
        std::string operator()(const GgufStrings& strings) const { return fmt::format("{} strings", strings.size()); }
    };
    return std::visit(Visitor{}, value);
}

int64_t GgufTensor::num_elements() const { return num_elements_of(shape); }

Result<GgufContents> parse_gguf(std::span<const std::byte> file, std::string_view source) {
    constexpr size_t kLeastTensor = 8 + 4 + 8 + 4 + 8;
    constexpr size_t kLeastPair = 8 + 4 + 1;
    Cursor cursor(file, source);
    RETURN_IF_ERROR(check_version(cursor, source));
    ASSIGN_OR_RETURN(const uint64_t num_tensors, cursor.count(kLeastTensor, "tensors"));
    ASSIGN_OR_RETURN(const uint64_t num_pairs, cursor.count(kLeastPair, "metadata pairs"));
    GgufContents contents;
    RETURN_IF_ERROR(read_metadata(cursor, num_pairs, source, contents.metadata));
    std::vector<LocatedTensor> tensors;
    for (uint64_t i = 0; i < num_tensors; ++i) {
        ASSIGN_OR_RETURN(LocatedTensor located, read_tensor(cursor, source));
        tensors.push_back(std::move(located));
    }
    RETURN_IF_ERROR(check_names(tensors, source));
    ASSIGN_OR_RETURN(const uint64_t alignment, alignment_of(contents.metadata, source));
    RETURN_IF_ERROR(place_tensors(tensors, file, cursor.place(), alignment, source));
    for (LocatedTensor& located : tensors) contents.tensors.push_back(std::move(located.tensor));
    return contents;
}

Result<GgufFile> open_gguf(const std::filesystem::path& path) {
    GgufFile all;
    RETURN_IF_ERROR(add_part(path, 0, 1, all));
    const int64_t count = integer(all.metadata, "split.count").value_or(1);
    if (count < 0 || count > kMaxParts)
        return error("{}: split.count is not a number up to {}", path.string(), kMaxParts);
    if (count <= 1) return all;
    const std::string ending = fmt::format("-00001-of-{:05}.gguf", count);
    std::string name = path.filename().string();
    if (!name.ends_with(ending))
        return error("{}: the file's name ends otherwise than {}: parts are found by their names", path.string(),
                     ending);
    name.resize(name.size() - ending.size());
    for (int64_t i = 1; i < count; ++i)
        RETURN_IF_ERROR(
            add_part(path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name, i + 1, count), i, count, all));
    return all;
}

bool is_gguf(const std::filesystem::path& path) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored)) return false;
    std::array<char, kMagic.size()> begin{};
    std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
    return std::string_view(begin.data(), begin.size()) == kMagic;
}

int64_t GgufLayout::num_bytes() const {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
    return rows * format->row_bytes(shape.back());
}

std::string gguf_prefix(const GgufMetadata& metadata, std::span<const GgufLayout> tensors) {
    std::string out(kMagic);
    put(out, uint32_t{3});
    put(out, uint64_t{tensors.size()});
    put(out, uint64_t{metadata.size()});
    for (const auto& [key, value] : metadata) {
        put_string(out, key);
        std::visit(ValueWriter{out}, value);
    }
    uint64_t offset = 0;
    for (const GgufLayout& tensor : tensors) {
        put_string(out, tensor.name);
        put(out, static_cast<uint32_t>(tensor.shape.size()));
        for (auto extent = tensor.shape.rbegin(); extent != tensor.shape.rend(); ++extent)
            put(out, static_cast<uint64_t>(*extent));
        put(out, tensor.format->ggml_type);
        put(out, offset);
        offset = align(offset + static_cast<uint64_t>(tensor.num_bytes()), kGgufAlignment);
    }
    out.resize(align(out.size(), kGgufAlignment));
    return out;
}

}  // namespace verbatim::reference
