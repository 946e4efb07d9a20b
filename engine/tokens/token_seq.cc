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
    int outside = 0;  // counted, not stopped at: many at once
    for (const TokenId token : tokens) outside += static_cast<int>(token < 0) | static_cast<int>(token >= vocab_size_);
    CHECK(outside == 0, "{} of {} tokens are none of {}", outside, tokens.size(), vocab_size_);
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
    seq.runs_ = new TokenSeq::Runs{.store = this};
    seq.push({TokenSource{slot | kStoredBit}, 0, static_cast<int64_t>(tokens.size())});
    CHECK(seq.size() == static_cast<int64_t>(tokens.size()) && stored_[slot].num_runs == 1,
          "{} of {} tokens are stored", seq.size(), tokens.size());
    return seq;
}

TokenSeq TokenStore::derive(uint64_t space, int64_t begin, int64_t length) {
    CHECK((space & kStoredBit) == 0 && begin >= 0 && length >= 0);
    TokenSeq seq;
    if (length == 0) return seq;
    seq.runs_ = new TokenSeq::Runs{.store = this};
    seq.push({TokenSource{space}, begin, length});
    CHECK_EQ(seq.size(), length);
    return seq;
}

TokenSeq TokenStore::trimmed(const TokenSeq& tokens) {
    TokenSeq result;
    for (size_t i = 0; i < tokens.num_runs(); ++i) {
        const TokenRun run = tokens.run(i);
        const int64_t begin = tokens.begin_of(i);
        const bool whole = !is_stored(run.source) ||
                           run.length == static_cast<int64_t>(stored_[stored_index(run.source)].tokens.size());
        const TokenSeq part = tokens.slice(begin, begin + run.length);
        result.append(whole ? part : store(part.to_vector()));
    }
    CHECK_EQ(result.size(), tokens.size());
    return result;
}

void TokenStore::retain(TokenSource source) {
    if (!is_stored(source)) return;
    CHECK_LT(stored_index(source), stored_.size());
    CHECK(!stored_[stored_index(source)].tokens.empty(), "stored tokens {} are gone", stored_index(source));
    ++stored_[stored_index(source)].num_runs;
}

