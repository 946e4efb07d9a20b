#include "reference/loader/head_file.h"

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
#include "files/strict_json.h"
#include "reference/head_digest.h"
#include "reference/loader/safetensors.h"

namespace verbatim::reference {
namespace {

constexpr std::string_view kFormat = "verbatim-head/1";
constexpr std::string_view kPartFormat = "verbatim-head-part/1";
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

// The file's own name is no part of a path.
bool is_base_name(std::string_view name) {
    const auto is_part = [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_';
    };
    return !name.empty() && name.size() <= 255 && std::ranges::all_of(name, is_part);
}

// "layers.LAYER.KIND" of a file that has `length` tokens.
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
        return error("{}: tensor {} has shape {}, the file has {} tokens", source, quote_text(name),
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

// Of the bytes of a tensor per token, so many tokens at a time.
std::vector<std::string> chunk_sums(std::span<const std::byte> bytes, int64_t token_bytes) {
    std::vector<std::string> sums;
    const auto size = static_cast<size_t>(kHeadChunkTokens * token_bytes);
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(size, bytes.size())))
        sums.push_back(digest_of(bytes.first(std::min(size, bytes.size()))));
    return sums;
}

// What the file says of a tensor's bytes; empty: nothing.
std::string sum_of(const nlohmann::json& sums, std::string_view tensor) {
    const auto found = sums.find(tensor);
    return found != sums.end() && found->is_string() ? found->get<std::string>() : "";
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

}  // namespace

std::string head_file_prefix(const HeadInfo& info, const StateTensors& tensors, std::span<const std::byte> bytes) {
    CHECK_EQ(static_cast<int64_t>(bytes.size()), head_num_bytes(tensors, info.own_length()));
    std::vector<TensorLayout> layout{{std::string(kTokens), TensorDtype::kI32, {info.length()}}};
    nlohmann::json sums{{kTokens, digest_of(std::as_bytes(std::span(info.tokens)))}};
    nlohmann::json chunks = nlohmann::json::object();
    size_t begin = 0;
    for (const StateTensor& tensor : tensors) {
        TensorLayout part{name_of(tensor), file_dtype(tensor.dtype), tensor.shape};
        if (tensor.per == StatePer::kToken) part.shape.insert(part.shape.begin(), info.own_length());
        const auto size = static_cast<size_t>(part_num_bytes(tensor, info.own_length()));
        sums[part.name] = digest_of(bytes.subspan(begin, size));
        if (tensor.per == StatePer::kToken)
            chunks[part.name] = chunk_sums(bytes.subspan(begin, size), tensor.num_bytes());
        begin += size;
        layout.push_back(std::move(part));
    }
    SafetensorsMetadata metadata{{"format", std::string(info.base ? kPartFormat : kFormat)},
                                 {"model", info.model},
                                 {"numerics", info.numerics},
                                 {"digest", info.digest.hex()},
                                 {"xxh3", sums.dump()},
                                 {"chunk_tokens", fmt::format("{}", kHeadChunkTokens)},
                                 {"chunk_xxh3", chunks.dump()},
                                 {"header_xxh3", kNoHeaderDigest}};
    if (info.salt) metadata["salt"] = *info.salt;
    if (info.base) {
        metadata["base"] = info.base->name;
        metadata["base_length"] = fmt::format("{}", info.base->length);
        metadata["base_xxh3"] = info.base->header_xxh3;
    }
    std::string prefix = safetensors_prefix(layout, metadata);
    const std::string_view text = std::string_view(prefix).substr(sizeof(uint64_t));
    const auto digits = find_header_digest(text);
    CHECK(digits.has_value(), "{}", text);
    prefix.replace(sizeof(uint64_t) + *digits, kHexDigits, header_digest(text, *digits));
    return prefix;
}

std::vector<std::byte> without_base(const StateTensors& tensors, int64_t length, int64_t base_length,
                                    std::span<const std::byte> bytes) {
    CHECK(base_length >= 0 && base_length <= length && std::ssize(bytes) == head_num_bytes(tensors, length),
          "{} bytes of a head of {} tokens, {} in its base", bytes.size(), length, base_length);
    std::vector<std::byte> own;
    own.reserve(static_cast<size_t>(head_num_bytes(tensors, length - base_length)));
    for (const StateTensor& tensor : tensors) {
        const auto part = bytes.first(static_cast<size_t>(part_num_bytes(tensor, length)));
        const int64_t before = tensor.per == StatePer::kToken ? base_length * tensor.num_bytes() : 0;
        own.insert(own.end(), part.begin() + before, part.end());
        bytes = bytes.subspan(part.size());
    }
    return own;
}

Result<std::string> write_head_file(const std::filesystem::path& path, const HeadInfo& info,
                                    const StateTensors& tensors, std::span<const std::byte> bytes) {
    ASSIGN_OR_RETURN(files::OutputFile file, files::OutputFile::create(path));
    return write_head_file(file, info, tensors, bytes);
}

Result<std::string> write_head_file(files::OutputFile& file, const HeadInfo& info, const StateTensors& tensors,
                                    std::span<const std::byte> bytes) {
    const std::string prefix = head_file_prefix(info, tensors, bytes);
    RETURN_IF_ERROR(file.write(prefix));
    RETURN_IF_ERROR(file.write(std::as_bytes(std::span(info.tokens))));
    RETURN_IF_ERROR(file.write(bytes));
    RETURN_IF_ERROR(file.finish());
    return prefix.substr(sizeof(uint64_t) + *find_header_digest(std::string_view(prefix).substr(sizeof(uint64_t))),
                         kHexDigits);
}

// --- reading

// Also of a file whose header cannot be read: parse() says so.
Status HeadFile::read_header() {
    uint64_t size = 0;
    if (all_.size() < sizeof size) return fill(0, all_);
    RETURN_IF_ERROR(fill(0, all_.first(sizeof size)));
    std::memcpy(&size, all_.data(), sizeof size);
    if (size > all_.size() - sizeof size) return {};
    return fill(sizeof size, all_.subspan(sizeof size, size));
}

Result<HeadFile> HeadFile::open_unchecked(const std::filesystem::path& path, const std::string& source) {
    ASSIGN_OR_RETURN(RegularFile opened, RegularFile::open(path));
    HeadFile file;
    ASSIGN_OR_RETURN(file.own_, ReservedBytes::make(static_cast<size_t>(opened.state().num_bytes)));
    file.all_ = file.own_.bytes();
    file.file_.emplace(std::move(opened));
    RETURN_IF_ERROR(file.read_header());
    RETURN_IF_ERROR(file.parse(source));
    return file;
}

Result<HeadFile> HeadFile::parse(std::string content, const std::string& source) {
    HeadFile file;
    file.content_ = std::make_unique<std::string>(std::move(content));
    file.all_ = std::as_writable_bytes(std::span(*file.content_));
    RETURN_IF_ERROR(file.parse(source));
    RETURN_IF_ERROR(file.take_whole());
    return file;
}

Result<HeadFile> HeadFile::open_whole(const std::filesystem::path& path, const std::string& source) {
    ASSIGN_OR_RETURN(HeadFile file, open_unchecked(path, source));
    RETURN_IF_ERROR(file.take_whole());
    file.file_.reset();
    return file;
}

Status HeadFile::take_whole() {
    CHECK_EQ(places_.size(), tensors_.size());
    if (info_.base)
        return error("{}: a part of a head, whose beginning is in {}.head: wanted a whole one", source_,
                     info_.base->name);
    RETURN_IF_ERROR(take_states(bytes_));
    return take_tokens(0, info_.length(), info_.length(), bytes_);
}

Result<HeadFile> HeadFile::open(const std::filesystem::path& path, int64_t first_token) {
    ASSIGN_OR_RETURN(HeadFile file, open_unchecked(path));
    const HeadInfo& info = file.info_;
    CHECK_GE(first_token, 0);
    file.first_token_ = std::min(first_token, info.length());
    if (info.base) {
        ASSIGN_OR_RETURN(file.whole_,
                         ReservedBytes::make(static_cast<size_t>(head_num_bytes(file.tensors_, info.length()))));
    }
    const std::span<std::byte> whole = info.base ? file.whole_.bytes() : file.bytes_;
    CHECK_EQ(std::ssize(whole), head_num_bytes(file.tensors_, info.length()));
    RETURN_IF_ERROR(file.take_states(whole));
    const int64_t begin = std::max(file.first_token_, info.base ? info.base->length : 0);
    RETURN_IF_ERROR(file.take_tokens(begin, info.length(), info.length(), whole));
    if (info.base) RETURN_IF_ERROR(file.add_bases(path.parent_path(), whole));
    file.bytes_ = whole;
    file.file_.reset();
    return file;
}

bool HeadFile::is_of_other_format(const std::filesystem::path& path) {
    auto opened = RegularFile::open(path);
    if (!opened) return false;
    HeadFile file;
    auto reserved = ReservedBytes::make(static_cast<size_t>(opened->state().num_bytes));
    if (!reserved) return false;
    file.own_ = *std::move(reserved);
    file.all_ = file.own_.bytes();
    file.file_.emplace(*std::move(opened));
    if (!file.read_header()) return false;
    auto header = safetensors_header(file.all_, path.string());
    if (!header) return false;
    const std::string format = header->metadata["format"];
    return !format.empty() && format != kFormat && format != kPartFormat;
}

// Bytes of the file. What is parsed from memory is there already.
Status HeadFile::fill(int64_t offset, std::span<std::byte> to) {
    if (content_) {
        CHECK(to.data() == all_.data() + offset, "{} bytes of {} are taken", to.size(), source_);
        return {};
    }
    CHECK(file_.has_value(), "{}: is closed", source_);
    num_read_bytes_ += static_cast<int64_t>(to.size());
    return file_->read(offset, to);
}

// A tensor's bytes from one of its bytes on, which have one checksum.
Status HeadFile::fill_checked(size_t tensor, int64_t begin, std::span<std::byte> to, const std::string& wanted) {
    CHECK_LE(begin + std::ssize(to), part_num_bytes(tensors_[tensor], info_.own_length()));
    RETURN_IF_ERROR(fill(places_[tensor].offset + begin, to));
    if (digest_of(to) == wanted) return {};
    return error("{}: tensor {} does not have its checksum: the file is damaged", source_, name_of(tensors_[tensor]));
}

// The tensors per sequence of a head, into its bytes.
Status HeadFile::take_states(std::span<std::byte> whole) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const auto size = static_cast<size_t>(part_num_bytes(tensors_[i], info_.length()));
        if (tensors_[i].per == StatePer::kSequence)
            RETURN_IF_ERROR(fill_checked(i, 0, whole.first(size), places_[i].xxh3));
        whole = whole.subspan(size);
    }
    CHECK(whole.empty(), "{}: {} bytes behind the last tensor", source_, whole.size());
    return {};
}

