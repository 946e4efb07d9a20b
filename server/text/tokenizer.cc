#include "server/text/tokenizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "server/text/byte_alphabet.h"
#include "server/text/composition.h"
#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

// What a token adds to a text: its bytes, or, where it is not of the byte alphabet, what it spells.
std::string decoded(const std::string& token) {
    const auto bytes = from_byte_alphabet(token);
    return bytes ? *bytes : token;
}

Result<BytePairs::Tables> byte_pair_tables(const TokenizerConfig& config) {
    BytePairs::Tables tables;
    tables.bytes.fill(-1);
    for (size_t id = 0; id < config.vocabulary.size(); ++id) {
        if (!config.vocabulary[id]) continue;
        const auto bytes = from_byte_alphabet(*config.vocabulary[id]);
        if (!bytes || bytes->empty()) continue;
        if (bytes->size() == 1) tables.bytes[static_cast<unsigned char>((*bytes)[0])] = static_cast<TokenId>(id);
        if (config.ignore_merges) tables.whole_words[*bytes] = static_cast<TokenId>(id);
    }
    const auto missing = std::ranges::find(tables.bytes, -1);
    if (missing != tables.bytes.end())
        return error("the vocabulary has no token for byte 0x{:02x}: byte-level vocabularies have all 256",
                     missing - tables.bytes.begin());
    tables.merges = config.merges;
    return tables;
}

}  // namespace

void StringFinder::add(std::string_view text, int32_t value) {
    CHECK(!text.empty() && value >= 0);
    uint32_t node = 0;
    for (const char c : text) {
        uint32_t next = step(node, c);
        if (next == 0) {
            next = static_cast<uint32_t>(nodes_.size());
            nodes_.emplace_back();
            nodes_[node].next.emplace_back(c, next);
        }
        node = next;
    }
    nodes_[node].value = value;
    if (!std::exchange(begins_[static_cast<unsigned char>(text[0])], true)) begin_bytes_ += text[0];
}

// Special tokens have mostly one first byte among them.
size_t StringFinder::next_begin(std::string_view text, size_t from) const {
    if (begin_bytes_.size() == 1) return std::min(text.find(begin_bytes_[0], from), text.size());
    while (from < text.size() && !begins_[static_cast<unsigned char>(text[from])]) ++from;
    return from;
}

uint32_t StringFinder::step(uint32_t node, char c) const {
    for (const auto& [byte, next] : nodes_[node].next) {
        if (byte == c) return next;
    }
    return 0;
}

std::optional<StringFinder::Match> StringFinder::find(std::string_view text, size_t from) const {
    for (size_t begin = next_begin(text, from); begin < text.size(); begin = next_begin(text, begin + 1)) {
        std::optional<Match> longest;
        uint32_t node = 0;
        for (size_t at = begin; at < text.size(); ++at) {
            node = step(node, text[at]);
            if (node == 0) break;
            if (nodes_[node].value >= 0) longest = {begin, at + 1, nodes_[node].value};
        }
        if (longest) return longest;
    }
    return std::nullopt;
}

// What one call uses and fills.
struct Tokenizer::Work {
    EncodeOptions options;
    WordCache& cache;
    std::vector<TokenId> ids;
    std::vector<TextRange> pieces;
    std::vector<TextRange> matches;
    bool at_start = true;  // no text since the last added token
};

Result<Tokenizer> Tokenizer::make(TokenizerConfig config) {
    if (config.pieces) return Tokenizer(std::move(config), BytePairs({}));
    ASSIGN_OR_RETURN(BytePairs::Tables tables, byte_pair_tables(config));
    return Tokenizer(std::move(config), BytePairs(std::move(tables)));
}

