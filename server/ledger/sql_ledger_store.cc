#include "server/ledger/sql_ledger_store.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

// --- values as they lie in columns

// No salt is one more salt.
std::string salt_column(const CacheSalt& salt) { return salt.value ? "+" + *salt.value : "-"; }

std::string tokens_column(const std::vector<TokenId>& tokens) {
    std::string bytes(tokens.size() * sizeof(TokenId), '\0');
    if (!tokens.empty()) std::memcpy(bytes.data(), tokens.data(), bytes.size());
    return bytes;
}

std::vector<TokenId> tokens_of(const std::string& column) {
    std::vector<TokenId> tokens(column.size() / sizeof(TokenId));
    if (!tokens.empty()) std::memcpy(tokens.data(), column.data(), tokens.size() * sizeof(TokenId));
    return tokens;
}

std::string digest_column(const Digest& digest) {
    std::string bytes(2 * sizeof(uint64_t), '\0');
    std::memcpy(bytes.data(), &digest.high, sizeof digest.high);
    std::memcpy(bytes.data() + sizeof digest.high, &digest.low, sizeof digest.low);
    return bytes;
}

Digest digest_of(const std::string& column) {
    Digest digest;
    if (column.size() != 2 * sizeof(uint64_t)) return digest;
    std::memcpy(&digest.high, column.data(), sizeof digest.high);
    std::memcpy(&digest.low, column.data() + sizeof digest.high, sizeof digest.low);
    return digest;
}

SqlValue optional_column(const std::optional<std::string>& text) { return text ? SqlValue(*text) : SqlValue(); }

// Takes the values of a row one by one. A value of another type counts as none of its kind, and is noticed at the end.
class RowReader {
public:
    explicit RowReader(const SqlRow& row) : row_(row) {}
    std::string bytes() { return as<std::string>(next()); }
    int64_t number() { return as<int64_t>(next()); }
    std::optional<std::string> optional_bytes() {
        const SqlValue& value = next();
        if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
        return as<std::string>(value);
    }
    [[nodiscard]] bool good() const { return good_; }

private:
    const SqlValue& next() {
        CHECK_LT(next_, row_.size());
        return row_[next_++];
    }
    template <typename T>
    T as(const SqlValue& value) {
        const T* const found = std::get_if<T>(&value);
        good_ = good_ && found != nullptr;
        return found != nullptr ? *found : T{};
    }
    const SqlRow& row_;
    size_t next_ = 0;
    bool good_ = true;
};

tl::unexpected<Error> damaged(const std::string& what) {
    return error("{}: it is damaged: bring back a copy, or choose another --ledger", what);
}

std::vector<SqlValue> columns_of(const ConversationKey& key) { return {salt_column(key.salt), key.conversation_id}; }

Result<FinishReason> finish_of(int64_t column) {
    if (column < 0 || column > static_cast<int64_t>(FinishReason::kStopString))
        return damaged(fmt::format("no turn ends by reason {}", column));
    return static_cast<FinishReason>(column);
}

}  // namespace

