#include "server/ledger/conversation_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

tl::unexpected<Refusal> refuse(RefusalReason reason, std::string message) {
    return tl::unexpected(Refusal{reason, std::move(message), std::nullopt});
}

std::vector<TokenId> cut(const TokenSeq& tokens, int64_t begin, int64_t end) {
    std::vector<TokenId> part(static_cast<size_t>(end - begin));
    tokens.read(begin, part);
    return part;
}

// The messages behind those that the conversation has kept. A conversation that has moved on since they were compared
// keeps all of them.
void keep_messages(const AskedMessages& asked, const TurnRow* before, Version version_before, TurnRow& row) {
    if (asked.all.empty()) return;
    const int64_t num_kept = before == nullptr ? 0 : before->num_messages;
    row.num_old_messages = asked.base == version_before ? std::min(asked.num_equal, num_kept) : 0;
    const auto own = std::span(asked.all).subspan(static_cast<size_t>(row.num_old_messages));
    row.messages = fmt::format("[{}]", fmt::join(own, ","));
    row.num_messages = static_cast<int64_t>(asked.all.size()) + (asked.continues_last ? 0 : 1);
}

// The conversation's last turn, as it goes on from the one before.
TurnRow last_turn(const Ledger::Conversation& now, const TurnNotes& notes, const TurnRow* before) {
    const Turn& turn = now.turns.back();
    TurnRow row;
    row.prompt_end = turn.prompt_end;
    row.end = turn.end;
    row.finish = turn.finish;
    row.num_text_tokens = notes.stop ? notes.stop->num_text_tokens : turn.end - turn.prompt_end;
    row.num_text_bytes = notes.stop ? notes.stop->num_text_bytes : -1;
    row.version = turn.version;
    if (notes.claim) row.turn_id = notes.claim->turn_id;
    row.tokens = cut(now.committed, before == nullptr ? 0 : before->end, turn.end);
    row.chain = chain_after(before == nullptr ? Digest{} : before->chain, row.tokens);
    return row;
}

AnswerRow answer_of(const TurnRow& turn, const TurnNotes& notes, const Ledger::Conversation& now, std::string head) {
    AnswerRow answer;
    answer.turn_id = notes.claim->turn_id;
    answer.request = notes.claim->request;
    answer.output = cut(now.committed, turn.prompt_end, turn.prompt_end + turn.num_text_tokens);
    answer.finish = turn.finish;
    answer.num_prompt_tokens = turn.prompt_end;
    answer.num_cached_tokens = notes.num_cached_tokens;
    answer.num_output_tokens = turn.num_text_tokens;
    answer.head = std::move(head);
    answer.answer_id = notes.claim->answer_id;
    answer.created = notes.claim->created;
    return answer;
}

std::vector<Message> parts_of(const ConversationRows& conversation, TokenStore& store) {
    std::vector<Message> parts;
    for (const TurnPtr& turn : conversation.turns) {
        const std::span<const TokenId> tokens(turn->tokens);
        const auto num_generated = static_cast<size_t>(turn->end - turn->prompt_end);
        parts.push_back({store.store(tokens.first(tokens.size() - num_generated)), true});
        parts.push_back({store.store(tokens.last(num_generated)), true});
    }
    return parts;
}

}  // namespace

std::vector<TokenId> ConversationView::tokens() const {
    std::vector<TokenId> all;
    if (!turns.empty()) all.reserve(static_cast<size_t>(turns.back()->end));
    for (const TurnPtr& turn : turns) all.insert(all.end(), turn->tokens.begin(), turn->tokens.end());
    return all;
}

ConversationLedger::ConversationLedger(std::unique_ptr<LedgerStore> store, LedgerWriterConfig config)
    : store_(std::move(store)), config_(config) {}

ConversationLedger::~ConversationLedger() { close(); }

Status ConversationLedger::open(const LedgerIdentity& identity) {
    if (!store_) return {};
    CHECK(!writer_, "{} is open", where());
    ASSIGN_OR_RETURN(contents_, store_->open(identity));
    at_once_.num_new_conversations = std::ssize(contents_.conversations);
    writer_ = std::make_unique<LedgerWriter>(*store_, config_);
    return {};
}

void ConversationLedger::restore(Engine& engine) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, conversation] : contents_.conversations) {
        const bool restored = engine.restore(key, parts_of(conversation, engine.token_store()), conversation.version);
        CHECK(restored, "'{}' is there", key.conversation_id);
    }
}

void ConversationLedger::look(const LookQuestion& question, std::function<void(Look)> looked) {
    Look look;
    if (question.turn_id) look.recorded = recorded(question.key, *question.turn_id, question.request);
    look.view = view(question.key);
    if (is_kept(question.key)) return looked(std::move(look));
    when_kept([looked = std::move(looked), look = std::move(look)](const std::string& problem) mutable {
        look.problem = problem;
        looked(std::move(look));
    });
}

bool ConversationLedger::is_kept(const ConversationKey& key) const {
    if (!writer_) return true;
    const std::lock_guard lock(mutex_);
    const auto last = last_changes_.find(key);
    return last == last_changes_.end() || last->second <= writer_->kept().num_changes;
}

std::optional<ConversationView> ConversationLedger::view(const ConversationKey& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = contents_.conversations.find(key);
    if (found == contents_.conversations.end()) return std::nullopt;
    return ConversationView{found->second.version, head_name(found->second), found->second.turns};
}