// KV of tokens [begin, end), into the bytes of a head of `length` tokens.
Status HeadFile::take_tokens(int64_t begin, int64_t end, int64_t length, std::span<std::byte> whole) {
    const int64_t first = info_.length() - info_.own_length();
    CHECK(begin >= first && end <= info_.length(), "{}: tokens [{}, {}) of [{}, {})", source_, begin, end, first,
          info_.length());
    if (begin >= end) return {};
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const auto size = static_cast<size_t>(part_num_bytes(tensors_[i], length));
        const auto token = static_cast<size_t>(tensors_[i].num_bytes());
        if (tensors_[i].per == StatePer::kToken) {
            const auto to = whole.subspan(static_cast<size_t>(begin) * token, static_cast<size_t>(end - begin) * token);
            RETURN_IF_ERROR(take_chunks(i, begin - first, end - first, to));
        }
        whole = whole.subspan(size);
    }
    return {};
}

// Tokens [begin, end) of the file's own. A chunk of which a part is wanted is read and checked whole.
Status HeadFile::take_chunks(size_t tensor, int64_t begin, int64_t end, std::span<std::byte> to) {
    const Place& place = places_[tensor];
    const int64_t token = tensors_[tensor].num_bytes();
    CHECK(begin >= 0 && begin < end && end <= info_.own_length(), "{}: tokens [{}, {}) of its {}", source_, begin, end,
          info_.own_length());
    CHECK_EQ(std::ssize(to), (end - begin) * token);
    CHECK_GE(std::ssize(place.chunks) * place.chunk_tokens, end);
    for (int64_t c = begin / place.chunk_tokens; c * place.chunk_tokens < end; ++c) {
        const int64_t first = c * place.chunk_tokens;
        const int64_t last = std::min(first + place.chunk_tokens, info_.own_length());
        const std::string& wanted = place.chunks[static_cast<size_t>(c)];
        const auto at = [&](int64_t of) { return static_cast<size_t>((of - begin) * token); };
        if (first >= begin && last <= end) {
            RETURN_IF_ERROR(fill_checked(tensor, first * token, to.subspan(at(first), at(last) - at(first)), wanted));
            continue;
        }
        chunk_.resize(static_cast<size_t>((last - first) * token));
        RETURN_IF_ERROR(fill_checked(tensor, first * token, chunk_, wanted));
        const int64_t from = std::max(first, begin);
        const auto part = std::span(chunk_).subspan(static_cast<size_t>((from - first) * token),
                                                    static_cast<size_t>((std::min(last, end) - from) * token));
        std::ranges::copy(part, to.subspan(at(from)).begin());
    }
    return {};
}