// What is here is never changed, only followed: ledgers of every version are in the world.
const SqlMigrations& ledger_migrations() {
    static const SqlMigrations kMigrations = {
        {
            "CREATE TABLE verbatim_ledger (id BIGINT PRIMARY KEY, schema_version BIGINT NOT NULL, last_change BIGINT "
            "NOT "
            "NULL, tokenizer BYTEA NOT NULL)",
            "CREATE TABLE verbatim_conversations (salt BYTEA NOT NULL, conversation BYTEA NOT NULL, version BIGINT NOT "
            "NULL, PRIMARY KEY (salt, conversation))",
            "CREATE TABLE verbatim_turns (salt BYTEA NOT NULL, conversation BYTEA NOT NULL, number BIGINT NOT NULL, "
            "prompt_end BIGINT NOT NULL, turn_end BIGINT NOT NULL, finish BIGINT NOT NULL, num_text_tokens BIGINT NOT "
            "NULL, num_text_bytes BIGINT NOT NULL, version BIGINT NOT NULL, turn_id BYTEA, chain BYTEA NOT NULL, "
            "tokens "
            "BYTEA NOT NULL, num_old_messages "
            "BIGINT NOT NULL, messages BYTEA NOT NULL, num_messages BIGINT NOT NULL, PRIMARY KEY (salt, conversation, "
            "number))",
            "CREATE TABLE verbatim_answers (salt BYTEA NOT NULL, conversation BYTEA NOT NULL, turn_id BYTEA NOT NULL, "
            "request BYTEA NOT NULL, output BYTEA NOT NULL, finish BIGINT NOT NULL, num_prompt_tokens BIGINT NOT NULL, "
            "num_cached_tokens BIGINT NOT NULL, num_output_tokens BIGINT NOT NULL, head BYTEA NOT NULL, answer_id "
            "BYTEA "
            "NOT NULL, created BIGINT NOT NULL, PRIMARY KEY (salt, conversation, turn_id))",
            "CREATE TABLE verbatim_deleted (salt BYTEA NOT NULL, conversation BYTEA NOT NULL, turn_id BYTEA NOT NULL, "
            "number BIGINT NOT NULL, PRIMARY KEY (salt, conversation, turn_id))",
        },
        {
            // the number of conversations is kept: a start counts none
            "ALTER TABLE verbatim_ledger ADD COLUMN num_conversations BIGINT NOT NULL DEFAULT 0",
            "UPDATE verbatim_ledger SET num_conversations = (SELECT COUNT(*) FROM verbatim_conversations)",
        },
        {
            // responses are shown again
            "ALTER TABLE verbatim_answers ADD COLUMN kept BYTEA NOT NULL DEFAULT ''",
        }};
    return kMigrations;
}

SqlLedgerStore::SqlLedgerStore(std::unique_ptr<SqlDatabase> database, const SqlMigrations& migrations,
                               WhereNone where_none)
    : database_(std::move(database)), migrations_(migrations), where_none_(where_none) {}

// --- opening

Result<int64_t> SqlLedgerStore::open(const LedgerIdentity& identity) {
    const auto opened = [&]() -> Result<int64_t> {
        RETURN_IF_ERROR(database_->connect());
        RETURN_IF_ERROR(migrate(identity));
        return read_ledger(identity);
    }();
    if (opened) return opened;
    return tl::unexpected(
        Error{fmt::format("the ledger {}: {}", where(), opened.error().message), opened.error().kind});
}

Status SqlLedgerStore::migrate(const LedgerIdentity& identity) {
    int64_t version = 0;
    ASSIGN_OR_RETURN(const bool exists, database_->has_table("verbatim_ledger"));
    if (exists) {
        ASSIGN_OR_RETURN(const auto found,
                         database_->rows("SELECT schema_version FROM verbatim_ledger WHERE id = 1", {}));
        if (found.size() != 1) return damaged("its first table is empty");
        RowReader row(found[0]);
        version = row.number();
        if (!row.good() || version < 1) return damaged("its version is no number");
    }
    if (!exists && where_none_ == WhereNone::kRefuse) return error("it has no conversations of this program");
    const auto newest = static_cast<int64_t>(migrations_.size());
    if (version > newest)
        return error("it is of version {}, and this program knows {}: a newer one wrote it", version, newest);
    if (version == newest) return {};
    return in_transaction([&] { return migrate_in_transaction(identity, version); });
}