OrRefusal<AnswerPtr> ConversationLedger::recorded(const ConversationKey& key, const std::string& turn_id,
                                                  const Digest& request) const {
    const std::lock_guard lock(mutex_);
    const auto found = contents_.conversations.find(key);
    if (found != contents_.conversations.end()) {
        const auto answer = found->second.answers.find(turn_id);
        if (answer != found->second.answers.end()) {
            if (answer->second->request == request) return answer->second;
            return refuse(RefusalReason::kTurnMismatch,
                          fmt::format("conversation '{}': turn_id '{}' was another request: a new turn needs an id of "
                                      "its own",
                                      key.conversation_id, turn_id));
        }
    }
    if (contents_.deleted.contains(key, turn_id)) {
        return refuse(RefusalReason::kTurnDeleted,
                      fmt::format("conversation '{}': turn '{}' was answered, and deleted with its conversation",
                                  key.conversation_id, turn_id));
    }
    return nullptr;
}

std::string ConversationLedger::problem() const { return writer_ ? writer_->problem() : ""; }
std::string ConversationLedger::where() const { return store_ ? store_->where() : ""; }

int64_t ConversationLedger::num_conversations() const {
    const std::lock_guard lock(mutex_);
    return at_once_.num_new_conversations + (writer_ ? writer_->kept().num_new_conversations : 0);
}

int64_t ConversationLedger::num_commits() const {
    const std::lock_guard lock(mutex_);
    return at_once_.num_commits + (writer_ ? writer_->kept().num_commits : 0);
}

void ConversationLedger::committed(const ConversationKey& key, const Ledger::Conversation& now, const TurnNotes& notes,
                                   const HeadTold& told) {
    Change change{.kind = Change::Kind::kCommit, .key = key, .version = now.version};
    change.num_turns = static_cast<int64_t>(now.turns.size()) - 1;
    TurnPtr before;
    Version version_before = kNoVersion;
    {
        const std::lock_guard lock(mutex_);
        const auto known = contents_.conversations.find(key);
        if (known != contents_.conversations.end()) version_before = known->second.version;
        if (change.num_turns > 0) before = known->second.turns.at(static_cast<size_t>(change.num_turns) - 1);
    }
    TurnRow row = last_turn(now, notes, before.get());
    keep_messages(notes.messages, before.get(), version_before, row);
    const auto turn = std::make_shared<const TurnRow>(std::move(row));
    change.turn = turn;
    if (notes.claim) {
        const std::string head = head_name({now.version, {turn}, {}});
        change.answer = std::make_shared<const AnswerRow>(answer_of(*turn, notes, now, head));
    }
    take(std::move(change), key, told);
}

void ConversationLedger::forked(const ConversationKey& from, const std::string& to, const Ledger::Conversation& fork,
                                const HeadTold& told) {
    Change change{.kind = Change::Kind::kFork, .key = from, .version = fork.version};
    change.num_turns = static_cast<int64_t>(fork.turns.size());
    change.to = to;
    take(std::move(change), {from.salt, to}, told);
}

void ConversationLedger::rewound(const ConversationKey& key, const Ledger::Conversation& now, const HeadTold& told) {
    Change change{.kind = Change::Kind::kRewind, .key = key, .version = now.version};
    change.num_turns = static_cast<int64_t>(now.turns.size());
    take(std::move(change), key, told);
}

void ConversationLedger::removed(const ConversationKey& key, Told told) {
    take({.kind = Change::Kind::kRemove, .key = key}, key,
         [told = std::move(told)](const std::string& problem, const std::string&) { told(problem); });
}

void ConversationLedger::when_kept(Told told) {
    if (!writer_) return told("");
    writer_->write({}, std::move(told));
}

// In memory at once; answers of it, when it is kept.
void ConversationLedger::take(Change change, const ConversationKey& of, const HeadTold& told) {
    std::string head;
    {
        const std::lock_guard lock(mutex_);
        const auto num_before = std::ssize(contents_.conversations);
        apply_change(change, contents_);
        change.num_new_conversations = std::ssize(contents_.conversations) - num_before;
        const auto found = contents_.conversations.find(of);
        if (found != contents_.conversations.end()) head = head_name(found->second);
        if (writer_) {
            const auto told_head = [told, head](const std::string& problem) { told(problem, head); };
            return note_change(of, writer_->write(std::move(change), told_head));
        }
        at_once_.num_commits += change.kind == Change::Kind::kCommit ? 1 : 0;
        at_once_.num_new_conversations += change.num_new_conversations;
    }
    told("", head);
}

// What is kept by now is forgotten.
void ConversationLedger::note_change(const ConversationKey& key, int64_t number) {
    last_changes_[key] = number;
    in_order_.emplace_back(number, key);
    for (const int64_t num_kept = writer_->kept().num_changes; in_order_.front().first <= num_kept;) {
        const auto last = last_changes_.find(in_order_.front().second);
        if (last != last_changes_.end() && last->second <= num_kept) last_changes_.erase(last);
        in_order_.pop_front();
        if (in_order_.empty()) break;
    }
}

size_t ConversationLedger::close() { return writer_ ? writer_->close() : 0; }

}  // namespace verbatim::server