void TokenStore::release(TokenSource source) {
    if (!is_stored(source)) return;
    CHECK_LT(stored_index(source), stored_.size());
    Stored& stored = stored_[stored_index(source)];
    CHECK(stored.num_runs > 0 && num_live_ > 0, "stored tokens {} have {} runs", stored_index(source), stored.num_runs);
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

std::span<const TokenId> TokenStore::ids_of(const TokenRun& run, std::span<TokenId> room) const {
    if (is_stored(run.source))
        return std::span(stored_[stored_index(run.source)].tokens).subspan(run.begin, run.length);
    read(run, room.first(run.length));
    return room.first(run.length);
}

// --- owning a list of runs

TokenSeq::TokenSeq(const TokenSeq& other) : runs_(other.runs_), num_runs_(other.num_runs_), size_(other.size_) {
    if (runs_ == nullptr) return;
    CHECK_GT(runs_->num_owners, 0);
    ++runs_->num_owners;
}

TokenSeq::TokenSeq(TokenSeq&& other) noexcept
    : runs_(std::exchange(other.runs_, nullptr)),
      num_runs_(std::exchange(other.num_runs_, 0)),
      size_(std::exchange(other.size_, 0)) {}

TokenSeq& TokenSeq::operator=(TokenSeq other) noexcept {
    std::swap(runs_, other.runs_);
    std::swap(num_runs_, other.num_runs_);
    std::swap(size_, other.size_);
    return *this;
}

TokenSeq::~TokenSeq() { drop(runs_); }

void TokenSeq::drop(Runs* runs) {
    if (runs == nullptr) return;
    CHECK_GT(runs->num_owners, 0);
    if (--runs->num_owners > 0) return;
    for (size_t i = 0; i < runs->size(); ++i) runs->store->release((*runs)[i].source);
    delete runs;
}

// A separate list, which ends where the sequence does.
void TokenSeq::own() {
    CHECK(num_runs_ > 0 && num_runs_ <= runs_->size(), "{} of {} runs", num_runs_, runs_->size());
    auto* own = new Runs{.store = runs_->store, .first = runs_->first};
    own->others.reserve(num_runs_ + 8);
    own->others.assign(runs_->others.begin(), runs_->others.begin() + static_cast<std::ptrdiff_t>(num_runs_) - 1);
    own->back().end = size_;
    for (size_t i = 0; i < own->size(); ++i) own->store->retain((*own)[i].source);
    drop(std::exchange(runs_, own));
    CHECK_EQ(begin_of(num_runs_), size_);
}

// --- reading

TokenId TokenSeq::at(int64_t position) const {
    TokenId token = 0;
    read(position, {&token, 1});
    return token;
}

TokenRun TokenSeq::run(size_t i) const {
    CHECK_LT(i, num_runs_);
    const Entry& entry = (*runs_)[i];
    return {entry.source, entry.begin, std::min(entry.end, size_) - begin_of(i)};
}

size_t TokenSeq::run_at(int64_t position) const {
    if (position < runs_->first.end) return 0;
    const auto second = runs_->others.begin();
    const auto last = second + static_cast<std::ptrdiff_t>(num_runs_) - 1;
    const auto is_before = [](int64_t at, const Entry& entry) { return at < entry.end; };
    return static_cast<size_t>(std::upper_bound(second, last, position, is_before) - second) + 1;
}

void TokenSeq::read(int64_t begin, std::span<TokenId> out) const {
    const int64_t end = begin + static_cast<int64_t>(out.size());
    CHECK(begin >= 0 && end <= size(), "tokens [{}, {}) of {}", begin, end, size());
    if (out.empty()) return;
    for (size_t i = run_at(begin); !out.empty(); ++i) {
        const TokenRun whole = run(i);
        const int64_t skipped = begin - begin_of(i);
        const int64_t count = std::min<int64_t>(whole.length - skipped, static_cast<int64_t>(out.size()));
        runs_->store->read({whole.source, whole.begin + skipped, count}, out.first(count));
        out = out.subspan(count);
        begin += count;
    }
}

std::vector<TokenId> TokenSeq::to_vector() const {
    std::vector<TokenId> tokens(size());
    read(0, tokens);
    return tokens;
}

// --- making new ones

TokenSeq TokenSeq::slice(int64_t begin, int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= size(), "slice [{}, {}) of {}", begin, end, size());
    TokenSeq result;
    if (begin == end) return result;
    if (begin == 0) {
        result = *this;
        result.size_ = end;
        result.num_runs_ = run_at(end - 1) + 1;
        return result;
    }
    result.runs_ = new Runs{.store = runs_->store};
    for (size_t i = run_at(begin); begin < end; ++i) {
        const TokenRun whole = run(i);
        const int64_t skipped = begin - begin_of(i);
        const int64_t count = std::min(whole.length - skipped, end - begin);
        result.push({whole.source, whole.begin + skipped, count});
        begin += count;
    }
    return result;
}

void TokenSeq::append(const TokenSeq& other) {
    if (other.empty()) return;
    if (empty()) {
        *this = other;
        return;
    }
    CHECK(runs_->store == other.runs_->store);
    const TokenSeq appended = other;  // which may be this one
    const int64_t before = size_;
    for (size_t i = 0; i < appended.num_runs_; ++i) push(appended.run(i));
    CHECK_EQ(size_, before + appended.size());
}

void TokenSeq::Runs::push_back(const Entry& entry) {
    CHECK(entry.end > (size() == 0 ? 0 : back().end), "a run ends at {}", entry.end);
    if (size() == 0) {
        first = entry;
    } else {
        others.push_back(entry);
    }
}

void TokenSeq::push(TokenRun run) {
    CHECK(runs_ != nullptr && run.length >= 0, "a run of {} tokens", run.length);
    while (run.length > 0 && size_ < runs_->back().end) {
        const int64_t taken = go_on(run);
        if (taken == 0) {
            own();
            return push(run);
        }
        run.begin += taken;
        run.length -= taken;
    }
    if (run.length == 0) return;
    if (runs_->size() > 0) {
        Entry& last = runs_->back();
        if (last.source == run.source && last.begin + size_ - begin_of(runs_->size() - 1) == run.begin) {
            last.end = size_ += run.length;
            return;
        }
    }
    runs_->store->retain(run.source);
    size_ += run.length;
    runs_->push_back({run.source, run.begin, size_});
    num_runs_ = runs_->size();
}

