#include "reference/model/head_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "files/output_file.h"
#include "reference/head_digest.h"
#include "reference/model/safetensors.h"
#include "reference/model/strict_json.h"

namespace verbatim::reference {
namespace {

constexpr std::string_view kFormat = "verbatim-head/1";
constexpr std::string_view kTokens = "tokens";
constexpr size_t kHexDigits = 32;
constexpr std::array kKinds = {StateKind::kSsm, StateKind::kConv, StateKind::kK, StateKind::kV, StateKind::kDelta};
const std::string kNoHeaderDigest(kHexDigits, '0');

std::string digest_of(std::span<const std::byte> bytes) {
    Digester digester;
    digester.bytes(bytes.data(), bytes.size());
    return digester.digest().hex();
}

std::string name_of(const StateTensor& tensor) { return fmt::format("layers.{}.{}", tensor.layer, tensor.kind.name); }

TensorDtype file_dtype(StateDtype dtype) {
    switch (dtype) {
        case StateDtype::kFloat32: return TensorDtype::kF32;
        case StateDtype::kBf16: return TensorDtype::kBf16;
        case StateDtype::kInt32: return TensorDtype::kI32;
    }
    CHECK(false, "dtype {}", static_cast<int>(dtype));
}

std::optional<StateDtype> state_dtype(TensorDtype dtype) {
    if (dtype == TensorDtype::kF32) return StateDtype::kFloat32;
    if (dtype == TensorDtype::kBf16) return StateDtype::kBf16;
    if (dtype == TensorDtype::kI32) return StateDtype::kInt32;
    return std::nullopt;
}

// Where the digits of header_xxh3 are in the header's text.
std::optional<size_t> find_header_digest(std::string_view text) {
    constexpr std::string_view kKey = R"("header_xxh3":")";
    const size_t found = text.find(kKey);
    if (found == std::string_view::npos || found + kKey.size() + kHexDigits > text.size()) return std::nullopt;
    return found + kKey.size();
}

std::string header_digest(std::string_view text, size_t digits) {
    std::string with_zeros(text);
    with_zeros.replace(digits, kHexDigits, kNoHeaderDigest);
    return digest_of(std::as_bytes(std::span(with_zeros)));
}

// "layers.LAYER.KIND" of a head of `length` tokens.
Result<StateTensor> state_tensor_of(const TensorEntry& entry, int64_t length, const std::string& source) {
    const std::string_view name = entry.name;
    const size_t dot = name.rfind('.');
    StateTensor tensor;
    const char* first = name.data() + std::string_view("layers.").size();
    const auto* kind =
        std::ranges::find(kKinds, dot == std::string_view::npos ? "" : name.substr(dot + 1), &StateKind::name);
    const auto number = name.starts_with("layers.") && dot > std::string_view("layers.").size()
                            ? std::from_chars(first, name.data() + dot, tensor.layer)
                            : std::from_chars_result{first, std::errc::invalid_argument};
    const bool is_named = number.ec == std::errc{} && number.ptr == name.data() + dot && tensor.layer >= 0;
    if (!is_named || kind == kKinds.end() || name != fmt::format("layers.{}.{}", tensor.layer, kind->name)) {
        return error("{}: tensor {} is no part of a head: wanted layers.LAYER.KIND", source, quote_text(name));
    }
    const auto dtype = state_dtype(entry.dtype);
    if (!dtype) return error("{}: tensor {} has dtype {}", source, quote_text(name), dtype_name(entry.dtype));
    tensor.kind = *kind;
    tensor.dtype = *dtype;
    tensor.shape = entry.shape;
    if (*kind != StateKind::kK && *kind != StateKind::kV) return tensor;
    tensor.per = StatePer::kToken;
    if (tensor.shape.empty() || tensor.shape.front() != length) {
        return error("{}: tensor {} has shape {}, the head has {} tokens", source, quote_text(name),
                     shape_text(entry.shape), length);
    }
    tensor.shape.erase(tensor.shape.begin());
    return tensor;
}

Status check_order(std::span<const StateTensor> tensors, const std::string& source) {
    for (size_t i = 1; i < tensors.size(); ++i) {
        const bool is_later = tensors[i - 1].layer < tensors[i].layer ||
                              (tensors[i - 1].layer == tensors[i].layer && tensors[i - 1].kind != tensors[i].kind);
        if (!is_later) return error("{}: {} is behind {}", source, name_of(tensors[i]), name_of(tensors[i - 1]));
    }
    return {};
}

// What the file says of a tensor's bytes; empty: nothing.
std::string sum_of(const nlohmann::json& sums, std::string_view tensor) {
    const auto found = sums.find(tensor);
    return found != sums.end() && found->is_string() ? found->get<std::string>() : "";
}

Status check_sum(const std::string& tensor, std::span<const std::byte> bytes, const std::string& wanted,
                 const std::string& source) {
    if (digest_of(bytes) == wanted) return {};
    return error("{}: tensor {} does not have its checksum: the file is damaged", source, tensor);
}

std::optional<Digest> digest_from_hex(std::string_view hex) {
    Digest digest;
    if (hex.size() != kHexDigits) return std::nullopt;
    const auto read = [](std::string_view part, uint64_t& value) {
        const auto end = std::from_chars(part.data(), part.data() + part.size(), value, 16);
        return end.ec == std::errc{} && end.ptr == part.data() + part.size();
    };
    if (!read(hex.substr(0, 16), digest.high) || !read(hex.substr(16), digest.low)) return std::nullopt;
    return digest;
}

// What stands in the file before the tokens.
std::string prefix_of(const HeadInfo& info, const StateTensors& tensors, std::span<const std::byte> bytes) {
    CHECK_EQ(static_cast<int64_t>(bytes.size()), head_num_bytes(tensors, info.length()));
    std::vector<TensorLayout> layout{{std::string(kTokens), TensorDtype::kI32, {info.length()}}};
    nlohmann::json sums{{kTokens, digest_of(std::as_bytes(std::span(info.tokens)))}};
    size_t begin = 0;
    for (const StateTensor& tensor : tensors) {
        TensorLayout part{name_of(tensor), file_dtype(tensor.dtype), tensor.shape};
        if (tensor.per == StatePer::kToken) part.shape.insert(part.shape.begin(), info.length());
        const auto size = static_cast<size_t>(part_num_bytes(tensor, info.length()));
        sums[part.name] = digest_of(bytes.subspan(begin, size));
        begin += size;
        layout.push_back(std::move(part));
    }
    SafetensorsMetadata metadata{
        {"format", std::string(kFormat)}, {"model", info.model}, {"numerics", info.numerics},
        {"digest", info.digest.hex()},    {"xxh3", sums.dump()}, {"header_xxh3", kNoHeaderDigest}};
    if (info.salt) metadata["salt"] = *info.salt;
    std::string prefix = safetensors_prefix(layout, metadata);
    const std::string_view text = std::string_view(prefix).substr(sizeof(uint64_t));
    const auto digits = find_header_digest(text);
    CHECK(digits.has_value(), "{}", text);
    prefix.replace(sizeof(uint64_t) + *digits, kHexDigits, header_digest(text, *digits));
    return prefix;
}

}  // namespace

