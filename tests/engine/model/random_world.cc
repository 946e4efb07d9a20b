#include "tests/engine/model/random_world.h"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/fields.h"
#include "tests/engine/model/book_check.h"
#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

// Operations, and the greatest weight that a seed may give each.
enum Operation : uint8_t {
    kSubmit,
    kStep,
    kHalfStep,
    kAbort,
    kRename,
    kRevoke,
    kReplace,
    kUnload,
    kImport,
    kStopAwaiting,
    kNumOperations
};
constexpr std::array<uint64_t, kNumOperations> kGreatestWeight = {12, 30, 8, 4, 4, 3, 2, 6, 4, 12};

}  // namespace

RandomWorld::RandomWorld(uint64_t seed)
    : config_(WorldConfig::draw(seed)),
      prng_(seed ^ 0x776f726c64u),
      elsewhere_(seed ^ 0x656c7365u),
      store_(config_.executor.vocab_size),
      book_(config_.engine.token_template, store_),
      cast_(config_, store_),
      engine_(config_.engine, cast_.executor(), policy_, store_, *this),
      model_(config_.engine, cast_.next_token(), config_.executor.fault_token) {
    for (const uint64_t greatest : kGreatestWeight) weights_.push_back(prng_.below(greatest + 1));
    weights_[kSubmit] += 4;
    weights_[kStep] += 3;
    if (elsewhere_.below(2) == 0)
        engine_.on_attach([this](const Sequence& sequence, int64_t) { return ask_elsewhere(sequence); });
    system_prompt_ = draw_tokens(20);
    cast_.draft_for(engine_);
}

void RandomWorld::run(int num_operations) {
    for (int i = 0; i < num_operations; ++i) {
        operate();
        check();
    }
    come_home();
    check_rerun();
}

void RandomWorld::operate() {
    uint64_t total = 0;
    for (const uint64_t weight : weights_) total += weight;
    uint64_t drawn = prng_.below(total);
    int operation = 0;
    while (drawn >= weights_[operation]) drawn -= weights_[operation++];
    switch (operation) {
        case kSubmit: return submit(draw_request());
        case kStep: return step();
        case kHalfStep: return open_plan_ != nullptr ? finish_step() : begin_step();
        case kAbort: return abort_one();
        case kRename: return rename();
        case kReplace: return replace_executor();
        case kUnload: return unload();
        case kImport: return import_head();
        case kStopAwaiting: return stop_awaiting();
        default: {
            const ConversationKey key = draw_key();
            load(key);
            const bool wanted = model_.revoke(key);
            coverage_.revoked += wanted ? 1 : 0;
            MUST(engine_.revoke(key) == wanted, "revoke '{}'", key.conversation_id);
        }
    }
}

// --- requests

void RandomWorld::submit(ChatRequest request) {
    load(request.conversation);
    const ConversationModel::Answer wanted = model_.answer(request);
    const auto got = engine_.submit(request);
    if (wanted.refusal) {
        MUST(!got && got.error().reason == *wanted.refusal, "wanted the refusal {}, got {}", name(*wanted.refusal),
             got ? "none" : name(got.error().reason));
        return;
    }
    MUST(got.has_value(), "refused ({}): {}", name(got.error().reason), got.error().message());
    if (wanted.recorded != nullptr) {
        MUST(got->recorded.has_value(), "a known turn_id is computed again");
        MUST(got->recorded->output.to_vector() == wanted.recorded->text &&
             got->recorded->finish == wanted.recorded->finish && got->recorded->version == wanted.recorded->version);
        return;
    }
    MUST(!got->recorded, "an unknown turn_id has a record");
    const Sequence* sequence = engine_.find(got->request);
    MUST(sequence != nullptr && sequence->turn.prompt.to_vector() == wanted.prompt, "prompt [{}], wanted [{}]",
         fmt::join(sequence->turn.prompt.to_vector(), " "), fmt::join(wanted.prompt, " "));
    MUST(!request.seed || sequence->request.sampling.seed == *request.seed);
    deleted_.erase(request.conversation);
    model_.start(got->request, request, wanted.prompt, sequence->request.sampling);
}

ConversationKey RandomWorld::draw_key() {
    static const std::array<std::optional<std::string>, 3> kSalts = {std::nullopt, "", "x"};
    return {CacheSalt{kSalts[prng_.below(3)]}, std::string(1, static_cast<char>('a' + prng_.below(3)))};
}

