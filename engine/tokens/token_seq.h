// engine/tokens/token_seq.h: sequences of tokens as runs over immutable shared sources.
//
// A source is *stored* (its ids are written out once, shared, and freed with its last run) or *derived* (token i is a fixed
// function of (space, i) and the vocabulary size; nothing is stored). A trace of billions of tokens is a few runs per request.
//   T1  a TokenSeq never changes what a run of it reads        sources are immutable
//   T2  equal (source, position) means equal token              so comparing looks at runs before it looks at ids
//   T3  a stored source lives exactly as long as a run names it
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"

namespace verbatim {

class TokenSeq;

// Stored sources count down from the top bit; everything else is the number of a derived space.
enum class TokenSource : uint64_t {};

struct TokenRun {
    TokenSource source{};
    int64_t begin = 0;  // position inside the source
    int64_t length = 0;
    friend bool operator==(const TokenRun&, const TokenRun&) = default;
};

// Owns the stored sources. Outlives every TokenSeq made from it.
class TokenStore {
public:
    explicit TokenStore(int32_t vocab_size);  // REQUIRES: vocab_size > 0
    ~TokenStore();
    TokenStore(const TokenStore&) = delete;
    TokenStore& operator=(const TokenStore&) = delete;

    [[nodiscard]] TokenSeq store(std::span<const TokenId> tokens);  // REQUIRES: every id in [0, vocab_size)
    // Tokens derive(space, begin) .. derive(space, begin + length - 1). REQUIRES: space < 2^63, begin >= 0, length >= 0.
    [[nodiscard]] TokenSeq derive(uint64_t space, int64_t begin, int64_t length);

    [[nodiscard]] int32_t vocab_size() const { return vocab_size_; }
    [[nodiscard]] size_t num_stored_sources() const { return num_live_; }
    [[nodiscard]] size_t stored_tokens() const { return stored_tokens_; }

private:
    friend class TokenSeq;
    struct Stored {
        std::vector<TokenId> tokens;
        int64_t num_runs = 0;
    };
    void retain(TokenSource source);
    void release(TokenSource source);
    void read(const TokenRun& run, std::span<TokenId> out) const;

    int32_t vocab_size_;
    std::deque<Stored> stored_;
    std::vector<size_t> free_;  // stored_ entries to use again, last freed first
    size_t num_live_ = 0;
    size_t stored_tokens_ = 0;
};

// A value: copying shares the sources. Positions are 0-based; ranges are [begin, end).
class TokenSeq {
public:
    TokenSeq() = default;
    TokenSeq(const TokenSeq& other);
    TokenSeq(TokenSeq&& other) noexcept;
    TokenSeq& operator=(TokenSeq other) noexcept;
    ~TokenSeq();

    [[nodiscard]] int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
    [[nodiscard]] bool empty() const { return ends_.empty(); }
    [[nodiscard]] TokenId at(int64_t position) const;
    void read(int64_t begin, std::span<TokenId> out) const;  // REQUIRES: begin + out.size() <= size()
    [[nodiscard]] std::vector<TokenId> to_vector() const;

    [[nodiscard]] TokenSeq slice(int64_t begin, int64_t end) const;  // REQUIRES: 0 <= begin <= end <= size()
    void append(const TokenSeq& other);                              // REQUIRES: the same store, or either empty

    // Length of the longest common prefix: by (source, position) first, then by ids.
    [[nodiscard]] int64_t common_prefix(const TokenSeq& other) const;
    [[nodiscard]] bool starts_with(const TokenSeq& prefix) const;
    // Lexicographic by ids; a proper prefix comes first.
    friend std::strong_ordering operator<=>(const TokenSeq& a, const TokenSeq& b);
    friend bool operator==(const TokenSeq& a, const TokenSeq& b) { return (a <=> b) == 0; }

    [[nodiscard]] std::span<const TokenRun> runs() const { return runs_; }
    void add_to(Digester& digester) const;  // its runs: what a plan digest covers without writing tokens out

private:
    friend class TokenStore;
    void push(TokenRun run);
    [[nodiscard]] size_t run_at(int64_t position) const;  // index of the run that holds `position`

    TokenStore* store_ = nullptr;
    std::vector<TokenRun> runs_;
    std::vector<int64_t> ends_;  // ends_[i] = position after runs_[i]
};

}  // namespace verbatim