Status SqlLedgerStore::migrate_in_transaction(const LedgerIdentity& identity, int64_t version) {
    CHECK(version >= 0 && version < std::ssize(migrations_), "from version {} of {}", version, migrations_.size());
    for (auto step = static_cast<size_t>(version); step < migrations_.size(); ++step) {
        for (const std::string& statement : migrations_[step]) RETURN_IF_ERROR(database_->run(statement, {}));
    }
    const SqlValue values[] = {static_cast<int64_t>(migrations_.size()), identity.tokenizer};
    const char* const sql = version == 0 ? "INSERT INTO verbatim_ledger (id, schema_version, last_change, tokenizer) "
                                           "VALUES (1, $1, 0, $2)"
                                         : "UPDATE verbatim_ledger SET schema_version = $1 WHERE id = 1";
    RETURN_IF_ERROR(database_->run(sql, std::span(values).first(version == 0 ? 2 : 1)));
    return {};
}

Result<int64_t> SqlLedgerStore::read_ledger(const LedgerIdentity& identity) {
    ASSIGN_OR_RETURN(
        const auto found,
        database_->rows("SELECT last_change, tokenizer, num_conversations FROM verbatim_ledger WHERE id = 1", {}));
    if (found.size() != 1) return damaged("its first table is empty");
    RowReader row(found[0]);
    last_change_ = row.number();
    if (row.bytes() != identity.tokenizer)
        return error("it holds the tokens of another tokenizer: choose another --ledger for this model");
    const int64_t num_conversations = row.number();
    if (!row.good()) return damaged("its first table cannot be read");
    vocab_size_ = identity.vocab_size;
    return num_conversations;
}

// --- reading

Result<ConversationRows> SqlLedgerStore::load(const ConversationKey& key) {
    RETURN_IF_ERROR(recover());
    auto conversation = read(key);
    failed_ = !conversation;
    if (!conversation || !conversation->exists()) return conversation;
    const std::string problem = problem_of(*conversation, vocab_size_);
    if (!problem.empty()) return damaged(problem);
    return conversation;
}

Result<std::vector<ListedConversation>> SqlLedgerStore::list(const ConversationPage& page) {
    RETURN_IF_ERROR(recover());
    auto list = read_list(page);
    failed_ = !list;
    return list;
}

Result<std::vector<ListedConversation>> SqlLedgerStore::read_list(const ConversationPage& page) {
    const SqlValue values[] = {salt_column(page.salt), page.after, page.limit};
    ASSIGN_OR_RETURN(const auto rows,
                     database_->rows("SELECT c.conversation, c.version, t.number, t.turn_end, t.chain FROM "
                                     "verbatim_conversations c JOIN verbatim_turns t ON t.salt = c.salt AND "
                                     "t.conversation = c.conversation AND t.number = (SELECT MAX(number) FROM "
                                     "verbatim_turns WHERE salt = c.salt AND conversation = c.conversation) WHERE "
                                     "c.salt = $1 AND c.conversation > $2 ORDER BY c.conversation LIMIT $3",
                                     values));
    std::vector<ListedConversation> list;
    for (const SqlRow& columns : rows) {
        RowReader row(columns);
        std::string id = row.bytes();
        const Version version{row.number()};
        const int64_t number = row.number();
        TurnRow last{.end = row.number()};
        last.chain = digest_of(row.bytes());
        if (!row.good() || number < 0) return damaged(fmt::format("the last turn of '{}' cannot be read", id));
        list.push_back(listed_of(std::move(id), version, last, number + 1));
    }
    return list;
}

Result<ConversationRows> SqlLedgerStore::read(const ConversationKey& key) {
    ConversationRows conversation;
    RETURN_IF_ERROR(read_deleted(key, conversation));
    ASSIGN_OR_RETURN(const auto found,
                     database_->rows("SELECT version FROM verbatim_conversations WHERE salt = $1 AND conversation = $2",
                                     columns_of(key)));
    if (found.empty()) return conversation;
    RowReader row(found[0]);
    conversation.version = Version{row.number()};
    if (!row.good()) return damaged("its version is no number");
    RETURN_IF_ERROR(read_turns(key, conversation));
    RETURN_IF_ERROR(read_answers(key, conversation));
    if (!conversation.exists()) return damaged("it has no turn");
    return conversation;
}

