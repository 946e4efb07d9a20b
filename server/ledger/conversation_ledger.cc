#include "server/ledger/conversation_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

tl::unexpected<Refusal> refuse(RefusalReason reason, const ConversationKey& key, std::string problem) {
    return tl::unexpected(
        Refusal{.reason = reason, .conversation = key.conversation_id, .problem = std::move(problem)});
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

// The turn that a prompt of `now` goes on from, with the answer in the prompt's tokens.
TurnPtr rewritten_turn(const TurnRow& turn, const Ledger::Conversation& now, int64_t end, const TurnRow* before) {
    CHECK(end >= turn.prompt_end && end < now.turns.back().prompt_end, "an answer in tokens [{}, {}) of {}",
          turn.prompt_end, end, now.turns.back().prompt_end);
    TurnRow row = turn;
    row.end = end;
    row.num_text_tokens = end - turn.prompt_end;
    row.num_text_bytes = -1;
    row.tokens = cut(now.committed, before == nullptr ? 0 : before->end, end);
    row.chain = chain_after(before == nullptr ? Digest{} : before->chain, row.tokens);
    return std::make_shared<const TurnRow>(std::move(row));
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
    answer.kept = notes.claim->kept;
    return answer;
}

std::vector<Message> parts_of(const ConversationRows& conversation, TokenStore& store) {
    std::vector<Message> parts;
    for (const TurnPtr& turn : conversation.turns) {
        const std::span<const TokenId> tokens(turn->tokens);
        const auto num_generated = static_cast<size_t>(turn->end - turn->prompt_end);
        parts.push_back({store.store(tokens.first(tokens.size() - num_generated))});
        parts.push_back({store.store(tokens.last(num_generated))});
    }
    return parts;
}

std::optional<ConversationView> view_of(const ConversationRows& conversation) {
    if (!conversation.exists()) return std::nullopt;
    return ConversationView{conversation.version, head_name(conversation), conversation.turns};
}

OrRefusal<AnswerPtr> recorded_in(const ConversationRows& conversation, const ConversationKey& key,
                                 const std::string& turn_id, const std::optional<Digest>& request) {
    const auto answer = conversation.answers.find(turn_id);
    if (answer != conversation.answers.end()) {
        if (!request || answer->second->request == *request) return answer->second;
        return refuse(RefusalReason::kTurnMismatch, key,
                      fmt::format(": turn_id '{}' was another request: a new turn needs another id", turn_id));
    }
    if (conversation.deleted.contains(turn_id)) {
        return refuse(RefusalReason::kTurnDeleted, key,
                      fmt::format(": turn '{}' was answered, and deleted with its conversation", turn_id));
    }
    return nullptr;
}

// The turn ids that a change deletes.
std::vector<std::string> deleted_by(const Change& change, const ConversationRows& conversation) {
    std::vector<std::string> deleted;
    if (change.kind != Change::Kind::kRemove) return deleted;
    for (const auto& [turn_id, answer] : conversation.answers) {
        if (!conversation.deleted.contains(turn_id)) deleted.push_back(turn_id);
    }
    return deleted;
}

}  // namespace

std::vector<TokenId> ConversationView::tokens() const {
    std::vector<TokenId> all;
    if (!turns.empty()) all.reserve(static_cast<size_t>(turns.back()->end));
    for (const TurnPtr& turn : turns) all.insert(all.end(), turn->tokens.begin(), turn->tokens.end());
    return all;
}

ConversationLedger::ConversationLedger(std::unique_ptr<LedgerStore> store, LedgerWriterConfig config,
                                       LedgerMemory memory)
    : store_(std::move(store)), config_(config), memory_(memory) {}

ConversationLedger::~ConversationLedger() = default;

Status ConversationLedger::open(const LedgerIdentity& identity) {
    if (!store_) return {};
    CHECK(!writer_, "{} is open", where());
    ASSIGN_OR_RETURN(at_once_.num_new_conversations, store_->open(identity));
    writer_ = std::make_unique<LedgerWriter>(*store_, config_);
    return {};
}

// --- what is in memory

bool ConversationLedger::is_kept(const Entry& entry) const {
    return !writer_ || entry.last_change <= writer_->kept().num_changes;
}