Tokenizer::Tokenizer(TokenizerConfig config, BytePairs pairs)
    : pairs_(std::move(pairs)),
      pieces_(config.pieces ? std::optional(SentencePieces(*std::move(config.pieces))) : std::nullopt),
      compose_(config.compose),
      splits_(std::move(config.splits)),
      added_(std::move(config.added)),
      before_(std::move(config.before)),
      after_(std::move(config.after)) {
    for (const auto& token : config.vocabulary) {
        bytes_.push_back(!token ? "" : pieces_ ? *token : decoded(*token));
        kind_.push_back(token ? Kind::kOrdinary : Kind::kNone);
    }
    for (size_t i = 0; i < added_.size(); ++i) {
        const AddedToken& token = added_[i];
        const auto id = static_cast<size_t>(token.id);
        if (id >= bytes_.size()) {
            bytes_.resize(id + 1);
            kind_.resize(id + 1, Kind::kNone);
        }
        const std::string content = token.normalized && compose_ ? nfc(token.content) : token.content;
        bytes_[id] = pieces_ ? content : decoded(content);
        kind_[id] = token.special ? Kind::kSpecial : std::max(kind_[id], Kind::kOrdinary);
        const auto value = static_cast<int32_t>(i);
        (token.normalized ? normalized_added_ : raw_added_).add(content, value);
        if (token.special) special_.add(token.content, value);
    }
    CHECK_EQ(bytes_.size(), kind_.size());
    for (size_t id = 0; id < bytes_.size(); ++id) spellings_.push_back(spelling_of(id));
}

Tokenizer::Spelling Tokenizer::spelling_of(size_t id) const {
    if (kind_[id] == Kind::kSpecial) return {.first = 0, .size = Spelling::kIsSpecial};
    Spelling spelling{.first = 0, .size = Spelling::kIsLong};
    const std::string& bytes = bytes_[id];
    if (bytes.size() > sizeof spelling.first) return spelling;
    std::memcpy(&spelling.first, bytes.data(), bytes.size());
    spelling.size = bytes.size();
    return spelling;
}

// A long history has many tokens: short ones are compared without a branch for each byte.
Tokenizer::Spelled Tokenizer::spelled(std::span<const TokenId> ids, std::string_view text) const {
    constexpr std::array<uint64_t, 9> kMasks = [] {
        std::array<uint64_t, 9> masks{};
        for (size_t size = 0; size < masks.size(); ++size) {
            std::array<uint8_t, 8> bytes{};
            for (size_t i = 0; i < size; ++i) bytes[i] = 0xFF;
            masks[size] = std::bit_cast<uint64_t>(bytes);
        }
        return masks;
    }();
    Spelled found;
    for (; found.count < ids.size(); ++found.count) {
        const TokenId id = ids[found.count];
        const Spelling spelling = id >= 0 && id < num_ids() ? spellings_[static_cast<size_t>(id)] : Spelling();
        if (spelling.size == Spelling::kIsSpecial) return found;
        const std::string_view rest = text.substr(found.end);
        if (spelling.size != Spelling::kIsLong && rest.size() >= sizeof spelling.first) {
            uint64_t here = 0;
            std::memcpy(&here, rest.data(), sizeof here);
            found.differs = (here & kMasks[spelling.size]) != spelling.first;
        } else {
            found.differs = !rest.starts_with(bytes_of(id));
        }
        if (found.differs) return found;
        found.end += spelling.size == Spelling::kIsLong ? bytes_of(id).size() : spelling.size;
    }
    return found;
}

bool Tokenizer::has(TokenId id) const {
    return id >= 0 && id < num_ids() && kind_[static_cast<size_t>(id)] != Kind::kNone;
}

