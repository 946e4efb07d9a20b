// tests/engine/model/conversation_model.h: the engine's expected answers, from the simplest possible model.
//
// A conversation is a vector of tokens and the ends of its turns. There is no cache, no memory, no batch and no step:
// an answer is sampled from all of its tokens when the request comes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace verbatim::tests {

using Tokens = std::vector<TokenId>;

struct ModelTurn {
    size_t prompt_end = 0;
    size_t end = 0;
    size_t num_text = 0;
    std::optional<std::string> turn_id;
    FinishReason finish = FinishReason::kLength;
    HeadId head = kNoHead;
    Version version = kNoVersion;
};

// The recorded answer of a turn_id.
struct ModelAnswer {
    ChatRequest request;
    Tokens text;
    FinishReason finish = FinishReason::kLength;
    Version version = kNoVersion;
};

struct ModelConversation {
    Tokens committed;
    std::vector<ModelTurn> turns;
    std::map<std::string, ModelAnswer> answers;
    int64_t version = 0;
};

// A running turn, and its end unless a client or a failure ends it before.
struct ModelRequest {
    ChatRequest request;
    ConversationKey key;
    Tokens prompt;
    Tokens output;
    size_t num_text = 0;  // of the output
    FinishReason reason = FinishReason::kLength;
    bool has_lease = true;
};

class ConversationModel {
public:
    // The token that is sampled behind others, without cache, memory, batches and steps.
    using NextToken = std::function<TokenId(std::span<const TokenId>, const SamplingParams&, Arithmetic)>;
    ConversationModel(const EngineConfig& config, NextToken next_token, TokenId fault_token)
        : config_(config), next_token_(std::move(next_token)), fault_token_(fault_token) {}

    // The expected result of a submission: a refusal, a recorded turn, or (neither) a running turn.
    struct Answer {
        std::optional<RefusalReason> refusal;
        const ModelAnswer* recorded = nullptr;
        Tokens prompt;
    };
    [[nodiscard]] Answer answer(const ChatRequest& request) const;
    // The turn runs, and leases the conversation from now on. `sampling` has the engine's seed.
    void start(RequestId id, const ChatRequest& request, Tokens prompt, const SamplingParams& sampling);
    // The turn ended; throws unless the end is the expected one. `streamed`: the tokens that its client received.
    void finish(const FinishedEvent& event, const Tokens& streamed);

    [[nodiscard]] bool revoke(const ConversationKey& key);
    [[nodiscard]] std::optional<RefusalReason> fork(const ConversationKey& from, const std::string& to,
                                                    std::optional<size_t> num_turns);
    [[nodiscard]] std::optional<RefusalReason> rewind(const ConversationKey& key, size_t num_turns);
    // `left_heads`: turns that never committed have left heads under the id.
    [[nodiscard]] std::optional<RefusalReason> remove(const ConversationKey& key, bool left_heads);

    [[nodiscard]] bool is_leased(const ConversationKey& key) const { return leases_.contains(key); }
    // What an engine knows of a conversation's turns that it restored.
    void restored(const ConversationKey& key);

    // Throws unless the ledger holds exactly these conversations, but for those that are `unloaded`.
    void check(const Ledger& ledger, const std::set<ConversationKey>& unloaded) const;

    [[nodiscard]] const std::map<ConversationKey, ModelConversation>& conversations() const { return conversations_; }
    [[nodiscard]] const std::map<RequestId, ModelRequest>& running() const { return running_; }

private:
    [[nodiscard]] std::optional<RefusalReason> refusal_of(const ChatRequest& request,
                                                          const ModelConversation& known) const;
    [[nodiscard]] int64_t max_tokens(const ChatRequest& request, size_t prompt_size) const;
    void draw(ModelRequest& turn, const ChatRequest& request, SamplingParams sampling) const;
    void commit(const ModelRequest& turn, const FinishedEvent& event);

    EngineConfig config_;
    NextToken next_token_;
    TokenId fault_token_;
    std::map<ConversationKey, ModelConversation> conversations_;
    std::map<ConversationKey, RequestId> leases_;
    std::set<std::pair<ConversationKey, std::string>> deleted_;  // turn ids
    std::map<RequestId, ModelRequest> running_;
};

}  // namespace verbatim::tests