// The list goes on beyond this sequence. As many of the run's tokens as lie there next: taken.
int64_t TokenSeq::go_on(const TokenRun& run) {
    const size_t i = size_ < (*runs_)[num_runs_ - 1].end ? num_runs_ - 1 : num_runs_;
    CHECK_LT(i, runs_->size());
    const Entry& next = (*runs_)[i];
    if (next.source != run.source || next.begin + size_ - begin_of(i) != run.begin) return 0;
    const int64_t taken = std::min(run.length, next.end - size_);
    CHECK_GT(taken, 0);
    size_ += taken;
    num_runs_ = i + 1;
    return taken;
}

// --- comparing

namespace {

// Whether the source stands for the same tokens in both stores: each store numbers what it stores by itself.
bool reads_alike(const TokenStore& a, const TokenStore& b, TokenSource source) {
    return &a == &b || (!is_stored(source) && a.vocab_size() == b.vocab_size());
}

}  // namespace

int64_t TokenSeq::common_prefix(const TokenSeq& other, int64_t known) const {
    const int64_t limit = std::min(size(), other.size());
    CHECK(known >= 0 && known <= limit, "{} tokens are known of {}", known, limit);
    if (runs_ == other.runs_ || known == limit) return limit;
    int64_t position = known;
    size_t i = run_at(position);
    size_t j = other.run_at(position);
    while (position < limit) {
        const TokenRun left = run(i);
        const TokenRun right = other.run(j);
        const int64_t left_end = begin_of(i) + left.length;
        const int64_t right_end = other.begin_of(j) + right.length;
        const int64_t count = std::min(left_end, right_end) - position;
        const TokenRun a{left.source, left.begin + position - begin_of(i), count};
        const TokenRun b{right.source, right.begin + position - other.begin_of(j), count};
        const bool is_same = a == b && reads_alike(*runs_->store, *other.runs_->store, a.source);
        const int64_t equal = is_same ? count : common_length(*runs_->store, a, *other.runs_->store, b);
        position += equal;
        if (equal < count) return position;
        i += left_end == position;
        j += right_end == position;
    }
    return position;
}

// By ids, a piece at a time.
int64_t TokenSeq::common_length(const TokenStore& store, TokenRun a, const TokenStore& other, TokenRun b) {
    CHECK_EQ(a.length, b.length);
    std::array<TokenId, 256> left;
    std::array<TokenId, 256> right;
    // Most sequences of different sources part at their first token, so the first look is at few.
    int64_t most = 4;
    for (int64_t done = 0; done < a.length; most = std::min<int64_t>(4 * most, left.size())) {
        const int64_t n = std::min(a.length - done, most);
        const auto left_ids = store.ids_of({a.source, a.begin + done, n}, left);
        const auto right_ids = other.ids_of({b.source, b.begin + done, n}, right);
        if (std::ranges::equal(left_ids, right_ids)) {
            done += n;
            continue;
        }
        const auto equal = std::ranges::mismatch(left_ids, right_ids).in1 - left_ids.begin();
        return done + equal;
    }
    return a.length;
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
    digester.add(size());
    std::array<TokenId, 1024> piece;
    for (int64_t done = 0; done < size();) {
        const auto ids = std::span(piece).first(std::min<size_t>(piece.size(), size() - done));
        read(done, ids);
        digester.bytes(ids.data(), ids.size_bytes());
        done += static_cast<int64_t>(ids.size());
    }
}

uint64_t TokenSeq::prefix_digest(int64_t begin, int64_t end, uint64_t before) const {
    CHECK(begin >= 0 && begin <= end && end <= size_, "[{}, {}) of {} tokens", begin, end, size_);
    if (begin == end) return before;
    uint64_t digest = before;
    for (size_t i = run_at(begin); begin < end; ++i) {
        const TokenRun run = this->run(i);
        const int64_t skipped = begin - begin_of(i);
        const int64_t length = std::min(run.length - skipped, end - begin);
        if (is_stored(run.source)) {
            const auto& stored = runs_->store->stored_[stored_index(run.source)].tokens;
            for (int64_t k = 0; k < length; ++k) {
                const auto token = static_cast<uint64_t>(stored[static_cast<size_t>(run.begin + skipped + k)]);
                digest = (digest ^ token) * 0x9e3779b97f4a7c15u;
                digest ^= digest >> 32;
            }
        } else {
            digest = mix(digest + index(run.source) * 0x9e3779b97f4a7c15u);
            digest = mix(digest ^ static_cast<uint64_t>(run.begin + skipped));
            digest = mix(digest + static_cast<uint64_t>(length));
        }
        begin += length;
    }
    return digest;
}

}  // namespace verbatim
