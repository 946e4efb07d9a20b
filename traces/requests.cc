#include "traces/requests.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::traces {
namespace {

size_t place(RowIndex row) { return static_cast<size_t>(index(row)); }

Status check_ids(const Trace& trace, int32_t vocab_size) {
    const auto outside = [vocab_size](TokenId id) { return id < 0 || id >= vocab_size; };
    const auto bad = std::find_if(trace.explicit_ids.begin(), trace.explicit_ids.end(), outside);
    if (bad != trace.explicit_ids.end()) {
        return error("trace: token id {} in a prompt, the model's vocabulary is [0, {})", *bad, vocab_size);
    }
    for (const RowOptions& options : trace.options) {
        std::vector<TokenId> ids = options.stop_tokens;
        for (const auto& stop : options.stop_strings) ids.insert(ids.end(), stop.begin(), stop.end());
        const auto bad_stop = std::find_if(ids.begin(), ids.end(), outside);
        if (bad_stop == ids.end()) continue;
        return error("trace: token id {} in a stop condition, the model's vocabulary is [0, {})", *bad_stop,
                     vocab_size);
    }
    return {};
}

}  // namespace

RequestMaker::RequestMaker(const Trace& trace, TokenStore& store)
    : trace_(&trace), store_(&store), kept_(trace.rows.size()), versions_(trace.rows.size(), kNoVersion) {
    for (const Row& row : trace.rows) {
        if (is_request(row.event) && row.from != kNoRow) ++kept_[place(row.from)].num_takers;
    }
}

Result<RequestMaker> RequestMaker::create(const Trace& trace, TokenStore& store) {
    RETURN_IF_ERROR(check_ids(trace, store.vocab_size()));
    return RequestMaker(trace, store);
}

ConversationKey RequestMaker::key(ConversationIndex conversation) const {
    const Conversation& named = trace_->conversations[static_cast<size_t>(index(conversation))];
    return {CacheSalt{named.salt}, trace_->names[named.name]};
}

TokenSeq RequestMaker::taken(const Row& row) {
    if (row.from == kNoRow || row.event == Event::kRegenerate) {
        return row.from == kNoRow ? TokenSeq{} : kept_[place(row.from)].prompt;
    }
    const Kept& from = kept_[place(row.from)];
    CHECK(from.made, "row {} takes from row {}, which was not made", &row - trace_->rows.data(), index(row.from));
    TokenSeq all = from.prompt;
    if (row.event == Event::kHistory && row.take == Take::kPrompt) return all;
    const bool whole = row.event == Event::kSuffix || row.take == Take::kAll;
    if (from.output) all.append(*from.output);
    const int64_t wanted = whole && from.output ? all.size()
                           : whole              ? planned_end(trace_->row(row.from))
                                                : row.take_tokens;
    if (wanted > all.size()) {
        const int64_t generated = all.size() - from.prompt.size();
        all.append(store_->derive(output_space(row.from), generated, wanted - all.size()));
    }
    return all.slice(0, wanted);
}

void RequestMaker::own_messages(const Row& row, ChatRequest& request, TokenSeq& prompt) {
    Message message;
    for (uint32_t k = 0; k < row.num_pieces; ++k) {
        const Piece& piece = trace_->pieces[row.first_piece + k];
        if (piece.space == Piece::kExplicit) {
            message.tokens.append(
                store_->store(std::span(trace_->explicit_ids)
                                  .subspan(static_cast<size_t>(piece.begin), static_cast<size_t>(piece.length))));
        } else {
            message.tokens.append(store_->derive(piece.space, piece.begin, piece.length));
        }
        if (!piece.ends_message) continue;
        message.checkpoint = piece.checkpoint;
        prompt.append(message.tokens);
        request.messages.push_back(std::exchange(message, {}));
    }
}

ChatRequest RequestMaker::make(RowIndex i) {
    const Row& row = trace_->row(i);
    CHECK(is_request(row.event) && !kept_[place(i)].made, "row {}", index(i));
    const RowOptions& options = trace_->options[row.options];
    ChatRequest request;
    request.conversation = key(row.conversation);
    request.input = row.event == Event::kHistory  ? InputKind::kHistory
                    : row.event == Event::kSuffix ? InputKind::kSuffix
                                                  : InputKind::kRegenerate;
    TokenSeq prompt = taken(row);
    if (row.event == Event::kHistory && !prompt.empty()) request.messages.push_back({prompt, /*checkpoint=*/false});
    own_messages(row, request, prompt);
    if (row.turn != 0) request.turn_id = trace_->names[row.turn];
    if (row.has_parent) request.parent = row.parent == kNoRow ? kNoVersion : versions_[place(row.parent)];
    if (row.max_tokens >= 0) request.max_tokens = row.max_tokens;
    request.sampling = options.sampling;
    request.seed = options.seed;
    request.stop_tokens = options.stop_tokens;
    request.stop_strings = options.stop_strings;
    request.ignore_stop = options.ignore_stop;
    request.use_cache = options.use_cache;
    request.deterministic = options.deterministic;

    Kept& kept = kept_[place(i)];
    kept.prompt = std::move(prompt);
    kept.made = true;
    ++num_kept_;
    if (row.from != kNoRow) {
        --kept_[place(row.from)].num_takers;
        drop_if_unused(row.from);
    }
    return request;
}

const TokenSeq& RequestMaker::prompt(RowIndex row) const {
    const Kept& kept = kept_[place(row)];
    CHECK(kept.made && (!kept.done || kept.num_takers > 0), "the prompt of row {} is gone", index(row));
    return kept.prompt;
}

void RequestMaker::answered(RowIndex row, const TokenSeq& output, Version version) {
    Kept& kept = kept_[place(row)];
    CHECK(kept.made && !kept.done, "row {}", index(row));
    kept.done = true;
    kept.output = output;
    versions_[place(row)] = version;
    drop_if_unused(row);
}

void RequestMaker::drop_if_unused(RowIndex row) {
    Kept& kept = kept_[place(row)];
    if (!kept.made || !kept.done || kept.num_takers > 0) return;
    kept.prompt = {};
    kept.output.reset();
    --num_kept_;
}

Version RequestMaker::version(RowIndex row) const { return versions_[place(row)]; }

}  // namespace verbatim::traces
