#include "engine/tokens/token_seq.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr uint64_t kStoredBit = uint64_t{1} << 63;

bool is_stored(TokenSource source) { return (index(source) & kStoredBit) != 0; }
size_t stored_index(TokenSource source) { return index(source) & ~kStoredBit; }

// The splitmix64 finaliser (Steele, Lea, Flood 2014): a bijection with full avalanche.
uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Uniform over [0, vocab_size) up to 2^-32: the high half of the mix, scaled.
TokenId derived_token(TokenSource space, int64_t position, int32_t vocab_size) {
    const uint64_t key = mix(index(space) * 0x9e3779b97f4a7c15u + 1);
    const uint64_t word = mix(key + static_cast<uint64_t>(position) * 0x9e3779b97f4a7c15u);
    return static_cast<TokenId>(((word >> 32) * static_cast<uint64_t>(vocab_size)) >> 32);
}

}  // namespace

TokenStore::TokenStore(int32_t vocab_size) : vocab_size_(vocab_size) { CHECK_GT(vocab_size, 0); }

TokenStore::~TokenStore() { CHECK_EQ(num_live_, 0u); }

TokenSeq TokenStore::store(std::span<const TokenId> tokens) {
    TokenSeq seq;
    if (tokens.empty()) return seq;
    for (const TokenId token : tokens) CHECK(token >= 0 && token < vocab_size_, "token {} of {}", token, vocab_size_);
    size_t slot = stored_.size();
    if (free_.empty()) {
        stored_.emplace_back();
    } else {
        slot = free_.back();
        free_.pop_back();
    }
    stored_[slot].tokens.assign(tokens.begin(), tokens.end());
    ++num_live_;
    stored_tokens_ += tokens.size();
    seq.store_ = this;
    seq.push({TokenSource{slot | kStoredBit}, 0, static_cast<int64_t>(tokens.size())});
    return seq;
}

TokenSeq TokenStore::derive(uint64_t space, int64_t begin, int64_t length) {
    CHECK((space & kStoredBit) == 0 && begin >= 0 && length >= 0);
    TokenSeq seq;
    if (length == 0) return seq;
    seq.store_ = this;
    seq.push({TokenSource{space}, begin, length});
    return seq;
}

void TokenStore::retain(TokenSource source) {
    if (is_stored(source)) ++stored_[stored_index(source)].num_runs;
}

void TokenStore::release(TokenSource source) {
    if (!is_stored(source)) return;
    Stored& stored = stored_[stored_index(source)];
    CHECK_GT(stored.num_runs, 0);
    if (--stored.num_runs > 0) return;
    stored_tokens_ -= stored.tokens.size();
    stored.tokens = {};
    free_.push_back(stored_index(source));
    --num_live_;
}

void TokenStore::read(const TokenRun& run, std::span<TokenId> out) const {
    if (is_stored(run.source)) {
        const auto& tokens = stored_[stored_index(run.source)].tokens;
        std::copy_n(tokens.begin() + run.begin, out.size(), out.begin());
        return;
    }
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = derived_token(run.source, run.begin + static_cast<int64_t>(i), vocab_size_);
    }
}

TokenSeq::TokenSeq(const TokenSeq& other) : store_(other.store_), runs_(other.runs_), ends_(other.ends_) {
    for (const TokenRun& run : runs_) store_->retain(run.source);
}

TokenSeq::TokenSeq(TokenSeq&& other) noexcept
    : store_(other.store_), runs_(std::exchange(other.runs_, {})), ends_(std::exchange(other.ends_, {})) {}

TokenSeq& TokenSeq::operator=(TokenSeq other) noexcept {
    std::swap(store_, other.store_);
    std::swap(runs_, other.runs_);
    std::swap(ends_, other.ends_);
    return *this;
}

TokenSeq::~TokenSeq() {
    for (const TokenRun& run : runs_) store_->release(run.source);
}

TokenId TokenSeq::at(int64_t position) const {
    TokenId token = 0;
    read(position, {&token, 1});
    return token;
}

