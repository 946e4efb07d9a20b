#include "simulator/restores.h"

#include <algorithm>
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
    if (tiers_.any()) engine.on_evict([this](const Head& head) { tiers_.keep(head, now_ns_); });
}

int64_t Restores::num_held(const ChatRequest& request, const TokenSeq& prompt) const {
    const LookupQuery query{.key = request.conversation, .tokens = prompt, .numerics_id = numerics_id(engine_)};
    return engine_.cache().lookup(query).length;
}

int64_t Restores::begin(traces::RowIndex row, ChatRequest& request, int64_t now_ns) {
    now_ns_ = now_ns;
    if (!tiers_.any() || !request.use_cache) return now_ns;
    tiers_.tick();
    const TokenSeq prompt = requests_.prompt(row);
    if (prompt.empty()) return now_ns;
    const CacheSalt& salt = request.conversation.salt;
    const std::string& numerics = numerics_id(engine_);
    const Tiers::Prompt wanted{salt, prompt, numerics, num_held(request, prompt),
                               engine_.cache().resident_prefix(salt, prompt, numerics).length};
    auto read = tiers_.read(wanted, now_ns, request.num_unrestored);
    if (!read) return now_ns;
    CHECK_GT(read->end_ns, now_ns);
    const int64_t end_ns = read->end_ns;
    reads_[row] = *std::move(read);
    return end_ns;
}

void Restores::finish(traces::RowIndex row, const ChatRequest& request) {
    auto read = reads_.extract(row);
    CHECK(!read.empty(), "row {} waits for no head", index(row));
    const Tiers::Read& head = read.mapped();
    now_ns_ = std::max(now_ns_, head.end_ns);
    const int64_t length = head.tokens.size();
    if (num_held(request, requests_.prompt(row)) >= length) return;
    const auto imported = engine_.import_head({.key = request.conversation,
                                               .tokens = head.tokens,
                                               .numerics_id = numerics_id(engine_),
                                               .digest = {},
                                               .bytes = {}});
    ++(imported ? counts_.restores : counts_.no_room);
    if (imported) restored_tokens_[at(row)] = length - head.num_held;
}

void Restores::note_step(const StepWork& work, int64_t took_ns, int64_t now_ns) {
    now_ns_ = now_ns;
    RestoreRule::StepTokens tokens;
    for (const StepWork::Chunk& chunk : work.chunks) tokens.add(chunk.num_new);
    tokens.all = work.num_tokens;
    tiers_.note_step(tokens, took_ns);
}

void Restores::take(std::vector<RowTimes>& times, RestoreCounts& restores, std::vector<TierCounts>& tiers) {
    tiers_.verify();
    counts_.not_worth = tiers_.num_not_worth();
    for (size_t row = 0; row < times.size(); ++row) {
        const int64_t restored = std::min(restored_tokens_[row], times[row].reused_tokens);
        times[row].restored_tokens += restored;
        counts_.restored_tokens += restored;
    }
    restores = counts_;
    tiers = tiers_.counts();
}

}  // namespace verbatim
