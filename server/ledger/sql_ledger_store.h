// server/ledger/sql_ledger_store.h: owns the tables of a ledger in a database, and their versions.
//
// Every change has a number, and the ledger's row holds the number of the last one, updated in the changes'
// transaction. That number shows whether a transaction with a lost reply was committed, and whether another process has
// written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/ledger/ledger_store.h"
#include "server/ledger/sql_database.h"

namespace verbatim::server {

// Statements that bring a ledger from one schema version to the next: migrations[0] makes version 1 of nothing.
using SqlMigrations = std::vector<std::vector<std::string>>;
[[nodiscard]] const SqlMigrations& ledger_migrations();

class SqlLedgerStore final : public LedgerStore {
public:
    explicit SqlLedgerStore(std::unique_ptr<SqlDatabase> database,
                            const SqlMigrations& migrations = ledger_migrations(),
                            WhereNone where_none = WhereNone::kMake);

    Result<int64_t> open(const LedgerIdentity& identity) override;
    Result<ConversationRows> load(const ConversationKey& key) override;
    Result<std::vector<ListedConversation>> list(const ConversationPage& page) override;
    Status apply(std::span<const Change> changes) override;
    [[nodiscard]] std::string where() const override { return database_->where(); }

private:
    Status migrate(const LedgerIdentity& identity);
    Status migrate_in_transaction(const LedgerIdentity& identity, int64_t version);
    Result<int64_t> read_ledger(const LedgerIdentity& identity);
    Result<ConversationRows> read(const ConversationKey& key);
    Result<std::vector<ListedConversation>> read_list(const ConversationPage& page);
    Status read_turns(const ConversationKey& key, ConversationRows& conversation);
    Status read_answers(const ConversationKey& key, ConversationRows& conversation);
    Status read_deleted(const ConversationKey& key, ConversationRows& conversation);
    Status recover();
    Status in_transaction(const std::function<Status()>& deed);
    Result<bool> move_last_change(int64_t to, int64_t num_new_conversations);
    Status carry_out(const Change& change, int64_t number);
    Status insert_turn(const ConversationKey& key, int64_t number, const TurnRow& turn);
    Status commit(const Change& change);
    Status fork(const Change& change);
    Status keep_turns(const Change& change);
    Status set_version(const Change& change, const std::string& conversation_id);
    Status forget(const Change& change);
    Status remove(const Change& change, int64_t number);

    std::unique_ptr<SqlDatabase> database_;
    SqlMigrations migrations_;
    WhereNone where_none_;
    int64_t last_change_ = 0;
    int32_t vocab_size_ = 0;
    bool failed_ = false;  // the last call
};

}  // namespace verbatim::server