Status HeadFile::read_base(const SafetensorsMetadata& metadata, const std::string& source) {
    const auto value = [&](const char* key) {
        const auto found = metadata.find(key);
        return found == metadata.end() ? std::string() : found->second;
    };
    HeadBase base{.name = value("base"), .length = -1, .header_xxh3 = value("base_xxh3")};
    const std::string length = value("base_length");
    const auto number = std::from_chars(length.data(), length.data() + length.size(), base.length);
    const bool is_number = number.ec == std::errc{} && number.ptr == length.data() + length.size();
    if (!is_base_name(base.name) || !is_number || base.length < 1 || base.length > info_.length()) {
        return error("{}: base {} of {} tokens, the head has {}", source, quote_text(base.name), quote_text(length),
                     info_.length());
    }
    info_.base = std::move(base);
    return {};
}

// Whether this part's head begins in that file.
Status HeadFile::check_base(const HeadFile& base, const std::filesystem::path& path) const {
    const HeadInfo& other = base.info_;
    const bool is_same =
        base.header_xxh3_ == info_.base->header_xxh3 && other.length() >= info_.base->length &&
        other.model == info_.model && other.numerics == info_.numerics && std::ranges::equal(base.tensors_, tensors_) &&
        std::equal(info_.tokens.begin(), info_.tokens.begin() + info_.base->length, other.tokens.begin());
    if (is_same) return {};
    return error("{}: is not the file that a part of a head begins in", path.string());
}

