// tests/system/failing_store.h: a store of the ledger that fails as often as a test says, on simulated threads.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "server/ledger/ledger_store.h"
#include "server/threads.h"

namespace verbatim::tests {

// Keeps nothing, and fails as many calls as it is asked to.
class FailingStore final : public server::LedgerStore {
public:
    Result<int64_t> open(const server::LedgerIdentity&) override { return num_conversations; }
    Result<server::ConversationRows> load(const ConversationKey&) override {
        ++num_loads;
        if (load_failures-- > 0) return tl::unexpected(reading_error);
        return server::ConversationRows{};
    }
    Result<std::vector<server::ListedConversation>> list(const server::ConversationPage&) override {
        ++num_lists;
        if (list_failures-- > 0) return tl::unexpected(reading_error);
        return std::vector<server::ListedConversation>{{.id = "a"}};
    }
    Status apply(std::span<const server::Change> changes) override {
        tries_ns.push_back(server::ThreadScheduler::current()->now_ns());
        if (apply_failures-- > 0) return error("the disk is full");
        batches.push_back(changes.size());
        return {};
    }
    [[nodiscard]] std::string where() const override { return "nowhere"; }

    int64_t num_conversations = 0;  // at the start
    int64_t apply_failures = 0;
    int64_t load_failures = 0;
    int64_t list_failures = 0;
    Error reading_error{"the line is down", ErrorKind::kMachine};
    std::vector<int64_t> tries_ns;  // of apply()
    std::vector<size_t> batches;    // the changes of those that succeeded
    int64_t num_loads = 0;
    int64_t num_lists = 0;
};

}  // namespace verbatim::tests
