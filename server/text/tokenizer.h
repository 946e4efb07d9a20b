// server/text/tokenizer.h: owns the conversion of text to token ids and back.
//
//   T1  ids are those of the `tokenizers` library for the same tokenizer.json (tests/server/vectors)
//   T2  with parse_special off, no text gives the id of a special token
//   T3  encoding takes time proportional to the text
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "server/text/byte_pairs.h"
#include "server/text/known_ids.h"
#include "server/text/sentence_pieces.h"
#include "server/text/split_regex.h"
#include "server/text/user_text.h"

namespace verbatim::text {

// A token that is matched in the text before pre-tokenization.
struct AddedToken {
    TokenId id = 0;
    std::string content;
    bool special = false;     // control: not made from text unless special tokens are parsed
    bool normalized = false;  // matched in the normalized text
};

// One regex of the pre-tokenizer, and which pieces it keeps.
struct SplitStep {
    SplitRegex regex;
    bool keep_matches = true;
    bool keep_gaps = true;
};

// The contents of a tokenizer.json (server/text/tokenizer_json.h reads it).
struct TokenizerConfig {
    std::vector<std::optional<std::string>> vocabulary;  // by id, as in the file: in the byte alphabet
    std::vector<BytePairMerge> merges;                   // by rank
    // Instead of byte pairs; `vocabulary` has the tokens' bytes then.
    std::optional<SentencePieces::Tables> pieces = {};
    bool ignore_merges = false;  // a word in the vocabulary is one token
    bool compose = false;        // normalise to NFC
    std::vector<SplitStep> splits;
    std::vector<AddedToken> added;
    std::vector<TokenId> before;  // around every text
    std::vector<TokenId> after;
};

struct EncodeOptions {
    bool add_special = true;    // the tokens that the tokenizer adds around every text, such as BOS
    bool parse_special = true;  // text that spells a special token becomes that token
};

// Finds the leftmost-longest match of some strings.
class StringFinder {
public:
    StringFinder() : nodes_(1) {}
    void add(std::string_view text, int32_t value);  // REQUIRES: not empty, value >= 0
    struct Match {
        size_t begin = 0;
        size_t end = 0;
        int32_t value = 0;
    };
    [[nodiscard]] std::optional<Match> find(std::string_view text, size_t from) const;
    [[nodiscard]] bool empty() const { return nodes_.size() == 1; }

private:
    struct Node {
        std::vector<std::pair<char, uint32_t>> next;
        int32_t value = -1;
    };
    [[nodiscard]] uint32_t step(uint32_t node, char c) const;  // 0: no such node
    std::vector<Node> nodes_;
    [[nodiscard]] size_t next_begin(std::string_view text, size_t from) const;  // of a possible match; or the end
    std::array<bool, 256> begins_{};
    std::string begin_bytes_;  // of begins_, each once
};

class Tokenizer {
public:
    static Result<Tokenizer> make(TokenizerConfig config);

    // Errors: text that is not UTF-8; a regex that costs too much. The cache belongs to this tokenizer. `known`: ids
    // that the text may begin with.
    [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options, WordCache& cache,
                                                      KnownIds known = {}) const;
    // Encodes a rendered conversation. Text that spells a special token becomes one, unless a stand-in is part of it.
    [[nodiscard]] Result<std::vector<TokenId>> encode_prompt(std::string_view rendered,
                                                             const std::vector<StandIn>& stand_ins, WordCache& cache,
                                                             KnownIds known = {}) const;

    // Tokens have ids from 0 to num_ids() - 1. Some ids may lack a token, and so do ids beyond (a model's vocabulary
    // may be padded): they behave as ordinary tokens without bytes.
    [[nodiscard]] TokenId num_ids() const { return static_cast<TokenId>(bytes_.size()); }
    [[nodiscard]] bool has(TokenId id) const;
    [[nodiscard]] const std::string& bytes_of(TokenId id) const;  // of any id
    [[nodiscard]] bool is_special(TokenId id) const { return is_of(Kind::kSpecial, id); }
    // Compares the text with the bytes of the ids up to the first special one: the number of matching ids and of their
    // bytes, and whether it ended at a difference.
    struct Spelled {
        size_t count = 0;
        size_t end = 0;
        bool differs = false;
    };
    [[nodiscard]] Spelled spelled(std::span<const TokenId> ids, std::string_view text) const;
    [[nodiscard]] const std::vector<AddedToken>& added_tokens() const { return added_; }
    // Encoding puts a space before a text, and before text behind an added token.
    [[nodiscard]] bool adds_space_prefix() const { return pieces_ && pieces_->adds_space_prefix(); }

private:
    enum class Kind : uint8_t { kNone, kOrdinary, kSpecial };
    [[nodiscard]] bool is_of(Kind kind, TokenId id) const {
        return id >= 0 && id < num_ids() && kind_[static_cast<size_t>(id)] == kind;
    }
    // A token in a form for fast comparison with a text: one word if it is short.
    struct Spelling {
        static constexpr uint64_t kIsLong = 9;      // compare with bytes_
        static constexpr uint64_t kIsSpecial = 10;  // not compared
        uint64_t first = 0;                         // its bytes, padded with zeros
        uint64_t size = 0;
    };
    [[nodiscard]] Spelling spelling_of(size_t id) const;
    Tokenizer(TokenizerConfig config, BytePairs pairs);
    struct Work;
    template <typename Rest>
    Status take_added(const StringFinder& finder, std::string_view text, Work& work, Rest rest) const;
    Status encode_behind_known(std::string_view text, KnownIds& known, Work& work) const;
    Status encode_text(std::string_view text, Work& work) const;
    Status encode_normalized(std::string_view text, Work& work) const;
    Status encode_piece(std::string_view text, Work& work) const;
    static Status split(const SplitStep& step, std::string_view text, Work& work);

    std::vector<std::string> bytes_;
    std::vector<Kind> kind_;  // by id
    std::vector<Spelling> spellings_;
    BytePairs pairs_;
    std::optional<SentencePieces> pieces_;
    bool compose_;
    std::vector<SplitStep> splits_;
    std::vector<AddedToken> added_;
    StringFinder raw_added_;         // values: index into added_
    StringFinder normalized_added_;  // the same
    StringFinder special_;           // the same
    std::vector<TokenId> before_;
    std::vector<TokenId> after_;
};

// Equal digests: equal tokens under equal ids. Tokens of one tokenizer mean nothing to another.
[[nodiscard]] Digest digest_of(const Tokenizer& tokenizer);

}  // namespace verbatim::text