// Takes the tensors of the tokens before the part from the file that has them, which may be a base's base. What is not
// wanted of a base is not read.
Status HeadFile::add_bases(const std::filesystem::path& folder, std::span<std::byte> whole) {
    int64_t end = info_.base->length;
    std::optional<HeadFile> part;  // null: this one
    for (int i = 0; end > first_token_; ++i) {
        const HeadFile& before = part ? *part : *this;
        CHECK(before.info_.base.has_value(), "{}: a whole head lacks the tokens before {}", before.source_, end);
        if (i == kMaxBases) return error("{}: more than {} bases", before.info_.base->name, kMaxBases);
        const auto path = folder / (before.info_.base->name + ".head");
        ASSIGN_OR_RETURN(HeadFile base, open_unchecked(path));
        RETURN_IF_ERROR(before.check_base(base, path));
        const int64_t begin = base.info_.base ? base.info_.base->length : 0;
        if (begin < end) {
            RETURN_IF_ERROR(base.take_tokens(std::max(begin, first_token_), end, info_.length(), whole));
            end = begin;
        }
        num_read_bytes_ += base.num_read_bytes_;
        part = std::move(base);
    }
    return {};
}

// The checksums of chunks; a file without them has one chunk.
Status HeadFile::read_chunk_sums(const SafetensorsMetadata& metadata, const std::string& source) {
    const auto tokens = metadata.find("chunk_tokens");
    const auto sums = metadata.find("chunk_xxh3");
    int64_t count = std::max<int64_t>(info_.own_length(), 1);
    const bool has_chunks = tokens != metadata.end() && sums != metadata.end();
    nlohmann::json read;
    if (has_chunks) {
        const std::string& text = tokens->second;
        const auto number = std::from_chars(text.data(), text.data() + text.size(), count);
        const bool is_number = number.ec == std::errc{} && number.ptr == text.data() + text.size();
        if (!is_number || count < 1 || count > INT32_MAX)
            return error("{}: chunk_tokens is {}, wanted a number from 1 on", source, quote_text(text));
        ASSIGN_OR_RETURN(read, parse_strict_json(sums->second, source + ": chunk_xxh3"));
    }
    const auto num_chunks = static_cast<size_t>((info_.own_length() + count - 1) / count);
    for (size_t i = 0; i < tensors_.size(); ++i) {
        if (tensors_[i].per != StatePer::kToken) continue;
        Place& place = places_[i];
        place.chunk_tokens = count;
        if (!has_chunks) {
            place.chunks.assign(num_chunks, place.xxh3);
            continue;
        }
        const std::string name = name_of(tensors_[i]);
        const auto listed = read.find(name);
        const auto is_text = [](const nlohmann::json& sum) { return sum.is_string(); };
        const bool is_list = listed != read.end() && listed->is_array() && listed->size() == num_chunks &&
                             std::ranges::all_of(*listed, is_text);
        if (!is_list) return error("{}: chunk_xxh3 of {} is no list of {} checksums", source, name, num_chunks);
        place.chunks = listed->get<std::vector<std::string>>();
    }
    return {};
}

