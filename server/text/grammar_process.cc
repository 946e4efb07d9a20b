#include "server/text/grammar_process.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::text {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Failure = ChildProcess::Failure;

constexpr int kMaxFailedStarts = 5;  // in a row
constexpr size_t kMaxAnswerBytes = size_t{16} << 20;

}  // namespace

GrammarVocabulary grammar_vocabulary(const Tokenizer& tokenizer, int32_t vocab_size, std::vector<TokenId> end_tokens) {
    std::vector<std::string> tokens;
    std::vector<TokenId> special;
    for (TokenId id = 0; id < std::min(tokenizer.num_ids(), vocab_size); ++id) {
        std::string& hex = tokens.emplace_back();
        for (const char c : tokenizer.bytes_of(id)) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
        if (tokenizer.is_special(id) || std::ranges::count(end_tokens, id) > 0) special.push_back(id);
    }
    const nlohmann::json description = {
        {"tokens", tokens}, {"special", special}, {"ends", end_tokens}, {"vocab_size", vocab_size}};
    return {vocab_size, std::move(end_tokens), description.dump() + "\n"};
}

GrammarProcess::GrammarProcess(GrammarRunner runner) : runner_(std::move(runner)) {
    CHECK(runner_.vocabulary != nullptr && !runner_.vocabulary->end_tokens.empty(),
          "no token ends what a grammar allows");
}

// --- what goes out

void GrammarProcess::start(int64_t sequence, std::string grammar) {
    CHECK(sequences_.emplace(sequence, Running{.grammar = std::move(grammar)}).second, "sequence {} runs", sequence);
    send();
    owe(sequence);
    if (child_) begin(sequence, 1);
}

void GrammarProcess::take(int64_t sequence, TokenId token) {
    Running& of = sequences_.at(sequence);
    CHECK(!of.is_begun || child_ != nullptr, "sequence {} has begun in no process", sequence);
    of.tokens.push_back(token);
    if (of.is_begun) {
        taken_.push_back(sequence);
        return owe(sequence);
    }
    send();
    owe(sequence);
    if (child_) begin(sequence, 1);
}

void GrammarProcess::stop(int64_t sequence) {
    const auto found = sequences_.find(sequence);
    if (found == sequences_.end()) return;
    send();
    CHECK(!found->second.is_begun || child_ != nullptr, "sequence {} has begun in no process", sequence);
    if (found->second.is_begun) child_->post(fmt::format("{{\"stop\":{}}}\n", sequence));
    sequences_.erase(found);
}

void GrammarProcess::owe(int64_t sequence) {
    CHECK(sequences_.contains(sequence), "sequence {} does not run", sequence);
    if (owed_.empty()) set_deadline();
    owed_.push_back(sequence);
}

// Behind the tokens that it has, but `num_owed` - 1 of them: one mask is owed of it for each.
void GrammarProcess::begin(int64_t number, size_t num_owed) {
    Running& sequence = sequences_.at(number);
    CHECK(!sequence.is_begun && child_ != nullptr && num_owed > 0 && sequence.tokens.size() + 1 >= num_owed,
          "sequence {} begins, {} masks are owed of it, {} tokens are there", number, num_owed, sequence.tokens.size());
    const std::span<const TokenId> tokens(sequence.tokens);
    const auto before = tokens.first(tokens.size() + 1 - num_owed);
    const nlohmann::json line = {
        {"start", number}, {"grammar", sequence.grammar}, {"tokens", std::vector(before.begin(), before.end())}};
    child_->post(line.dump() + "\n");
    for (const TokenId token : tokens.subspan(before.size()))
        child_->post(fmt::format("{{\"take\":[[{},{}]]}}\n", number, token));
    sequence.is_begun = true;
}

// In one line: the process is woken once.
void GrammarProcess::send() {
    if (taken_.empty()) return;
    CHECK(child_ != nullptr, "{} tokens for no process", taken_.size());
    std::string line = "{\"take\":[";
    for (const int64_t number : taken_) {
        const char* const comma = number == taken_.front() ? "" : ",";
        line += fmt::format("{}[{},{}]", comma, number, sequences_.at(number).tokens.back());
    }
    taken_.clear();
    child_->post(line + "]}\n");
}

bool GrammarProcess::is_quick() const {
    const auto is_answered = [this](int64_t number) {
        const auto found = sequences_.find(number);
        return found != sequences_.end() && found->second.is_answered;
    };
    return child_ != nullptr && is_ready_ && std::ranges::all_of(owed_, is_answered);
}

void GrammarProcess::set_deadline() {
    deadline_ = steady_clock::now() + milliseconds(is_ready_ ? runner_.limits.mask_ms : runner_.limits.start_ms);
}

// --- what comes in

std::vector<NextMask> GrammarProcess::collect(int64_t wait_ms) {
    std::vector<NextMask> masks;
    send();
    const TimePoint until = steady_clock::now() + milliseconds(wait_ms);
    while (!owed_.empty() && has_process(masks) && receive(until, masks)) {
    }
    return masks;
}