Status write_head_file(const std::filesystem::path& path, const HeadInfo& info, const StateTensors& tensors,
                       std::span<const std::byte> bytes) {
    ASSIGN_OR_RETURN(files::OutputFile file, files::OutputFile::create(path));
    RETURN_IF_ERROR(file.write(prefix_of(info, tensors, bytes)));
    RETURN_IF_ERROR(file.write(std::as_bytes(std::span(info.tokens))));
    RETURN_IF_ERROR(file.write(bytes));
    return file.finish();
}

std::string head_file_text(const HeadInfo& info, const StateTensors& tensors, std::span<const std::byte> bytes) {
    std::string text = prefix_of(info, tensors, bytes);
    for (const auto part : {std::as_bytes(std::span(info.tokens)), bytes})
        text.append(reinterpret_cast<const char*>(part.data()), part.size());
    return text;
}

Result<HeadFile> HeadFile::open_unchecked(const std::filesystem::path& path) {
    ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
    HeadFile file;
    file.all_ = file.mapped_.emplace(std::move(mapped)).bytes();
    RETURN_IF_ERROR(file.read(path.string()));
    return file;
}

Result<HeadFile> HeadFile::parse(std::string content, const std::string& source) {
    HeadFile file;
    file.content_ = std::make_unique<std::string>(std::move(content));
    file.all_ = std::as_bytes(std::span(*file.content_));
    RETURN_IF_ERROR(file.read(source));
    RETURN_IF_ERROR(file.check_state(source));
    return file;
}