// Without a store, what is not in memory is nowhere.
const ConversationRows& ConversationLedger::rows_of(const ConversationKey& key) const {
    static const ConversationRows kNothing;
    const Entry* entry = loaded_.find(key);
    CHECK(entry != nullptr || !writer_, "'{}' is not in memory", key.conversation_id);
    return entry == nullptr ? kNothing : entry->rows;
}

auto ConversationLedger::entry_to_change(const ConversationKey& key) -> Entry& {
    Entry* const entry = loaded_.use(key);
    CHECK(entry != nullptr || !writer_, "'{}' is not in memory", key.conversation_id);
    return entry == nullptr ? loaded_.add(key, {}) : *entry;
}

void ConversationLedger::see_kept(const ConversationKey& key, const See& see, const Done& seen) {
    bool is_loaded = true;
    bool is_kept = true;
    {
        const std::lock_guard lock(mutex_);
        if (const Entry* entry = loaded_.use(key)) {
            see(*entry);
            is_kept = this->is_kept(*entry);
        } else if (!writer_) {
            see(Entry());
        } else {
            is_loaded = false;
        }
    }
    if (!is_loaded) {
        return writer_->load(key, [this, key, see, seen](Result<ConversationRows> loaded) {
            see_loaded(key, std::move(loaded), see, seen);
        });
    }
    if (is_kept) return seen("");
    writer_->write({}, seen);
}

// On the ledger's thread. A change of the conversation, if there was one meanwhile, is not in the store yet: what is in
// memory counts.
void ConversationLedger::see_loaded(const ConversationKey& key, Result<ConversationRows> loaded, const See& see,
                                    const Done& seen) {
    if (!loaded) return seen(loaded.error().message);
    bool is_kept = true;
    {
        const std::lock_guard lock(mutex_);
        if (loaded_.find(key) == nullptr) loaded_.add(key, *std::move(loaded));
        const Entry& entry = *loaded_.use(key);
        see(entry);
        is_kept = this->is_kept(entry);
        loaded_.shrink(memory_.max_bytes, writer_->kept().num_changes, nullptr);
    }
    if (is_kept) return seen("");
    writer_->write({}, seen);
}

PinPtr ConversationLedger::pin_if_ready(const ConversationKey& key) const {
    if (!writer_) return std::make_shared<const Pin>();
    const std::lock_guard lock(mutex_);
    const Entry* entry = loaded_.find(key);
    return entry != nullptr && is_kept(*entry) ? entry->pin : nullptr;
}

void ConversationLedger::make_ready(const ConversationKey& key, const Ready& ready) {
    const auto pin = std::make_shared<PinPtr>();
    see_kept(
        key, [pin](const Entry& entry) { *pin = entry.pin; },
        [pin, ready](const std::string& problem) { ready(problem, std::move(*pin)); });
}

void ConversationLedger::look(const LookQuestion& question, std::function<void(Look)> looked) {
    const auto look = std::make_shared<Look>();
    const auto see = [look, question](const Entry& entry) {
        if (question.turn_id)
            look->recorded = recorded_in(entry.rows, question.key, *question.turn_id, question.request);
        look->view = view_of(entry.rows);
    };
    see_kept(question.key, see, [look, looked = std::move(looked)](const std::string& problem) {
        look->problem = problem;
        looked(std::move(*look));
    });
}

void ConversationLedger::list(const ConversationPage& page, const Listed& listed) {
    if (writer_) {
        writer_->write({}, [this, page, listed](const std::string& problem) {
            if (!problem.empty()) return listed(error("{}", problem));
            writer_->list(page, listed);
        });
        return;
    }
    std::vector<ListedConversation> list;
    {
        const std::lock_guard lock(mutex_);
        list = loaded_.list(page);
    }
    listed(std::move(list));
}

void ConversationLedger::restore_into(Engine& engine, const ConversationKey& key) {
    ConversationRows rows;
    {
        const std::lock_guard lock(mutex_);
        Entry* const entry = loaded_.use(key);
        CHECK(entry != nullptr || !writer_, "'{}' is not in memory", key.conversation_id);
        if (entry == nullptr) return;
        loaded_.enter_engine(*entry);
        if (!entry->rows.exists() || engine.ledger().find(key) != nullptr) return;
        rows.version = entry->rows.version;
        rows.turns = entry->rows.turns;
    }
    const bool restored = engine.restore(key, parts_of(rows, engine.token_store()), rows.version);
    CHECK(restored, "'{}' is there", key.conversation_id);
}