NextMask GrammarProcess::first_mask(const std::string& grammar) {
    const int64_t number = next_check_--;
    start(number, grammar);
    while (true) {
        for (NextMask& mask : collect(runner_.limits.mask_ms)) {
            if (mask.sequence != number) continue;
            stop(number);
            return std::move(mask);
        }
    }
}

// A fresh one begins where the sequences are that are owed a mask.
bool GrammarProcess::has_process(std::vector<NextMask>& masks) {
    if (child_) return true;
    auto child = ChildProcess::start(runner_.program, runner_.limits.memory_bytes);
    if (!child) {
        fail_all(child.error().message, masks);
        return false;
    }
    child_ = *std::move(child);
    child_->post(runner_.vocabulary->description);
    // The masks of one sequence come together now.
    std::erase_if(owed_, [this](int64_t number) { return !sequences_.contains(number); });
    std::ranges::stable_sort(owed_);
    for (auto next = owed_.begin(); next != owed_.end();) {
        const auto last = std::find_if(next, owed_.end(), [&](int64_t number) { return number != *next; });
        begin(*next, static_cast<size_t>(last - next));
        next = last;
    }
    set_deadline();
    return !owed_.empty();
}

// One answer. False: none is there until then.
bool GrammarProcess::receive(TimePoint until, std::vector<NextMask>& masks) {
    CHECK(child_ != nullptr && !owed_.empty(), "{} masks are owed", owed_.size());
    if (!child_->has_answer(std::min(until, deadline_)) && steady_clock::now() < deadline_) return false;
    ChildProcess::Answer answer;
    if (child_->receive(answer, deadline_, kMaxAnswerBytes))
        take_answer(answer, masks);
    else
        end_process(masks);
    return true;
}

void GrammarProcess::take_answer(const ChildProcess::Answer& answer, std::vector<NextMask>& masks) {
    if (!is_ready_) {
        is_ready_ = answer.kind == "ready";
        num_failed_starts_ = 0;
        if (!is_ready_) {
            child_.reset();
            return fail_all(answer.bytes, masks);
        }
        return set_deadline();
    }
    CHECK(!owed_.empty(), "{} comes, and nothing is owed", answer.kind);
    const int64_t number = owed_.front();
    owed_.pop_front();
    set_deadline();
    if (suspect_ == number) suspect_.reset();
    const auto sequence = sequences_.find(number);
    if (sequence == sequences_.end()) return;
    sequence->second.is_answered = true;
    masks.push_back(read(number, answer));
    if (!masks.back().problem.empty()) stop(number);
}

NextMask GrammarProcess::read(int64_t sequence, const ChildProcess::Answer& answer) const {
    NextMask next{.sequence = sequence, .mask = {}, .problem = {}, .is_grammars = true};
    if (answer.kind != "mask") {
        next.problem = answer.bytes.empty() ? "it is refused" : answer.bytes;
        return next;
    }
    const auto bits = std::as_bytes(std::span(answer.bytes));
    CHECK(bits.size() * 8 >= static_cast<size_t>(runner_.vocabulary->vocab_size), "{} bytes of a mask of {} tokens",
          bits.size(), runner_.vocabulary->vocab_size);
    next.mask = mask_of_bits(bits, runner_.vocabulary->vocab_size);
    if (next.mask.runs.empty()) next.problem = "no token can go on with it";
    return next;
}

// --- the end of a process

// One that took too long is to blame; one whose process ended without a word is tried again once.
void GrammarProcess::end_process(std::vector<NextMask>& masks) {
    const bool is_late = child_->failure() == Failure::kTooLate;
    child_.reset();
    taken_.clear();
    forget_answers();
    if (!std::exchange(is_ready_, false)) {
        if (!is_late && ++num_failed_starts_ < kMaxFailedStarts) return;
        num_failed_starts_ = 0;
        return fail_all(fmt::format("{} -I {} {}", runner_.program.interpreter, runner_.program.script,
                                    is_late ? "did not start in time" : "ended"),
                        masks);
    }
    CHECK(!owed_.empty(), "the process ends, and nothing is owed");
    const int64_t number = owed_.front();
    if (!is_late && suspect_ != number) {
        suspect_ = number;
        return;
    }
    suspect_.reset();
    owed_.pop_front();
    if (sequences_.erase(number) == 0) return;
    masks.push_back({.sequence = number,
                     .mask = {},
                     .problem = is_late ? fmt::format("it takes more than {} ms", runner_.limits.mask_ms)
                                        : fmt::format("it takes more than {} MiB", runner_.limits.memory_bytes >> 20),
                     .is_grammars = true});
}

void GrammarProcess::fail_all(const std::string& problem, std::vector<NextMask>& masks) {
    for (const int64_t number : std::exchange(owed_, {})) {
        if (sequences_.erase(number) == 1) masks.push_back({.sequence = number, .mask = {}, .problem = problem});
    }
    taken_.clear();
    forget_answers();
}

void GrammarProcess::forget_answers() {
    CHECK(child_ == nullptr && taken_.empty(), "{} tokens for a process that runs", taken_.size());
    for (auto& [number, sequence] : sequences_) sequence.is_begun = sequence.is_answered = false;
}

}  // namespace verbatim::text
