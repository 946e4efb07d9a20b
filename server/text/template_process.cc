#include "server/text/template_process.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::text {
namespace {

using std::chrono::steady_clock;
using Failure = ChildProcess::Failure;

// Of an exception: where it was, for clients, and what it was, for the template's author.
TemplateProblem failure(const std::string& said) {
    const nlohmann::json problem = nlohmann::json::parse(said, nullptr, /*allow_exceptions=*/false);
    if (!problem.is_object()) return TemplateProblem({"the chat template failed"});
    std::string field = "messages";
    if (problem["message"].is_number()) field = fmt::format("messages[{}]", problem["message"].get<int64_t>());
    std::string line;
    if (problem["line"].is_number()) line = fmt::format(" at its line {}", problem["line"].get<int64_t>());
    return TemplateProblem(
        {fmt::format("the chat template cannot render {}{}: a member is missing there, or is not what "
                     "the template expects",
                     field, line)},
        field, problem["what"].get<std::string>() + line);
}

}  // namespace

TemplateProcess::TemplateProcess(TemplateProgram program, std::string source, nlohmann::json variables,
                                 TemplateLimits limits)
    : program_(std::move(program)), source_(std::move(source)), variables_(std::move(variables)), limits_(limits) {}
TemplateProcess::TemplateProcess(TemplateProcess&&) noexcept = default;
TemplateProcess& TemplateProcess::operator=(TemplateProcess&&) noexcept = default;
TemplateProcess::~TemplateProcess() = default;

Result<TemplateProcess> TemplateProcess::start(TemplateProgram program, std::string source, nlohmann::json variables,
                                               TemplateLimits limits) {
    TemplateProcess process(std::move(program), std::move(source), std::move(variables), limits);
    RETURN_IF_ERROR(process.restart());
    return process;
}

Status TemplateProcess::restart() {
    auto child = ChildProcess::start(program_, limits_.memory_bytes);
    if (!child)
        return tl::unexpected(Error{fmt::format("chat template: {}", child.error().message), ErrorKind::kMachine});
    child_ = *std::move(child);
    const nlohmann::json first = {{"template", source_}, {"variables", variables_}};
    const auto started = ask(first.dump() + "\n", limits_.start_ms);
    if (!started) stop();
    if (started) return {};
    const std::string& detail = started.error().detail;
    return detail.empty() ? error("{}", started.error().message) : error("the chat template: {}", detail);
}

Rendered<std::string> TemplateProcess::render(std::string_view variables, const RenderOptions& options) {
    if (!child_) {
        if (Status started = restart(); !started) return tl::unexpected(TemplateProblem(std::move(started).error()));
    }
    std::string question = fmt::format("{{\"now\":{},\"continues\":{},\"variables\":", options.now, options.continues);
    question.reserve(question.size() + variables.size() + 2);
    question.append(variables).append("}\n");
    return ask(question, limits_.render_ms);
}

// The history with most messages in common. A list that goes on from all of one takes its place; another one takes the
// place of the one that was used least recently.
TemplateProcess::Place TemplateProcess::place_of(const std::vector<std::string>& messages) const {
    Place place;
    for (size_t i = 0; i < kNumHistories; ++i) {
        const std::vector<std::string>& kept = histories_[i].messages;
        const auto [end, unused] = std::ranges::mismatch(kept, messages);
        const auto num_equal = static_cast<size_t>(end - kept.begin());
        if (num_equal > place.num_kept) place = {.base = i, .num_kept = num_equal};
    }
    const bool goes_on = place.num_kept > 0 && place.num_kept == histories_[place.base].messages.size();
    const auto oldest = std::ranges::min_element(histories_, {}, &History::last_use);
    place.slot = goes_on ? place.base : static_cast<size_t>(oldest - histories_.begin());
    return place;
}

Rendered<std::string> TemplateProcess::render(std::vector<std::string> messages, std::string_view others,
                                              const RenderOptions& options) {
    if (!child_) {
        if (Status started = restart(); !started) return tl::unexpected(TemplateProblem(std::move(started).error()));
    }
    const Place place = place_of(messages);
    CHECK(place.slot < histories_.size() && place.num_kept <= messages.size(), "{} of {} messages in place {}",
          place.num_kept, messages.size(), place.slot);
    size_t num_bytes = others.size() + 200;
    for (const std::string& message : messages) num_bytes += message.size() + 1;
    const bool is_kept = num_bytes <= kMaxHistoryBytes;
    std::string question = fmt::format(
        R"({{"now":{},"continues":{},"base":{},"num_kept":{},"slot":{},"variables":{},"messages":[)", options.now,
        options.continues, place.base, place.num_kept, is_kept ? std::to_string(place.slot) : "null", others);
    question.reserve(place.num_kept == 0 ? num_bytes : 0);
    for (size_t i = place.num_kept; i < messages.size(); ++i) {
        if (i > place.num_kept) question += ',';
        question += messages[i];
    }
    question += "]}\n";
    auto text = ask(question, limits_.render_ms);
    if (!is_kept) return text;
    History& history = histories_[place.slot];
    history = {.messages = {}, .last_use = ++num_uses_};
    if (text) history.messages = std::move(messages);  // else what the process has kept is not known
    return text;
}

void TemplateProcess::stop() {
    child_.reset();
    histories_ = {};
}

Rendered<std::string> TemplateProcess::ask(const std::string& question, int64_t limit_ms) {
    CHECK(child_ != nullptr, "{} bytes for no process", question.size());
    const auto begin = steady_clock::now();
    const auto deadline = begin + std::chrono::milliseconds(limit_ms);
    const auto problem = [](std::string message) { return tl::unexpected(TemplateProblem({std::move(message)})); };
    ChildProcess::Answer answer;
    if (!child_->send(question, deadline) || !child_->receive(answer, deadline, limits_.max_answer_bytes)) {
        const Failure why = child_->failure();
        stop();
        if (why == Failure::kTooLate || steady_clock::now() >= deadline)
            return problem(fmt::format("chat template: no answer within {} ms: it was stopped", limit_ms));
        if (why == Failure::kTooLong)
            return problem(fmt::format("chat template: it makes more than {} bytes", limits_.max_answer_bytes));
        return problem(
            fmt::format("chat template: the process that renders it ended: {} -I {} (Debian: python3, python3-jinja2)",
                        program_.interpreter, program_.script));
    }
    if (answer.kind == "text") return std::move(answer.bytes);
    if (answer.kind == "refused") return problem("the chat template refuses the messages: " + answer.bytes);
    return tl::unexpected(failure(answer.bytes));
}

}  // namespace verbatim::text