Result<HeadFile> HeadFile::open(const std::filesystem::path& path) {
    ASSIGN_OR_RETURN(HeadFile file, open_unchecked(path));
    RETURN_IF_ERROR(file.check_state(path.string()));
    return file;
}

Status HeadFile::read(const std::string& source) {
    ASSIGN_OR_RETURN(const std::vector<TensorEntry> entries, parse_safetensors(all_, source));
    ASSIGN_OR_RETURN(SafetensorsHeader header, safetensors_header(all_, source));
    auto& metadata = header.metadata;
    if (metadata["format"] != kFormat) {
        return error("{}: format {} is not {}: no head, or one of another version", source,
                     quote_text(metadata["format"]), kFormat);
    }
    const auto digits = find_header_digest(header.text);
    if (!digits || header.text.substr(*digits, kHexDigits) != header_digest(header.text, *digits))
        return error("{}: the header does not have its checksum: the file is damaged", source);
    ASSIGN_OR_RETURN(const nlohmann::json sums, parse_strict_json(metadata["xxh3"], source + ": xxh3"));
    const bool has_tokens = !entries.empty() && entries.front().name == kTokens &&
                            entries.front().dtype == TensorDtype::kI32 && entries.front().shape.size() == 1;
    if (!has_tokens) return error("{}: does not begin with the tokens, I32 [length]", source);
    RETURN_IF_ERROR(check_sum(entries.front().name, entries.front().bytes, sum_of(sums, kTokens), source));
    info_.tokens.resize(static_cast<size_t>(entries.front().shape.front()));
    if (info_.tokens.empty()) return error("{}: a head of no tokens", source);
    std::memcpy(info_.tokens.data(), entries.front().bytes.data(), entries.front().bytes.size());
    std::vector<StateTensor> tensors;
    for (const TensorEntry& entry : std::span(entries).subspan(1)) {
        ASSIGN_OR_RETURN(StateTensor tensor, state_tensor_of(entry, info_.length(), source));
        tensors.push_back(std::move(tensor));
        sums_.push_back(sum_of(sums, entry.name));
    }
    RETURN_IF_ERROR(check_order(tensors, source));
    tensors_ = StateTensors(std::move(tensors));
    const auto digest = digest_from_hex(metadata["digest"]);
    if (!digest) return error("{}: digest {} is not 32 hexadecimal digits", source, quote_text(metadata["digest"]));
    info_.digest = *digest;
    info_.model = metadata["model"];
    info_.numerics = metadata["numerics"];
    if (metadata.contains("salt")) info_.salt = metadata["salt"];
    bytes_ = all_.last(static_cast<size_t>(head_num_bytes(tensors_, info_.length())));
    return {};
}

Status HeadFile::check_state(const std::string& source) const {
    std::span<const std::byte> left = bytes_;
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const StateTensor& tensor = tensors_[i];
        const auto part = left.first(static_cast<size_t>(part_num_bytes(tensor, info_.length())));
        RETURN_IF_ERROR(check_sum(name_of(tensor), part, sums_[i], source));
        left = left.subspan(part.size());
    }
    CHECK(left.empty(), "{}: {} bytes behind the last tensor", source, left.size());
    return {};
}

Status HeadFile::check_model(std::string_view model, const StateTensors& tensors) const {
    if (info_.model != model) {
        return error(
            "the head was made by the model with digest {}, this is {}: other weights or another configuration",
            info_.model, model);
    }
    if (!std::ranges::equal(tensors_, tensors)) return error("the head does not have this model's tensors");
    return {};
}

Digest HeadFile::state_digest() const { return digest_of_head(tensors_, info_.length(), bytes_); }

}  // namespace verbatim::reference