const std::string& Tokenizer::bytes_of(TokenId id) const {
    static const std::string kNoBytes;
    return id >= 0 && id < num_ids() ? bytes_[static_cast<size_t>(id)] : kNoBytes;
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options, WordCache& cache,
                                               KnownIds known) const {
    if (const auto bad = first_invalid_utf8(text)) return error("the text is not UTF-8 at byte {}", *bad);
    Work work{options, cache, {}, {}, {}};
    if (options.add_special) work.ids = before_;
    for (const TokenId id : work.ids) known.take_special(id);
    RETURN_IF_ERROR(encode_behind_known(text, known, work));
    if (options.add_special) work.ids.insert(work.ids.end(), after_.begin(), after_.end());
    return std::move(work.ids);
}

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view rendered, const std::vector<StandIn>& stand_ins,
                                                      WordCache& cache, KnownIds known) const {
    if (const auto bad = first_invalid_utf8(rendered)) return error("the text is not UTF-8 at byte {}", *bad);
    Work work{{.add_special = false, .parse_special = false}, cache, {}, {}, {}};
    size_t begin = 0;
    while (const auto match = special_.find(rendered, begin)) {
        const std::string text = remove_stand_ins(rendered.substr(begin, match->begin - begin), stand_ins);
        RETURN_IF_ERROR(encode_behind_known(text, known, work));
        work.ids.push_back(added_[static_cast<size_t>(match->value)].id);
        known.take_special(work.ids.back());
        work.at_start = true;
        begin = match->end;
    }
    RETURN_IF_ERROR(encode_behind_known(remove_stand_ins(rendered.substr(begin), stand_ins), known, work));
    return std::move(work.ids);
}

Status Tokenizer::encode_behind_known(std::string_view text, KnownIds& known, Work& work) const {
    const size_t taken = known.take_text(text, work.ids);
    if (taken > 0) work.at_start = false;
    return encode_text(text.substr(taken), work);
}

// Takes the added tokens of `finder` out; what is between them goes to `rest`.
template <typename Rest>
Status Tokenizer::take_added(const StringFinder& finder, std::string_view text, Work& work, Rest rest) const {
    size_t begin = 0;
    size_t from = 0;
    while (const auto match = finder.find(text, from)) {
        from = match->end;
        const AddedToken& token = added_[static_cast<size_t>(match->value)];
        if (token.special && !work.options.parse_special) continue;
        RETURN_IF_ERROR(rest(text.substr(begin, match->begin - begin)));
        work.ids.push_back(token.id);
        work.at_start = true;
        begin = from;
    }
    return rest(text.substr(begin));
}

Status Tokenizer::encode_text(std::string_view text, Work& work) const {
    return take_added(raw_added_, text, work, [&](std::string_view between) -> Status {
        if (between.empty()) return {};
        return compose_ ? encode_normalized(nfc(between), work) : encode_normalized(between, work);
    });
}

Status Tokenizer::encode_normalized(std::string_view text, Work& work) const {
    return take_added(normalized_added_, text, work,
                      [&](std::string_view between) { return encode_piece(between, work); });
}

Status Tokenizer::encode_piece(std::string_view text, Work& work) const {
    if (pieces_) {
        if (!text.empty()) pieces_->encode(text, std::exchange(work.at_start, false), work.ids);
        return {};
    }
    work.pieces = {{0, text.size()}};
    for (const SplitStep& step : splits_) RETURN_IF_ERROR(split(step, text, work));
    for (const TextRange& piece : work.pieces)
        pairs_.encode(text.substr(piece.begin, piece.end - piece.begin), work.cache, work.ids);
    return {};
}

Status Tokenizer::split(const SplitStep& step, std::string_view text, Work& work) {
    std::vector<TextRange> pieces;
    const auto keep = [&](size_t begin, size_t end, bool wanted) {
        if (wanted && begin < end) pieces.push_back({begin, end});
    };
    for (const TextRange& piece : work.pieces) {
        RETURN_IF_ERROR(step.regex.find_all(text.substr(piece.begin, piece.end - piece.begin), work.matches));
        size_t begin = piece.begin;
        for (const TextRange& match : work.matches) {
            keep(begin, piece.begin + match.begin, step.keep_gaps);
            keep(piece.begin + match.begin, piece.begin + match.end, step.keep_matches);
            begin = piece.begin + match.end;
        }
        keep(begin, piece.end, step.keep_gaps);
    }
    work.pieces = std::move(pieces);
    return {};
}

Digest digest_of(const Tokenizer& tokenizer) {
    Digester digester;
    for (TokenId id = 0; id < tokenizer.num_ids(); ++id) {
        digester.add(tokenizer.is_special(id));
        digester.add(std::string_view(tokenizer.bytes_of(id)));
    }
    return digester.digest();
}

}  // namespace verbatim::text