Status SqlLedgerStore::read_turns(const ConversationKey& key, ConversationRows& conversation) {
    ASSIGN_OR_RETURN(
        const auto found,
        database_->rows("SELECT number, prompt_end, turn_end, finish, num_text_tokens, num_text_bytes, version, "
                        "turn_id, chain, tokens, num_old_messages, messages, num_messages FROM verbatim_turns "
                        "WHERE salt = $1 AND conversation = $2 ORDER BY number",
                        columns_of(key)));
    for (const SqlRow& one : found) {
        RowReader row(one);
        const int64_t number = row.number();
        TurnRow turn;
        turn.prompt_end = row.number();
        turn.end = row.number();
        ASSIGN_OR_RETURN(turn.finish, finish_of(row.number()));
        turn.num_text_tokens = row.number();
        turn.num_text_bytes = row.number();
        turn.version = Version{row.number()};
        turn.turn_id = row.optional_bytes();
        turn.chain = digest_of(row.bytes());
        turn.tokens = tokens_of(row.bytes());
        turn.num_old_messages = row.number();
        turn.messages = row.bytes();
        turn.num_messages = row.number();
        if (!row.good() || number != std::ssize(conversation.turns))
            return damaged(fmt::format("turn {} is missing", conversation.turns.size() + 1));
        conversation.turns.push_back(std::make_shared<const TurnRow>(std::move(turn)));
    }
    return {};
}

Status SqlLedgerStore::read_answers(const ConversationKey& key, ConversationRows& conversation) {
    ASSIGN_OR_RETURN(
        const auto found,
        database_->rows("SELECT turn_id, request, output, finish, num_prompt_tokens, num_cached_tokens, "
                        "num_output_tokens, head, answer_id, created, kept FROM verbatim_answers WHERE salt = $1 AND "
                        "conversation = $2",
                        columns_of(key)));
    for (const SqlRow& one : found) {
        RowReader row(one);
        AnswerRow answer;
        answer.turn_id = row.bytes();
        answer.request = digest_of(row.bytes());
        answer.output = tokens_of(row.bytes());
        ASSIGN_OR_RETURN(answer.finish, finish_of(row.number()));
        answer.num_prompt_tokens = row.number();
        answer.num_cached_tokens = row.number();
        answer.num_output_tokens = row.number();
        answer.head = row.bytes();
        answer.answer_id = row.bytes();
        answer.created = row.number();
        answer.kept = row.bytes();
        if (!row.good()) return damaged("an answer cannot be read");
        conversation.answers[answer.turn_id] = std::make_shared<const AnswerRow>(answer);
    }
    return {};
}

Status SqlLedgerStore::read_deleted(const ConversationKey& key, ConversationRows& conversation) {
    ASSIGN_OR_RETURN(
        const auto found,
        database_->rows("SELECT turn_id FROM verbatim_deleted WHERE salt = $1 AND conversation = $2", columns_of(key)));
    for (const SqlRow& one : found) {
        RowReader row(one);
        conversation.deleted.insert(row.bytes());
        if (!row.good()) return damaged("a deleted turn cannot be read");
    }
    return {};
}

// What is open after a call that failed is taken back.
Status SqlLedgerStore::recover() { return failed_ ? database_->recover() : Status(); }

// --- changes

Status SqlLedgerStore::in_transaction(const std::function<Status()>& deed) {
    RETURN_IF_ERROR(database_->run("BEGIN", {}));
    RETURN_IF_ERROR(deed());
    RETURN_IF_ERROR(database_->run("COMMIT", {}));
    return {};
}

