// engine/request_book.h: owns what clients asked for and what the engine reported: prompt, sampling, arithmetic and
// output of every request that runs, and the committed tokens of every conversation.
//
// A Recorder at the engine's door. It reads calls, reported tokens and the ends of turns; it reads no plan, and nothing
// of ledger, cache and scheduler. So a verifier can compare with it what a plan says. Calls and events may be anything:
// a record of a run can be read into a book.
//   B1  a prompt follows from calls and outputs alone: the request's messages, behind the committed tokens for a suffix
//   B2  a request is in the book from its submission until its turn commits or is discarded
//   B3  an output is the request's forced output; else what was drawn for it, where that is known; else what was
//       reported
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/ledger/ledger.h"
#include "engine/recorder.h"
#include "engine/request/request.h"
#include "engine/step_plan.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

// A request that runs.
struct AskedRequest {
    ConversationKey conversation;
    TokenSeq prompt;          // all of it
    SamplingParams sampling;  // with the seed: the request's, or the one that the engine drew at submission
    Arithmetic arithmetic = Arithmetic::kDeterministic;
    int64_t first_scored = 0;  // the first position of the prompt that is yet to be scored; scored_end(): none
    bool draws = true;         // false: max_tokens is 0, the prompt is computed and nothing is drawn
    TokenSeq forced_output;
    bool has_grammar = false;
    std::deque<TokenMask> masks;  // of its next tokens, with a grammar
    std::vector<TokenId> output;  // so far
    size_t num_kept_turns = 0;    // of its conversation, when it commits

    [[nodiscard]] int64_t num_tokens() const { return prompt.size() + static_cast<int64_t>(output.size()); }
    [[nodiscard]] int64_t scored_end() const { return prompt.size() - (draws ? 1 : 0); }
    // REQUIRES: 0 <= position < num_tokens()
    [[nodiscard]] TokenId token(int64_t position) const {
        if (position < prompt.size()) return prompt.at(position);
        return output.at(static_cast<size_t>(position - prompt.size()));
    }

    bool draws_are_known = false;       // expect() was called
    std::vector<TokenId> not_reported;  // of the tokens drawn in the last step, in reverse order
};

// The engine reported another token than the one that was drawn, or that the request forces.
struct WrongToken {
    RequestId request{-1};
    int64_t position = -1;  // of the token
    TokenId reported = -1;
    TokenId wanted = -1;  // -1: no token at all
};

class RequestBook final : public Recorder {
public:
    // `store` is borrowed, and the engine's.
    RequestBook(const TokenTemplate& token_template, TokenStore& store)
        : token_template_(token_template), store_(store) {}

    void on_plan(const StepPlan& /*plan*/) override {}
    void on_token(RequestId request, TokenId token) override;
    void on_event(const Event& event) override;
    void on_call(const Call& call) override;

    // Null: the request does not run, or was never submitted.
    [[nodiscard]] const AskedRequest* find(RequestId request) const;
    // Empty: nothing is committed.
    [[nodiscard]] TokenSeq committed(const ConversationKey& key) const;
    // Prompt and output in one.
    [[nodiscard]] TokenSeq tokens_of(const AskedRequest& asked) const;

    // What an executor drew for the request in this step; the engine reports these tokens, or the first of them.
    void expect(RequestId request, std::span<const TokenId> drawn);
    // An executor has scored the request's positions before this one.
    void scored(RequestId request, int64_t end);
    // Called with every wrong token; null: not called.
    void on_wrong_token(std::function<void(const WrongToken&)> listener) { listener_ = std::move(listener); }

private:
    struct Turn {
        int64_t prompt_end = 0;
        int64_t end = 0;
    };
    struct Conversation {
        TokenSeq committed;
        std::vector<Turn> turns;
        std::optional<RequestId> writer;
    };
    void submit(const Call& call);
    void allow(const Call& call);
    void fork(const Call& call);
    void rewind(const Call& call);
    void remove(const Call& call);
    void restore(const Call& call);
    void unload(const Call& call);
    void set_prompt(const ChatRequest& request, const Conversation& conversation, AskedRequest& asked) const;
    void commit(RequestId request);
    void give_back(const ConversationKey& key, std::optional<RequestId> writer);
    [[nodiscard]] Conversation* with_turns(const ConversationKey& key);

    TokenTemplate token_template_;
    TokenStore& store_;
    std::map<RequestId, AskedRequest> running_;
    std::map<ConversationKey, Conversation> conversations_;
    std::function<void(const WrongToken&)> listener_;
};

}  // namespace verbatim