Tokens RandomWorld::draw_tokens(uint64_t max_size) {
    Tokens tokens(prng_.below(max_size + 1));
    for (TokenId& token : tokens) token = static_cast<TokenId>(prng_.below(static_cast<uint64_t>(store_.vocab_size())));
    return tokens;
}

void RandomWorld::add_message(ChatRequest& request, const Tokens& tokens) {
    request.messages.push_back({store_.store(tokens), !chance(3)});
}

ChatRequest RandomWorld::draw_request() {
    ChatRequest request;
    request.conversation = draw_key();
    draw_input(request);
    draw_limits(request);
    const bool told_apart =
        config_.drafter == WorldDrafter::kDraftPath || !config_.executor.ordinary_numerics_id.empty();
    if (told_apart) request.deterministic = !chance(3);
    const auto known = model_.conversations().find(request.conversation);
    const bool has_turns = known != model_.conversations().end();
    if (chance(2)) request.turn_id = fmt::format("t{}", next_turn_id_++);
    if (has_turns && chance(12)) request.turn_id = known->second.turns[prng_.below(known->second.turns.size())].turn_id;
    if (has_turns && chance(3)) request.parent = Version{known->second.version};
    if (chance(20)) request.parent = kNoVersion;
    if (!request.turn_id) return request;
    // Late duplicates: what was sent before under a turn_id, whatever has become of it since.
    if (chance(4) && !sent_.empty()) {
        ChatRequest again = sent_[prng_.below(sent_.size())];
        if (told_apart && chance(4)) again.deterministic = !again.deterministic;
        return again;
    }
    sent_.push_back(request);
    return request;
}

void RandomWorld::draw_input(ChatRequest& request) {
    switch (prng_.below(6)) {
        case 0:
        case 1:
        case 2:
            request.input = InputKind::kSuffix;
            for (uint64_t n = 1 + prng_.below(2); n > 0; --n) add_message(request, draw_tokens(10));
            return;
        case 3: request.input = InputKind::kRegenerate; return;
        default: return draw_history(request);
    }
}

// The committed tokens, whole or cut somewhere, or without the text that a stop string took, or something new.
void RandomWorld::draw_history(ChatRequest& request) {
    request.input = InputKind::kHistory;
    const auto known = model_.conversations().find(request.conversation);
    if (known != model_.conversations().end() && !chance(4)) {
        Tokens tokens = known->second.committed;
        const ModelTurn& last = known->second.turns.back();
        if (chance(3)) {
            tokens.resize(last.prompt_end + last.num_text);
        } else if (chance(2)) {
            tokens.resize(prng_.below(tokens.size() + 1));
        }
        if (tokens.size() > 1) add_message(request, Tokens(tokens.begin(), tokens.begin() + 1));
        if (tokens.size() > 1) tokens.erase(tokens.begin());
        add_message(request, tokens);
    } else if (chance(2)) {
        add_message(request, system_prompt_);
    }
    add_message(request, draw_tokens(15));
    int64_t size = 0;
    for (const Message& message : request.messages) size += message.tokens.size();
    if (size == 0) add_message(request, Tokens{0});
}

void RandomWorld::draw_limits(ChatRequest& request) {
    if (!chance(6)) request.max_tokens = static_cast<int64_t>(prng_.below(12));
    if (chance(4)) request.max_tokens = static_cast<int64_t>(prng_.below(40));
    if (chance(8)) request.max_tokens = 0;
    if (chance(30)) request.max_tokens = std::numeric_limits<int64_t>::max();
    if (chance(3)) request.sampling.temperature = 0.5f + static_cast<float>(prng_.below(3));
    if (chance(3)) request.seed = prng_.next();
    if (chance(3)) request.stop_tokens = draw_tokens(2);
    for (uint64_t n = prng_.below(3); n > 0; --n) {
        Tokens stop = draw_tokens(3);
        if (!stop.empty()) request.stop_strings.push_back(std::move(stop));
    }
    request.ignore_stop = chance(8);
    request.use_cache = !chance(12);
    if (chance(6)) request.scored_from = static_cast<int64_t>(prng_.below(60));
    if (chance(8)) request.num_unrestored = static_cast<int64_t>(prng_.below(60));
    if (chance(8)) request.forced_output = store_.store(draw_tokens(8));
}