void TokenSeq::read(int64_t begin, std::span<TokenId> out) const {
    const int64_t end = begin + static_cast<int64_t>(out.size());
    CHECK(begin >= 0 && end <= size(), "tokens [{}, {}) of {}", begin, end, size());
    size_t i = out.empty() ? 0 : run_at(begin);
    while (!out.empty()) {
        const int64_t skipped = begin - (ends_[i] - runs_[i].length);
        const int64_t count = std::min<int64_t>(ends_[i] - begin, static_cast<int64_t>(out.size()));
        store_->read({runs_[i].source, runs_[i].begin + skipped, count}, out.first(count));
        out = out.subspan(count);
        begin += count;
        ++i;
    }
}

std::vector<TokenId> TokenSeq::to_vector() const {
    std::vector<TokenId> tokens(size());
    read(0, tokens);
    return tokens;
}

TokenSeq TokenSeq::slice(int64_t begin, int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= size(), "slice [{}, {}) of {}", begin, end, size());
    TokenSeq result;
    if (begin == end) return result;
    result.store_ = store_;
    for (size_t i = run_at(begin); begin < end; ++i) {
        const int64_t skipped = begin - (ends_[i] - runs_[i].length);
        const int64_t count = std::min(ends_[i], end) - begin;
        result.push({runs_[i].source, runs_[i].begin + skipped, count});
        begin += count;
    }
    return result;
}

void TokenSeq::append(const TokenSeq& other) {
    if (other.empty()) return;
    CHECK(empty() || store_ == other.store_);
    if (&other == this) return append(TokenSeq(other));
    store_ = other.store_;
    for (const TokenRun& run : other.runs_) push(run);
}

void TokenSeq::push(TokenRun run) {
    if (!runs_.empty() && runs_.back().source == run.source && runs_.back().begin + runs_.back().length == run.begin) {
        runs_.back().length += run.length;
        ends_.back() += run.length;
        return;
    }
    store_->retain(run.source);
    ends_.push_back(size() + run.length);
    runs_.push_back(run);
}

size_t TokenSeq::run_at(int64_t position) const {
    return std::upper_bound(ends_.begin(), ends_.end(), position) - ends_.begin();
}

int64_t TokenSeq::common_prefix(const TokenSeq& other) const {
    const int64_t limit = std::min(size(), other.size());
    int64_t position = 0;
    for (size_t i = 0, j = 0; position < limit; i += ends_[i] == position, j += other.ends_[j] == position) {
        const TokenRun a{runs_[i].source, runs_[i].begin + position - (ends_[i] - runs_[i].length), 0};
        const TokenRun b{other.runs_[j].source,
                         other.runs_[j].begin + position - (other.ends_[j] - other.runs_[j].length), 0};
        const int64_t count = std::min(ends_[i], other.ends_[j]) - position;
        if (a == b) {
            position += count;
            continue;
        }
        std::array<TokenId, 64> left;
        std::array<TokenId, 64> right;
        for (int64_t done = 0; done < count;) {
            const int64_t n = std::min<int64_t>(count - done, left.size());
            store_->read({a.source, a.begin + done, n}, std::span(left).first(n));
            other.store_->read({b.source, b.begin + done, n}, std::span(right).first(n));
            const auto differ = std::mismatch(left.begin(), left.begin() + n, right.begin()).first - left.begin();
            position += differ;
            if (differ < n) return position;
            done += n;
        }
    }
    return position;
}

bool TokenSeq::starts_with(const TokenSeq& prefix) const {
    return prefix.size() <= size() && common_prefix(prefix) == prefix.size();
}

std::strong_ordering operator<=>(const TokenSeq& a, const TokenSeq& b) {
    const int64_t common = a.common_prefix(b);
    if (common == a.size() || common == b.size()) return a.size() <=> b.size();
    return a.at(common) <=> b.at(common);
}

void TokenSeq::add_to(Digester& digester) const {
    digester.add(static_cast<uint64_t>(runs_.size()));
    for (const TokenRun& run : runs_) {
        digester.add(run.source);
        digester.add(run.begin);
        digester.add(run.length);
    }
}

}  // namespace verbatim