Status SqlLedgerStore::apply(std::span<const Change> changes) {
    CHECK(!changes.empty());
    RETURN_IF_ERROR(recover());
    failed_ = true;
    const int64_t last = last_change_ + static_cast<int64_t>(changes.size());
    int64_t num_new_conversations = 0;
    for (const Change& change : changes) num_new_conversations += change.num_new_conversations;
    RETURN_IF_ERROR(in_transaction([&]() -> Status {
        ASSIGN_OR_RETURN(const bool moved, move_last_change(last, num_new_conversations));
        int64_t number = last_change_;
        for (const Change& change : changes) {
            if (moved) RETURN_IF_ERROR(carry_out(change, ++number));
        }
        return {};
    }));
    failed_ = false;
    last_change_ = last;
    return {};
}

// False: it was there already; the transaction had ended well, and the answer was lost.
Result<bool> SqlLedgerStore::move_last_change(int64_t to, int64_t num_new_conversations) {
    const SqlValue values[] = {to, last_change_, num_new_conversations};
    ASSIGN_OR_RETURN(const int64_t moved,
                     database_->run("UPDATE verbatim_ledger SET last_change = $1, num_conversations = "
                                    "num_conversations + $3 WHERE last_change = $2",
                                    values));
    if (moved == 1) return true;
    ASSIGN_OR_RETURN(const auto found, database_->rows("SELECT last_change FROM verbatim_ledger WHERE id = 1", {}));
    if (found.size() == 1 && found[0][0] == SqlValue(to)) return false;
    return tl::unexpected(
        Error{"another server has written to it: stop this one, and start it again", ErrorKind::kMachine});
}

Status SqlLedgerStore::carry_out(const Change& change, int64_t number) {
    CHECK_GT(number, last_change_);
    switch (change.kind) {
        case Change::Kind::kNothing: return {};
        case Change::Kind::kCommit: return commit(change);
        case Change::Kind::kFork: return fork(change);
        case Change::Kind::kRewind:
            RETURN_IF_ERROR(keep_turns(change));
            return set_version(change, change.key.conversation_id);
        case Change::Kind::kRemove: return remove(change, number);
        case Change::Kind::kForget: return forget(change);
    }
    CHECK(false, "change {}", static_cast<int>(change.kind));
}

Status SqlLedgerStore::keep_turns(const Change& change) {
    CHECK_GE(change.num_turns, 0);
    const SqlValue values[] = {salt_column(change.key.salt), change.key.conversation_id, change.num_turns};
    RETURN_IF_ERROR(
        database_->run("DELETE FROM verbatim_turns WHERE salt = $1 AND conversation = $2 AND number >= $3", values));
    return {};
}

Status SqlLedgerStore::set_version(const Change& change, const std::string& conversation_id) {
    const SqlValue values[] = {salt_column(change.key.salt), conversation_id, index(change.version)};
    RETURN_IF_ERROR(
        database_->run("INSERT INTO verbatim_conversations (salt, conversation, version) VALUES ($1, $2, $3) "
                       "ON CONFLICT (salt, conversation) DO UPDATE SET version = excluded.version",
                       values));
    return {};
}