// --- steps

void RandomWorld::step() {
    if (open_plan_ != nullptr) return finish_step();
    const auto stepped = engine_.step();
    if (stepped) return;
    MUST(config_.executor.fail_one_in > 0, "{}", stepped.error().message);
    go_on_after_failure();
}

// A step in two halves: the executor runs early or late, and other operations come between.
void RandomWorld::begin_step() {
    if (engine_.idle()) return;
    open_plan_ = &engine_.plan_step();
    if (chance(2)) execute();
}

void RandomWorld::execute() {
    executed_ = cast_.executor().execute(*open_plan_, result_);
    MUST(*executed_ || config_.executor.fail_one_in > 0, "{}", executed_->error().message);
}

void RandomWorld::finish_step() {
    if (!executed_) execute();
    const bool failed = !*executed_;
    executed_.reset();
    open_plan_ = nullptr;
    if (failed) {
        engine_.fail_step();
        ++coverage_.failures_of_open_steps;
        return go_on_after_failure();
    }
    const auto& scheduled = engine_.scheduler().scheduled();
    for (const Scheduled& share : scheduled) lost_tokens_ += share.sequence == nullptr ? share.num_new_tokens : 0;
    engine_.apply(result_);
}

// With the executor, whose heads are as they were, or with a fresh one. Turns are sent again, or clients give up.
void RandomWorld::go_on_after_failure() {
    ++coverage_.executor_failures;
    std::vector<FailedTurn> failed = engine_.take_failed_turns();
    take_events();
    MUST(model_.running().empty(), "{} turns outlive the executor that failed", model_.running().size());
    if (chance(2)) replace_executor();
    for (FailedTurn& turn : failed) {
        if (going_home_ || chance(3)) continue;
        ++coverage_.sent_again;
        submit(std::move(turn.again));
    }
}

void RandomWorld::replace_executor() {
    if (open_plan_ != nullptr || !engine_.idle()) return;
    ++coverage_.replaced_executors;
    engine_.replace_executor(cast_.fresh_executor());
    MUST(engine_.cache().heads().empty(), "{} heads outlive their executor", engine_.cache().heads().size());
}

void RandomWorld::take_events() {
    for (const EngineEvent& event : engine_.take_events()) {
        if (const auto* token = std::get_if<TokenEvent>(&event)) {
            streamed_[token->request].push_back(token->token);
            continue;
        }
        const auto& finished = std::get<FinishedEvent>(event);
        ++coverage_.finished[finished.reason];
        model_.finish(finished, streamed_[finished.request]);
    }
}

void RandomWorld::abort_one() {
    if (model_.running().empty()) return;
    auto victim = model_.running().begin();
    std::advance(victim, prng_.below(model_.running().size()));
    const RequestId id = victim->first;
    coverage_.aborted_in_open_step += open_plan_ != nullptr ? 1 : 0;
    MUST(engine_.abort(id), "request {} is over", index(id));
    MUST(!engine_.abort(id), "request {} is aborted twice", index(id));
}

// --- checks from scratch

void RandomWorld::check() {
    take_events();
    engine_.verify();
    cast_.check();
    std::set<ConversationKey> unloaded;
    for (const auto& [key, parts] : unloaded_) unloaded.insert(key);
    model_.check(engine_.ledger(), unloaded);
    check_heads();
    check_order();
    check_deleted();
    for (const auto& [key, conversation] : model_.conversations()) check_book(book_, engine_, key);
    const EngineStats& stats = engine_.stats();
    int64_t not_reused = 0;
    for (const int64_t tokens : stats.not_reused) not_reused += tokens;
    MUST(not_reused == stats.computed_prompt_tokens, "{} tokens with a reason, {} computed", not_reused,
         stats.computed_prompt_tokens);
    if (open_plan_ != nullptr) return;
    MUST(stats.drafted_tokens == stats.accepted_tokens + stats.rolled_back_tokens);
    const int64_t counted = stats.computed_prompt_tokens + stats.computed_output_tokens + stats.recomputed_tokens +
                            stats.rolled_back_tokens + stats.draft_path_tokens;
    MUST(cast_.num_computed_tokens() == counted + lost_tokens_, "{} computed, {} counted, {} lost",
         cast_.num_computed_tokens(), counted, lost_tokens_);
    MUST(stats.tail_copies == tail_copies_, "{} tail copies counted, {} planned", stats.tail_copies, tail_copies_);
    MUST(stats.state_copies == state_copies_, "{} state copies counted, {} planned", stats.state_copies, state_copies_);
}

