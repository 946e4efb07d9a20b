// server/text/template_process.h: owns the child process that renders chat templates.
//
//   H1  every call ends: a call beyond its time limit is an error, and the process is killed
//   H2  the process has limited memory, writes no files, and dies with its parent
//   H3  a call after a failure starts a new process
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "server/text/child_process.h"

namespace verbatim::text {

struct TemplateLimits {
    int64_t start_ms = 20'000;  // for Python's start and the template's compilation
    int64_t render_ms = 5'000;
    uint64_t memory_bytes = uint64_t{1} << 30;  // of address space
    size_t max_answer_bytes = size_t{256} << 20;
};

using TemplateProgram = ChildProgram;  // its script is render_chat.py

// Why messages could not be rendered. The message is for clients and contains no Python.
struct TemplateProblem : Error {
    explicit TemplateProblem(Error error, std::string of = "messages", std::string said = "")
        : Error(std::move(error)), field(std::move(of)), detail(std::move(said)) {}
    std::string field;   // messages, or messages[3]: the template's place in them
    std::string detail;  // Python's exception, for the template's author; empty: none
};
template <typename T>
using Rendered = tl::expected<T, TemplateProblem>;

// Options of every rendering, apart from its variables.
struct RenderOptions {
    int64_t now = 0;         // seconds since 1970: the template's time
    bool continues = false;  // the text ends with the last message's content
};

// For one thread.
class TemplateProcess {
public:
    // Starts the process and compiles the template. `variables` are common to all renderings. Errors: the template's,
    // or no such program.
    static Result<TemplateProcess> start(TemplateProgram program, std::string source, nlohmann::json variables,
                                         TemplateLimits limits);
    TemplateProcess(TemplateProcess&&) noexcept;
    TemplateProcess& operator=(TemplateProcess&&) noexcept;
    ~TemplateProcess();

    // `variables`: a JSON object. REQUIRES, to continue: the last message's content is a text.
    Rendered<std::string> render(std::string_view variables, const RenderOptions& options);
    // The same, with the variable `messages` apart: of a list that begins as one of the last ones did, what is equal
    // there is neither sent nor parsed again. `messages`: JSON texts. `others`: a JSON object of the other variables.
    Rendered<std::string> render(std::vector<std::string> messages, std::string_view others,
                                 const RenderOptions& options);

private:
    // A list of messages that the process keeps, too.
    struct History {
        std::vector<std::string> messages;
        int64_t last_use = 0;
    };
    static constexpr size_t kNumHistories = 8;
    static constexpr size_t kMaxHistoryBytes = size_t{4} << 20;  // a longer one is not kept
    struct Place {
        size_t base = 0;      // the history that the list begins as
        size_t num_kept = 0;  // its messages from there
        size_t slot = 0;      // the history whose place it takes
    };
    [[nodiscard]] Place place_of(const std::vector<std::string>& messages) const;
    void stop();
    TemplateProcess(TemplateProgram program, std::string source, nlohmann::json variables, TemplateLimits limits);
    Status restart();
    Rendered<std::string> ask(const std::string& question, int64_t limit_ms);

    TemplateProgram program_;
    std::string source_;
    nlohmann::json variables_;
    TemplateLimits limits_;
    std::unique_ptr<ChildProcess> child_;  // none after a failure
    std::array<History, kNumHistories> histories_;
    int64_t num_uses_ = 0;
};

}  // namespace verbatim::text
