// engine/tokens/token_seq.h: sequences of tokens as runs over immutable shared sources.
//
// A source is *stored* (its ids are written out once, shared, and freed with its last run) or *derived* (token i is a
// fixed function of (space, i) and the vocabulary size; nothing is stored). A trace of billions of tokens is a few runs
// per request.
//   T1  a TokenSeq never changes what a run of it reads        sources are immutable
//   T2  equal (source, position) means equal token              so comparing looks at runs before it looks at ids
//   T3  a stored source lives exactly as long as a sequence does that shares a list of runs with it. What an aborted
//       turn has appended behind a conversation's tokens stays with their list: a later turn of other tokens copies
//       the list, and its commit lets the old one go
//   T4  sequences share their lists of runs: a copy, a prefix, and going on from a sequence's end cost no copying of
//       runs
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
    // Tokens derive(space, begin) .. derive(space, begin + length - 1). REQUIRES: space < 2^63, begin >= 0, length >=
    // 0.
    [[nodiscard]] TokenSeq derive(uint64_t space, int64_t begin, int64_t length);

    // The same tokens, copied where a stored source is larger than the part in use: a sequence that keeps a part of a
    // source does not keep the rest.
    [[nodiscard]] TokenSeq trimmed(const TokenSeq& tokens);

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
    // Where they are stored, or read into `room`.
    [[nodiscard]] std::span<const TokenId> ids_of(const TokenRun& run, std::span<TokenId> room) const;

    int32_t vocab_size_;
    std::deque<Stored> stored_;
    std::vector<size_t> free_;  // stored_ entries to use again, last freed first
    size_t num_live_ = 0;
    size_t stored_tokens_ = 0;
};

// A value: the first size() tokens of a shared list of runs. Positions are 0-based; ranges are [begin, end).
class TokenSeq {
public:
    TokenSeq() = default;
    TokenSeq(const TokenSeq& other);
    TokenSeq(TokenSeq&& other) noexcept;
    TokenSeq& operator=(TokenSeq other) noexcept;
    ~TokenSeq();

    [[nodiscard]] int64_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] TokenId at(int64_t position) const;
    void read(int64_t begin, std::span<TokenId> out) const;  // REQUIRES: begin + out.size() <= size()
    [[nodiscard]] std::vector<TokenId> to_vector() const;

    // O(1) from position 0. REQUIRES: 0 <= begin <= end <= size()
    [[nodiscard]] TokenSeq slice(int64_t begin, int64_t end) const;
    // O(runs of `other`) unless another sequence has gone on from this one's end with other tokens. REQUIRES: the same
    // store, or either empty.
    void append(const TokenSeq& other);

    // Length of the longest common prefix: by (source, position) first, then by ids. O(1) where the lists are shared.
    [[nodiscard]] int64_t common_prefix(const TokenSeq& other) const { return common_prefix(other, 0); }
    // The same, when the first `known` tokens are known to be equal. REQUIRES: both have so many.
    [[nodiscard]] int64_t common_prefix(const TokenSeq& other, int64_t known) const;
    [[nodiscard]] bool starts_with(const TokenSeq& prefix) const;
    // Lexicographic by ids; a proper prefix comes first.
    friend std::strong_ordering operator<=>(const TokenSeq& a, const TokenSeq& b);
    friend bool operator==(const TokenSeq& a, const TokenSeq& b) { return (a <=> b) == 0; }

    [[nodiscard]] size_t num_runs() const { return num_runs_; }
    [[nodiscard]] TokenRun run(size_t i) const;  // REQUIRES: i < num_runs(); no two neighbours could be one run
    void add_to(Digester& digester) const;       // size, then every id: the same however the runs are cut
    // A digest of tokens [begin, end) behind `before`, in O(stored tokens + derived runs). Stored tokens enter by id,
    // derived ones by their place: sequences of equal digests are equal but for chance, equal sequences have equal
    // digests where the same ones of their tokens are stored.
    [[nodiscard]] uint64_t prefix_digest(int64_t begin, int64_t end, uint64_t before) const;

private:
    friend class TokenStore;
    struct Entry {
        TokenSource source{};
        int64_t begin = 0;  // position inside the source
        int64_t end = 0;    // position inside the sequence, after this run
    };
    struct Runs {  // grows at its end only
        TokenStore* store = nullptr;
        int64_t num_owners = 1;
        Entry first;  // which most lists have alone
        std::vector<Entry> others;
        [[nodiscard]] size_t size() const { return first.end == 0 ? 0 : others.size() + 1; }
        [[nodiscard]] const Entry& operator[](size_t i) const { return i == 0 ? first : others[i - 1]; }
        [[nodiscard]] Entry& back() { return others.empty() ? first : others.back(); }
        void push_back(const Entry& entry);
    };
    void push(TokenRun run);
    int64_t go_on(const TokenRun& run);
    void own();
    static void drop(Runs* runs);
    static int64_t common_length(const TokenStore& store, TokenRun a, const TokenStore& other, TokenRun b);
    [[nodiscard]] int64_t begin_of(size_t i) const { return i == 0 ? 0 : (*runs_)[i - 1].end; }
    [[nodiscard]] size_t run_at(int64_t position) const;  // that holds it; REQUIRES: position < size()

    Runs* runs_ = nullptr;  // null when empty
    size_t num_runs_ = 0;   // of runs_, the last one perhaps in part
    int64_t size_ = 0;
};

}  // namespace verbatim
