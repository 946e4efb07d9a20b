#include "simulator/restores.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

size_t at(traces::RowIndex row) { return static_cast<size_t>(index(row)); }

const std::string& numerics_id(const Engine& engine) { return engine.scheduler().numerics_ids().front(); }

}  // namespace

Restores::Restores(const TiersConfig& config, Engine& engine, traces::RequestMaker& requests, size_t num_rows)
    : engine_(engine), requests_(requests), tiers_(config, /*is_timed=*/true), restored_tokens_(num_rows) {
    if (!tiers_.any()) return;
    engine.on_evict([this](const Head& head) { tiers_.keep(head, now_ns_); });
    waits_.emplace(engine, *this, config.restore, [this] { return now_ns_; });
}

std::vector<FoundHead> Restores::find(const CacheSalt& salt, const TokenSeq& tokens, int64_t max_length) {
    return tiers_.find(salt, tokens, numerics_id(engine_), max_length);
}

int64_t Restores::expected_read_ns(const FoundHead& found) const { return tiers_.expected_read_ns(found, now_ns_); }

auto Restores::read(const FoundHead& found) -> Read {
    TokenSeq tokens = tiers_.tokens_of(found);
    return {std::move(tokens), found.num_saved, tiers_.read(found, now_ns_)};
}

bool Restores::import(const Read& read, const ConversationKey& key, traces::RowIndex row) {
    CHECK(read.num_saved >= 0 && read.num_saved <= read.tokens.size(), "a head of {} tokens saves {}",
          read.tokens.size(), read.num_saved);
    const auto imported = engine_.import_head(
        {.key = key, .tokens = read.tokens, .numerics_id = numerics_id(engine_), .digest = {}, .bytes = {}});
    if (!imported) return false;
    ++counts_.restores;
    restored_tokens_[at(row)] = read.num_saved;
    return true;
}

// --- requests that come

int64_t Restores::begin(traces::RowIndex row, ChatRequest& request, int64_t now_ns) {
    now_ns_ = std::max(now_ns_, now_ns);
    if (!waits_ || !request.use_cache) return now_ns;
    tiers_.tick();
    const auto found = waits_->worth_restoring(request, requests_.prompt(row));
    if (!found) return now_ns;
    CHECK(!reads_.contains(row), "row {} waits for a head", index(row));
    const int64_t end_ns = (reads_[row] = read(*found)).end_ns;
    if (end_ns <= now_ns) finish(row, request);
    return end_ns;
}

void Restores::finish(traces::RowIndex row, const ChatRequest& request) {
    const auto of_row = reads_.extract(row);
    CHECK(!of_row.empty(), "row {} waits for no head", index(row));
    const Read& read = of_row.mapped();
    now_ns_ = std::max(now_ns_, read.end_ns);
    if (waits_->num_held(request.conversation, requests_.prompt(row)) >= read.tokens.size()) return;
    if (!import(read, request.conversation, row)) ++counts_.no_room;
}

void Restores::note_accepted(traces::RowIndex row, RequestId request) {
    if (!waits_) return;
    const bool is_new = rows_.emplace(request, row).second;
    CHECK(is_new, "request {} is accepted twice", index(request));
}

// --- requests that are about to attach

// A head may go from its tier before it is read once more, from an earlier token on.
void Restores::begin_read(RequestId request, const FoundHead& found) {
    if (!tiers_.has(found)) return waits_->note_read(request, /*is_whole=*/false);
    awaited_[request] = read(found);
}

bool Restores::import(RequestId request, const FoundHead& found) {
    const Read& read = awaited_.at(request);
    CHECK_EQ(read.tokens.size(), found.length);
    return import(read, engine_.find(request)->request.conversation, rows_.at(request));
}

void Restores::bring(int64_t now_ns) {
    now_ns_ = std::max(now_ns_, now_ns);
    if (!waits_) return;
    for (auto next = awaited_.begin(); next != awaited_.end();) {
        const auto read = next++;
        if (read->second.is_over || read->second.end_ns > now_ns_) continue;
        read->second.is_over = true;
        waits_->note_read(read->first, /*is_whole=*/true);
    }
    waits_->bring();
}

int64_t Restores::next_read_ns() const {
    int64_t next_ns = std::numeric_limits<int64_t>::max();
    for (const auto& [request, read] : awaited_)
        if (!read.is_over) next_ns = std::min(next_ns, read.end_ns);
    return next_ns;
}

void Restores::note_step(const StepWork& work, int64_t took_ns, int64_t now_ns) {
    CHECK_GE(took_ns, 0);
    now_ns_ = std::max(now_ns_, now_ns);
    RestoreRule::StepTokens tokens;
    for (const StepWork::Chunk& chunk : work.chunks) tokens.add(chunk.num_new);
    tokens.all = work.num_tokens;
    if (waits_) waits_->note_step(tokens, took_ns);
}

void Restores::take(std::vector<RowTimes>& times, RestoreCounts& restores, std::vector<TierCounts>& tiers) {
    tiers_.verify();
    CHECK_EQ(times.size(), restored_tokens_.size());
    for (size_t row = 0; row < times.size(); ++row) {
        const int64_t restored = std::min(restored_tokens_[row], times[row].reused_tokens);
        times[row].restored_tokens += restored;
        counts_.restored_tokens += restored;
    }
    restores = counts_;
    tiers = tiers_.counts();
}

}  // namespace verbatim