// I3 and I7: a head holds what computing its tokens from the start gives, and says what made it.
void RandomWorld::check_heads() {
    for (const Head* head : engine_.cache().heads()) {
        if (!checked_heads_.insert(head->id).second) continue;
        MUST(head->digest == cast_.oracle().expected_digest(head->tokens.to_vector()), "head {} of {} tokens",
             index(head->id), head->length());
        const std::vector<BlockRun> blocks = engine_.cache().kv().runs(head->blocks);
        const std::string made_by = cast_.executor().numerics_of({kNoSlot, head->length(), blocks, head->state});
        MUST(head->numerics_id == made_by, "head {} is said to be made by {}, and was by {}", index(head->id),
             *head->numerics_id, made_by);
        coverage_.mixed_heads += made_by == kMixedNumericsId ? 1 : 0;
    }
    for (const auto& [key, conversation] : model_.conversations()) {
        const ModelTurn& turn = conversation.turns.back();
        const Head* head = engine_.cache().find(turn.head);
        if (head == nullptr) continue;  // evicted since
        const size_t resident = turn.end - (turn.end > turn.prompt_end ? 1 : 0);
        const Tokens wanted(conversation.committed.begin(),
                            conversation.committed.begin() + static_cast<std::ptrdiff_t>(resident));
        MUST(head->tokens.to_vector() == wanted && head->salt == key.salt, "'{}': head {}", key.conversation_id,
             index(head->id));
    }
}

void RandomWorld::check_deleted() {
    for (const ConversationKey& key : deleted_) {
        MUST(engine_.cache().find(key) == nullptr, "'{}' was deleted and is back", key.conversation_id);
        check_book(book_, engine_, key);
    }
}

// A head is said to come: it does, as any other one may (import_head), or does not.
bool RandomWorld::ask_elsewhere(const Sequence& sequence) {
    MUST(!awaiting_.contains(sequence.id), "request {} waits for a head and would attach", index(sequence.id));
    if (going_home_ || elsewhere_.below(4) != 0) return false;
    awaiting_.insert(sequence.id);
    ++coverage_.awaited_heads;
    return true;
}

void RandomWorld::stop_awaiting() {
    if (open_plan_ != nullptr || awaiting_.empty()) return;
    engine_.stop_awaiting(*awaiting_.begin());  // it may be over
    awaiting_.erase(awaiting_.begin());
}

// D2: in order of arrival the oldest are served first; in another order verify() says which runs before which.
void RandomWorld::check_order() {
    if (config_.engine.scheduler.admission != AdmissionOrder::kArrival) return;
    RequestId last{-1};
    for (const Sequence* sequence : engine_.scheduler().running()) {
        MUST(sequence->id > last, "request {} runs after {}", index(sequence->id), index(last));
        last = sequence->id;
    }
    for (const auto& [id, sequence] : engine_.scheduler().waiting()) {
        MUST(sequence->id > last, "request {} waits after {}", index(sequence->id), index(last));
        last = sequence->id;
    }
}

void RandomWorld::on_plan(const StepPlan& plan) {
    told_.on_plan(plan);
    tail_copies_ += static_cast<int64_t>(plan.copies.size());
    for (const ScheduledSequence& sequence : plan.sequences) {
        coverage_.row_moves += sequence.num_new_tokens == 0 ? 1 : 0;
        const bool writes = sequence.state_dst != kNoState;
        coverage_.unwritten_rows += sequence.state_src != kNoState && !writes ? 1 : 0;
        state_copies_ += sequence.state_src != kNoState && writes && sequence.state_src != sequence.state_dst ? 1 : 0;
    }
}

void RandomWorld::on_event(const Event& event) {
    told_.on_event(event);
    book_.on_event(event);
    if (event.kind == EventKind::kSubmit) arrivals_[event.request] = event.step + 1;
    if (event.kind == EventKind::kAttach) {
        check_turn(event);
        check_lookup(event);
        check_reasons(event);
        check_book(book_, engine_, event.request);
    }
    if (event.kind == EventKind::kPreempt) {
        MUST(event.request != engine_.scheduler().running().front()->id, "the oldest is preempted");
    }
}