Status SqlLedgerStore::insert_turn(const ConversationKey& key, int64_t number, const TurnRow& turn) {
    const SqlValue values[] = {salt_column(key.salt),
                               key.conversation_id,
                               number,
                               turn.prompt_end,
                               turn.end,
                               static_cast<int64_t>(turn.finish),
                               turn.num_text_tokens,
                               turn.num_text_bytes,
                               index(turn.version),
                               optional_column(turn.turn_id),
                               digest_column(turn.chain),
                               tokens_column(turn.tokens),
                               turn.num_old_messages,
                               turn.messages,
                               turn.num_messages};
    RETURN_IF_ERROR(database_->run(
        "INSERT INTO verbatim_turns (salt, conversation, number, prompt_end, turn_end, "
        "finish, num_text_tokens, num_text_bytes, version, turn_id, chain, tokens, num_old_messages, "
        "messages, num_messages) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        values));
    return {};
}

Status SqlLedgerStore::commit(const Change& change) {
    CHECK(change.turn != nullptr, "'{}' commits no turn", change.key.conversation_id);
    CHECK(!change.answer || change.turn->turn_id == change.answer->turn_id, "an answer of another turn");
    RETURN_IF_ERROR(keep_turns(change));
    RETURN_IF_ERROR(set_version(change, change.key.conversation_id));
    int64_t number = change.num_turns;
    if (change.rewritten) RETURN_IF_ERROR(insert_turn(change.key, number++, *change.rewritten));
    RETURN_IF_ERROR(insert_turn(change.key, number, *change.turn));
    if (!change.answer) return {};
    const AnswerRow& answer = *change.answer;
    const SqlValue said[] = {salt_column(change.key.salt),
                             change.key.conversation_id,
                             answer.turn_id,
                             digest_column(answer.request),
                             tokens_column(answer.output),
                             static_cast<int64_t>(answer.finish),
                             answer.num_prompt_tokens,
                             answer.num_cached_tokens,
                             answer.num_output_tokens,
                             answer.head,
                             answer.answer_id,
                             answer.created,
                             answer.kept};
    RETURN_IF_ERROR(
        database_->run("INSERT INTO verbatim_answers (salt, conversation, turn_id, request, output, "
                       "finish, num_prompt_tokens, num_cached_tokens, num_output_tokens, head, answer_id, "
                       "created, kept) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
                       said));
    return {};
}

Status SqlLedgerStore::fork(const Change& change) {
    CHECK_NE(change.to, change.key.conversation_id);
    RETURN_IF_ERROR(set_version(change, change.to));
    const SqlValue values[] = {salt_column(change.key.salt), change.key.conversation_id, change.num_turns, change.to};
    RETURN_IF_ERROR(
        database_->run("INSERT INTO verbatim_turns SELECT salt, $4, number, prompt_end, turn_end, finish, "
                       "num_text_tokens, num_text_bytes, version, turn_id, chain, tokens, num_old_messages, messages, "
                       "num_messages FROM "
                       "verbatim_turns WHERE salt = $1 AND conversation = $2 AND number < $3",
                       values));
    RETURN_IF_ERROR(
        database_->run("INSERT INTO verbatim_answers SELECT salt, $4, turn_id, request, output, finish, "
                       "num_prompt_tokens, num_cached_tokens, num_output_tokens, head, answer_id, created, "
                       "kept FROM verbatim_answers WHERE salt = $1 AND conversation = $2 AND turn_id IN (SELECT "
                       "turn_id FROM verbatim_turns WHERE salt = $1 AND conversation = $2 AND number < $3 "
                       "AND turn_id IS NOT NULL)",
                       values));
    return {};
}

Status SqlLedgerStore::forget(const Change& change) {
    CHECK(change.answer != nullptr, "'{}' forgets no answer", change.key.conversation_id);
    const SqlValue values[] = {salt_column(change.key.salt), change.key.conversation_id, change.answer->turn_id,
                               tokens_column(change.answer->output), change.answer->kept};
    RETURN_IF_ERROR(
        database_->run("UPDATE verbatim_answers SET output = $4, kept = $5 WHERE salt = $1 AND conversation = $2 AND "
                       "turn_id = $3",
                       values));
    return {};
}

Status SqlLedgerStore::remove(const Change& change, int64_t number) {
    const SqlValue values[] = {salt_column(change.key.salt), change.key.conversation_id, number};
    RETURN_IF_ERROR(
        database_->run("INSERT INTO verbatim_deleted SELECT salt, conversation, turn_id, $3 FROM "
                       "verbatim_answers WHERE salt = $1 AND conversation = $2 ON CONFLICT DO NOTHING",
                       values));
    for (const char* table : {"turns", "answers", "conversations"}) {
        RETURN_IF_ERROR(
            database_->run(fmt::format("DELETE FROM verbatim_{} WHERE salt = $1 AND conversation = $2", table),
                           columns_of(change.key)));
    }
    return {};
}

}  // namespace verbatim::server