void ConversationLedger::unload_from(Engine& engine) {
    if (!writer_) return;
    const std::lock_guard lock(mutex_);
    loaded_.shrink(memory_.max_bytes, writer_->kept().num_changes, [&](const ConversationKey& key) {
        return engine.ledger().find(key) == nullptr || engine.unload(key);
    });
}

LoadedCounts ConversationLedger::loaded() const {
    const std::lock_guard lock(mutex_);
    return {static_cast<int64_t>(loaded_.size()), loaded_.num_bytes()};
}

std::optional<ConversationView> ConversationLedger::view(const ConversationKey& key) const {
    const std::lock_guard lock(mutex_);
    return view_of(rows_of(key));
}

OrRefusal<AnswerPtr> ConversationLedger::recorded(const ConversationKey& key, const std::string& turn_id,
                                                  const std::optional<Digest>& request) const {
    const std::lock_guard lock(mutex_);
    return recorded_in(rows_of(key), key, turn_id, request);
}

bool ConversationLedger::is_last_shown(const ConversationKey& key, const std::string& turn_id) const {
    const std::lock_guard lock(mutex_);
    const ConversationRows& rows = rows_of(key);
    return std::ranges::all_of(rows.turns, [](const TurnPtr& turn) { return turn->turn_id.has_value(); }) &&
           std::ranges::all_of(rows.answers,
                               [&](const auto& one) { return one.first == turn_id || one.second->kept.empty(); });
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

bool ConversationLedger::committed(const ConversationKey& key, const Ledger::Conversation& now, const TurnNotes& notes,
                                   const HeadDone& done) {
    CHECK(!now.turns.empty(), "'{}' has committed no turn", key.conversation_id);
    Change change{.kind = Change::Kind::kCommit, .key = key, .version = now.version};
    change.num_turns = static_cast<int64_t>(now.turns.size()) - 1;
    TurnPtr before;
    Version version_before = kNoVersion;
    {
        const std::lock_guard lock(mutex_);
        const ConversationRows& known = rows_of(key);
        version_before = known.version;
        const auto num_kept = static_cast<size_t>(change.num_turns);
        if (num_kept > 0) before = known.turns.at(num_kept - 1);
        const bool is_rewritten = notes.rewritten && notes.rewritten->base == version_before;
        if (is_rewritten && known.turns.size() == num_kept + 1) {
            change.rewritten = rewritten_turn(*known.turns.back(), now, notes.rewritten->end, before.get());
            before = change.rewritten;
        }
    }
    CHECK(now.version > version_before, "'{}' goes from version {} to {}", key.conversation_id, index(version_before),
          index(now.version));
    TurnRow row = last_turn(now, notes, before.get());
    CHECK(row.prompt_end <= row.end && row.num_text_tokens <= row.end - row.prompt_end,
          "{} tokens of text from {} to {}", row.num_text_tokens, row.prompt_end, row.end);
    keep_messages(notes.messages, before.get(), version_before, row);
    const auto turn = std::make_shared<const TurnRow>(std::move(row));
    change.turn = turn;
    if (notes.claim) {
        const std::string head = head_name({now.version, {turn}, {}, {}});
        change.answer = std::make_shared<const AnswerRow>(answer_of(*turn, notes, now, head));
    }
    const bool is_rewritten = change.rewritten != nullptr;
    take(std::move(change), key, done);
    return is_rewritten;
}

// The turns that are left of a conversation in the engine are its first turns here.
void ConversationLedger::check_turns(const ConversationKey& key, const Ledger::Conversation& left) const {
    const std::lock_guard lock(mutex_);
    const std::vector<TurnPtr>& turns = rows_of(key).turns;
    CHECK(!left.turns.empty() && left.turns.size() <= turns.size(), "'{}': {} of {} turns", key.conversation_id,
          left.turns.size(), turns.size());
    CHECK_EQ(left.turns.back().end, turns[left.turns.size() - 1]->end);
}

void ConversationLedger::forked(const ConversationKey& from, const std::string& to, const Ledger::Conversation& fork,
                                const HeadDone& done) {
    CHECK(from.conversation_id != to, "'{}' is forked into itself", to);
    Change change{.kind = Change::Kind::kFork, .key = from, .version = fork.version};
    change.num_turns = static_cast<int64_t>(fork.turns.size());
    change.to = to;
    check_turns(from, fork);
    take(std::move(change), {from.salt, to}, done);
}

void ConversationLedger::rewound(const ConversationKey& key, const Ledger::Conversation& now, const HeadDone& done) {
    Change change{.kind = Change::Kind::kRewind, .key = key, .version = now.version};
    change.num_turns = static_cast<int64_t>(now.turns.size());
    check_turns(key, now);
    take(std::move(change), key, done);
}

void ConversationLedger::removed(const ConversationKey& key, Done done) {
    take({.kind = Change::Kind::kRemove, .key = key}, key,
         [done = std::move(done)](const std::string& problem, const std::string&) { done(problem); });
}

void ConversationLedger::forget_answer(const ConversationKey& key, const std::string& turn_id, Done done) {
    Change change{.kind = Change::Kind::kForget, .key = key};
    {
        const std::lock_guard lock(mutex_);
        AnswerRow nothing = *rows_of(key).answers.at(turn_id);
        nothing.output.clear();
        nothing.kept.clear();
        change.answer = std::make_shared<const AnswerRow>(std::move(nothing));
    }
    take(std::move(change), key,
         [done = std::move(done)](const std::string& problem, const std::string&) { done(problem); });
}

// In memory at once; answers of it, when it is kept.
void ConversationLedger::take(Change change, const ConversationKey& of, const HeadDone& done) {
    std::string head;
    {
        const std::lock_guard lock(mutex_);
        Entry& entry = entry_to_change(of);
        const std::vector<std::string> deleted = deleted_by(change, entry.rows);
        apply(change, entry);
        head = head_name(entry.rows);
        if (writer_) {
            const auto head_done = [done, head](const std::string& problem) { done(problem, head); };
            entry.last_change = writer_->write(std::move(change), head_done);
            return;
        }
        at_once_.num_commits += change.kind == Change::Kind::kCommit ? 1 : 0;
        at_once_.num_new_conversations += change.num_new_conversations;
        if (change.kind == Change::Kind::kRemove) remember_deleted(of, deleted);
    }
    done("", head);
}

// `entry`: of the conversation that becomes another one; of a fork's `to`.
void ConversationLedger::apply(Change& change, Entry& entry) {
    const bool needs_turns = change.kind == Change::Kind::kRewind || change.kind == Change::Kind::kRemove;
    CHECK(!needs_turns || entry.rows.exists(), "'{}' has nothing to change", change.key.conversation_id);
    const bool existed = entry.rows.exists();
    if (change.kind == Change::Kind::kFork)
        apply_change(change, entry_to_change(change.key).rows, &entry.rows);
    else
        apply_change(change, entry.rows);
    loaded_.count(entry);
    change.num_new_conversations = (entry.rows.exists() ? 1 : 0) - (existed ? 1 : 0);
}

// Without a store: the newest turn ids, and all of the conversation that was deleted last.
void ConversationLedger::remember_deleted(const ConversationKey& key, const std::vector<std::string>& turn_ids) {
    CHECK(!writer_, "the store has the deleted turns");
    for (const std::string& turn_id : turn_ids) deleted_in_order_.emplace_back(key, turn_id);
    const auto erase_empty = [&](const ConversationKey& of) {
        const Entry* entry = loaded_.find(of);
        if (entry != nullptr && !entry->rows.exists() && entry->rows.deleted.empty()) loaded_.erase(of);
    };
    while (deleted_in_order_.size() > std::max(memory_.max_deleted_turns, turn_ids.size())) {
        const auto [oldest, turn_id] = std::move(deleted_in_order_.front());
        deleted_in_order_.pop_front();
        Entry& entry = entry_to_change(oldest);
        entry.rows.deleted.erase(turn_id);
        loaded_.count(entry);
        erase_empty(oldest);
    }
    erase_empty(key);
}

size_t ConversationLedger::close() { return writer_ ? writer_->close() : 0; }

}  // namespace verbatim::server