// The tokens, which begin the data.
Status HeadFile::read_tokens(const TensorEntry& entry, const std::string& wanted, const std::string& source) {
    const std::span<std::byte> bytes =
        all_.subspan(static_cast<size_t>(entry.bytes.data() - all_.data()), entry.bytes.size());
    RETURN_IF_ERROR(fill(bytes.data() - all_.data(), bytes));
    if (digest_of(bytes) != wanted) {
        return error("{}: tensor {} does not have its checksum: the file is damaged", source, kTokens);
    }
    info_.tokens.resize(static_cast<size_t>(entry.shape.front()));
    CHECK_EQ(info_.tokens.size() * sizeof(TokenId), bytes.size());
    if (info_.tokens.empty()) return error("{}: a head of no tokens", source);
    std::memcpy(info_.tokens.data(), bytes.data(), bytes.size());
    return {};
}

Status HeadFile::parse(const std::string& source) {
    source_ = source;
    ASSIGN_OR_RETURN(auto read, read_safetensors(all_, source));
    auto& [header, entries] = read;
    auto& metadata = header.metadata;
    const bool is_part = metadata["format"] == kPartFormat;
    if (!is_part && metadata["format"] != kFormat) {
        return error("{}: format {} is not {}: no head, or one of another version", source,
                     quote_text(metadata["format"]), kFormat);
    }
    const auto digits = find_header_digest(header.text);
    if (!digits || header.text.substr(*digits, kHexDigits) != header_digest(header.text, *digits))
        return error("{}: the header does not have its checksum: the file is damaged", source);
    header_xxh3_ = header.text.substr(*digits, kHexDigits);
    ASSIGN_OR_RETURN(const nlohmann::json sums, parse_strict_json(metadata["xxh3"], source + ": xxh3"));
    const bool has_tokens = !entries.empty() && entries.front().name == kTokens &&
                            entries.front().dtype == TensorDtype::kI32 && entries.front().shape.size() == 1;
    if (!has_tokens) return error("{}: does not begin with the tokens, I32 [length]", source);
    RETURN_IF_ERROR(read_tokens(entries.front(), sum_of(sums, kTokens), source));
    if (is_part) RETURN_IF_ERROR(read_base(metadata, source));
    std::vector<StateTensor> tensors;
    for (const TensorEntry& entry : std::span(entries).subspan(1)) {
        ASSIGN_OR_RETURN(StateTensor tensor, state_tensor_of(entry, info_.own_length(), source));
        tensors.push_back(std::move(tensor));
        places_.push_back({entry.bytes.data() - all_.data(), sum_of(sums, entry.name), 0, {}});
    }
    RETURN_IF_ERROR(check_order(tensors, source));
    tensors_ = StateTensors(std::move(tensors));
    RETURN_IF_ERROR(read_chunk_sums(metadata, source));
    const auto digest = digest_from_hex(metadata["digest"]);
    if (!digest) return error("{}: digest {} is not 32 hexadecimal digits", source, quote_text(metadata["digest"]));
    info_.digest = *digest;
    info_.model = metadata["model"];
    info_.numerics = metadata["numerics"];
    if (metadata.contains("salt")) info_.salt = metadata["salt"];
    CHECK_LE(head_num_bytes(tensors_, info_.own_length()), std::ssize(all_));
    bytes_ = all_.last(static_cast<size_t>(head_num_bytes(tensors_, info_.own_length())));
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

Status HeadFile::check_digest() const {
    CHECK_EQ(first_token_, 0);
    const Digest got = digest_of_head(tensors_, info_.length(), bytes_);
    if (got == info_.digest) return {};
    return error("{}: the state has digest {}, the file says {}", source_, got.hex(), info_.digest.hex());
}

}  // namespace verbatim::reference
