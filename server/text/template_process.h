// server/text/template_process.h: owns the child process in which chat templates are rendered.
//
//   H1  every call ends: what takes longer than its limit is an error, and the process is killed
//   H2  the process has limited memory, writes no files, and dies with its owner
//   H3  a call after a failure starts another process
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/result.h"

namespace verbatim::text {

struct TemplateLimits {
    int64_t start_ms = 20'000;  // Python starts, and compiles the template
    int64_t render_ms = 5'000;
    uint64_t memory_bytes = uint64_t{1} << 30;  // of address space
    size_t max_answer_bytes = size_t{256} << 20;
};

struct TemplateProgram {
    std::string script;                            // where render_chat.py is
    std::string interpreter = "/usr/bin/python3";  // Debian's, for whom python3-jinja2 is installed
};

// Why messages could not be rendered. The message is for clients and has no word of Python's.
struct TemplateProblem : Error {
    explicit TemplateProblem(Error error, std::string of = "messages", std::string said = "")
        : Error(std::move(error)), field(std::move(of)), detail(std::move(said)) {}
    std::string field;   // messages, or messages[3]: where the template was
    std::string detail;  // the exception of Python's, for the template's author; empty: there was none
};
template <typename T>
using Rendered = tl::expected<T, TemplateProblem>;

// Of every rendering beside its variables.
struct RenderOptions {
    int64_t now = 0;         // seconds since 1970, what the template is told the time is
    bool continues = false;  // the text ends with the last message's content
};

// For one thread.
class TemplateProcess {
public:
    // Starts and compiles. `variables` are those of every rendering. Errors: the template's own, or no such program.
    static Result<TemplateProcess> start(TemplateProgram program, std::string source, nlohmann::json variables,
                                         TemplateLimits limits);
    TemplateProcess(TemplateProcess&&) noexcept;
    TemplateProcess& operator=(TemplateProcess&&) noexcept;
    ~TemplateProcess();

    // `variables`: a JSON object. REQUIRES, to continue: messages whose last one has a text for its content.
    Rendered<std::string> render(std::string_view variables, const RenderOptions& options);

private:
    class Child;
    TemplateProcess(TemplateProgram program, std::string source, nlohmann::json variables, TemplateLimits limits);
    Status restart();
    Rendered<std::string> ask(const std::string& question, int64_t limit_ms);

    TemplateProgram program_;
    std::string source_;
    nlohmann::json variables_;
    TemplateLimits limits_;
    std::unique_ptr<Child> child_;  // none after a failure
};

}  // namespace verbatim::text