// D2: a request comes in if it has waited long enough and arrived first, or has the fewest tokens left; not before one
// that has waited long enough.
void RandomWorld::check_turn(const Event& attached) {
    const SchedulerConfig& config = config_.engine.scheduler;
    const auto& waiting = engine_.scheduler().waiting();
    const RequestId oldest = waiting.begin()->first;
    const bool is_due = attached.step - arrivals_.at(oldest) >= config.max_wait_steps;
    const bool by_arrival = config.admission == AdmissionOrder::kArrival;
    coverage_.due += is_due && !by_arrival ? 1 : 0;
    if (by_arrival || is_due) {
        MUST(attached.request == oldest, "request {} comes in before {}", index(attached.request), index(oldest));
        return;
    }
    if (attached.request != oldest) ++coverage_.overtakings;
    const Sequence& sequence = *engine_.find(attached.request);
    if (!sequence.not_reused.empty() && sequence.not_reused.front().reason == NotReused::kNoRoomToCopy) return;
    const int64_t left = sequence.num_tokens() - attached.value;
    for (const auto& [id, other] : waiting) {
        MUST(std::pair(left, attached.request) <= std::pair(other->num_tokens_left, id),
             "request {} with {} tokens left comes in before {} with {}", index(attached.request), left, index(id),
             other->num_tokens_left);
    }
}

// The attached head is the longest of all that may be used.
void RandomWorld::check_lookup(const Event& attached) {
    const Sequence& sequence = *engine_.find(attached.request);
    if (!sequence.not_reused.empty() && sequence.not_reused.front().reason == NotReused::kNoRoomToCopy) return;
    TokenSeq tokens = sequence.turn.prompt;
    tokens.append(store_.store(sequence.output));
    const ConversationKey& key = sequence.request.conversation;
    const Name* name = engine_.cache().find(key);
    const CacheConfig& cache = engine_.config().cache;
    const bool by_blocks = cache.lookup == LookupMode::kBlocks;
    int64_t longest = 0;
    for (const Head* head : engine_.cache().heads()) {
        const bool listed =
            !by_blocks && name != nullptr && std::ranges::count(name->heads, head->id, &NamedHead::head) > 0;
        const bool shared = head->in_prefix_index && head->salt == key.salt;
        if (!sequence.request.use_cache || (!listed && !shared)) continue;
        if (sequence.request.deterministic && head->numerics_id != config_.executor.numerics_id) continue;
        const int64_t common = std::min(tokens.common_prefix(head->tokens), tokens.size() - 1);
        MUST(!by_blocks || !cache.has_state || common < head->length() || head->length() % cache.pools.block_size == 0,
             "a state lies at {}, inside a block", head->length());
        if (by_blocks && !cache.has_state)
            longest = std::max(longest, common / cache.pools.block_size * cache.pools.block_size);
        else if (common == head->length())
            longest = std::max(longest, common);
    }
    const bool reuses_less = sequence.request.scored_from && attached.value < longest;
    MUST(attached.value == longest || reuses_less, "request {} attached at {}, a head lies at {}",
         index(attached.request), attached.value, longest);
}

