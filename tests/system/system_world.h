// tests/system/system_world.h: a server, its clients and its machine, simulated on one thread from a scene.
//
// The server is the real one: host, engine, ledger on SQLite, tier in a folder, and in HTTP worlds all from the sockets
// on. Its threads are
// fibers (fiber_threads.h), its disk loses what was not synced, its store, folder and executor fail, and it is stopped,
// killed and started again. Clients fork, rewind, delete, send again, hang up and lie. They check, always:
//   W1  an answer's tokens are those of a model without cache, memory, batches and steps
//   W2  what was answered is there, whatever comes after it; what was not is there whole or not at all
//       (known_conversations.h)
//   W3  a turn id is answered once: the same request gets the recorded answer, another one a refusal
//   W4  every accepted request gets one end; when faults are over, all of them end
//   W5  the engine's invariants hold, and the hash executor reads nothing that it has not written
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/system/fiber_threads.h"
#include "tests/system/known_conversations.h"
#include "tests/system/system_process.h"
#include "tests/system/system_scene.h"

namespace verbatim::tests {

// Counts of what must happen somewhere in many worlds, so that their checks are worth something.
enum class SystemMark : uint8_t {
    kAnswered,       // a turn of a conversation was committed
    kAnonymous,      // and one outside conversations
    kAborted,        // by its client
    kRecorded,       // a request sent again got the recorded answer
    kRecordedLater,  // of a process before this one
    kComputedAgain,  // sent again: its first end was not an answer
    kBusy,           // a conversation with a writer took no other one
    kOtherRequest,   // a known turn id with another request was refused
    kDeletedTurn,    // a turn id of a deleted conversation was refused
    kWrongParent,    // a wrong parent head was refused
    kForked,
    kRewound,
    kRemoved,
    kNameTaken,
    kLedgerFailed,  // a turn or a call ended because the ledger could not store it
    kStoreFaults,   // calls of the store that failed
    kStopped,
    kKilled,
    kKilledInTurn,    // with turns under way
    kKeptUnanswered,  // a turn without an answer was there after a kill
    kLostUnanswered,  // and was not
    kRewritten,       // a turn stayed whose answer the next prompt had in other tokens; not by HTTP
    kLostWrites,      // the disk lost writes
    kDamagedFiles,    // heads were damaged
    kFoundDamage,     // and the tier saw it
    kRestoredHeads,   // from the tier
    kFolderFaults,
    kRetriedTurns,  // by a second executor
    kReplacedExecutors,
    kEvictions,
    kPreemptions,
    kReused,  // requests attached to heads
    kAcceptedDrafts,
    kRolledBack,
    kUnloaded,  // conversations left memory
    kCount,
};
[[nodiscard]] const char* name(SystemMark mark);
using SystemMarks = std::array<int64_t, static_cast<size_t>(SystemMark::kCount)>;

class SystemWorld {
public:
    explicit SystemWorld(const SystemScene& scene);
    SystemWorld(const SystemWorld&) = delete;
    SystemWorld& operator=(const SystemWorld&) = delete;
    ~SystemWorld();
    // Throws at the first violation.
    void run();
    [[nodiscard]] const SystemMarks& marks() const { return marks_; }
    [[nodiscard]] const HttpMarks& http_marks() const { return http_marks_; }
    // A digest of every update that clients got, in order, with the number of switches.
    [[nodiscard]] uint64_t trail() const { return trail_; }

private:
    // A request that a client has sent.
    struct Sent {
        int64_t number = 0;
        std::optional<ConversationKey> key;  // none: outside conversations
        server::HostRequest request;
        int64_t num_known = 0;        // of the prompt's tokens: the client names its conversation in place of them
        std::vector<TokenId> output;  // expected
        FinishReason finish = FinishReason::kLength;
        std::optional<RefusalReason> refusal;  // expected whatever the conversation has
        std::optional<RefusalReason> lie;      // it must be refused for this
    };
    struct Live {
        Sent sent;
        std::vector<TokenId> tokens;
        bool is_accepted = false;
        bool is_recorded = false;
        bool was_left = false;
        std::string recorded_id;
    };
    // Of a turn id.
    struct Answered {
        std::string answer_id;
        std::string head;
        int64_t num_reused_tokens = 0;
        int process = 0;
        bool is_deleted = false;
        bool may_be_deleted = false;
    };
    using TurnName = std::pair<ConversationKey, std::string>;

    void act(const SystemEvent& event);
    void turn();
    void retry();
    void lie();
    void anonymous();
    void leave();
    void fork();
    void rewind();
    void remove();
    void look();
    void send_half();
    void stop();
    void kill();
    void run_for(int64_t duration_ns);
    void settle();
    void come_home();
    void check();

    Sent draw_turn(const ConversationKey& key);
    [[nodiscard]] int64_t draw_num_known(const Sent& sent);
    void rewrite_answer(Sent& sent);
    static void fit_to_http(Sent& sent);
    void expect(Sent& sent) const;
    void send(Sent sent);
    void note_ledger_failure(const std::string& problem);
    void hear(const std::function<void()>& what);
    void update(int64_t number, server::HostUpdate update);
    void end(int64_t number, const server::HostUpdate& update);
    void refused(const Live& live, const Refusal& refusal);
    void answered(const Live& live, const server::FinishedUpdate& finished);
    void ask(const server::ConversationCall& call, const ConversationKey& changed, const PossibleContents& results);
    void reply(const server::ConversationCall& call, const ConversationKey& changed,
               const server::ConversationReply& reply);
    void shown(const ConversationKey& key, const server::ConversationReply& reply);
    void note_removed(const ConversationKey& key, bool for_sure);
    void start();
    void end_process();
    void abandon();
    [[nodiscard]] ConversationKey draw_key();
    [[nodiscard]] std::vector<TokenId> draw_tokens(uint64_t max_size);
    [[nodiscard]] bool chance(uint64_t one_in) { return prng_.below(one_in) == 0; }
    void mark(SystemMark what, int64_t count = 1) { marks_[static_cast<size_t>(what)] += count; }
    void leave_trail(uint64_t value);

    const SystemScene scene_;
    const SystemConfig config_;
    Prng prng_;
    std::unique_ptr<FiberThreads> threads_;
    std::unique_ptr<SystemMachine> machine_;
    std::unique_ptr<SystemProcess> process_;
    const ConversationModel::NextToken next_token_;
    KnownConversations known_;
    std::map<int64_t, Live> live_;
    std::map<int64_t, ConversationKey> calls_;  // under way
    int process_number_ = 0;
    int64_t next_number_ = 0;
    bool is_home_ = false;    // there are no more faults
    bool is_ending_ = false;  // the process ends what runs
    bool is_dead_ = false;    // nothing of the process reaches a client any more
    std::vector<Sent> sent_;  // with a turn id
    std::map<TurnName, Answered> answers_;
    std::set<ConversationKey> may_be_removed_;                           // once, whatever came after it
    std::map<ConversationKey, KnownContents> cut_off_;                   // results of turns that a kill cut off
    std::map<ConversationKey, std::pair<Version, KnownContents>> seen_;  // as they were shown last
    std::map<ConversationKey, KnownContents> rewritten_;                 // results of turns behind a rewritten answer
    std::map<ConversationKey, std::vector<std::string>> heads_;  // that answers have named; the last one is the head
    std::set<ConversationKey> unsure_heads_;
    std::string violation_;  // the first one that a client has seen
    SystemMarks marks_{};
    HttpMarks http_marks_{};
    uint64_t trail_ = 0;
};

}  // namespace verbatim::tests