// Every token behind the attached ones has one reason, and one that can be true.
void RandomWorld::check_reasons(const Event& attached) const {
    const Sequence& sequence = *engine_.find(attached.request);
    const ChatRequest& request = sequence.request;
    const int64_t num_known = sequence.num_tokens();
    const int64_t num_committed = sequence.turn.num_committed;
    const bool tells_apart = request.deterministic && !config_.executor.ordinary_numerics_id.empty();
    int64_t begin = attached.value;
    for (const NotReusedRange& range : sequence.not_reused) {
        const bool one = range.end == begin + 1;
        bool can_be = request.use_cache;
        switch (range.reason) {
            case NotReused::kNewConversation: can_be &= num_committed == 0 && attached.value == 0; break;
            case NotReused::kNewTokens: can_be &= begin >= std::min(num_committed, num_known - 1); break;
            case NotReused::kSeam: can_be &= one && sequence.turn.seam == begin; break;
            case NotReused::kLastToken: can_be &= one && num_committed >= num_known && range.end == num_known; break;
            case NotReused::kBetweenHeads: can_be &= range.end <= num_committed; break;
            case NotReused::kEvicted: can_be &= engine_.stats().evictions > 0 && range.end <= num_committed; break;
            case NotReused::kNotRetained: can_be &= range.end <= num_committed; break;
            case NotReused::kLost:
                can_be &= coverage_.replaced_executors + coverage_.unloaded > 0 && range.end <= num_committed;
                break;
            case NotReused::kOtherNumerics: can_be &= tells_apart && range.end <= num_committed; break;
            case NotReused::kNoRoomToCopy: can_be &= begin == 0 && attached.value == 0; break;
            case NotReused::kSlowToRestore: can_be &= range.end <= request.num_unrestored; break;
            case NotReused::kCacheOff: can_be = !request.use_cache; break;
            case NotReused::kScored: can_be &= request.scored_from && begin + 1 >= *request.scored_from; break;
            case NotReused::kCount: can_be = false;
        }
        MUST(range.end > begin && can_be, "request {} of {} tokens, {} committed, {} attached: [{}, {}) for {}",
             index(sequence.id), num_known, num_committed, attached.value, begin, range.end, name(range.reason));
        begin = range.end;
    }
    MUST(begin == num_known, "request {}: tokens [{}, {}) have no reason", index(sequence.id), begin, num_known);
}

// --- the end

// Every sequence takes its turn at being the oldest, and the oldest computes a token in every lag + 2 steps at least.
int64_t RandomWorld::step_limit() const {
    int64_t tokens = 0;
    for (const auto& [id, turn] : model_.running()) {
        tokens += static_cast<int64_t>(turn.prompt.size() + turn.output.size()) + 2;
    }
    // Of wrong drafts a token takes a window's steps.
    const int64_t drafting = config_.drafter == WorldDrafter::kDraftPath ? config_.engine.scheduler.max_window : 0;
    return 50 + tokens * (config_.executor.lag_steps + 3 + drafting);
}

void RandomWorld::come_home() {
    going_home_ = true;
    if (open_plan_ != nullptr) finish_step();
    while (!awaiting_.empty()) stop_awaiting();
    check();
    if (chance(3)) {
        while (!model_.running().empty()) {
            abort_one();
            check();
        }
    }
    const int64_t limit = step_limit();
    for (int64_t steps = 0; !engine_.idle(); ++steps) {
        MUST(steps < limit, "{} steps, and {} requests still run", steps, model_.running().size());
        step();
        check();
    }
    check();
    MUST(model_.running().empty(), "{} requests still run", model_.running().size());
    MUST(engine_.publication().empty() && engine_.cache().kv().num_active_blocks() == 0);
    const auto& heads = engine_.cache().heads();
    for (const Head* head : heads) MUST(engine_.cache().num_pins(head->id) == 0, "head {} is pinned", index(head->id));
    if (config_.engine.cache.has_state) {
        MUST(engine_.cache().state().pool().num_used() == static_cast<int32_t>(heads.size()), "{} rows for {} heads",
             engine_.cache().state().pool().num_used(), heads.size());
    }
}

// What came in at the door, written and read, gives the whole run again: plans, tokens, events.
void RandomWorld::check_rerun() {
    std::vector<std::byte> bytes;
    write_fields(bytes, calls_);
    TokenStore store(store_.vocab_size());
    const auto calls = read_fields<std::vector<Call>>(bytes, store);
    MUST(calls.has_value(), "{}", calls.error().message);
    MUST(*calls == calls_, "the calls are others when they have been written and read");
    WorldCast cast(config_, store);
    LruEviction policy;
    DigestRecorder told;
    Engine engine(config_.engine, cast.executor(), policy, store, told);
    cast.draft_for(engine);
    const RerunOptions options{.fresh_executor = [&]() -> Result<Executor*> { return &cast.fresh_executor(); },
                               .make_head = [&](const Call& call) { return make_head(call, store); }};
    const auto done = rerun(*calls, engine, cast.executor(), options);
    MUST(done.has_value(), "{}", done.error().message);
    MUST(done->parted.empty(), "{}", done->parted);
    MUST(told.digest() == told_.digest(), "made again, the calls give another run");
    ++coverage_.reruns;
}

}  // namespace verbatim::tests
