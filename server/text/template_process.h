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

// For one thread.
class TemplateProcess {
public:
    // Starts and compiles. `variables` are those of every rendering. Errors: the template's own, or no such program.
    static Result<TemplateProcess> start(TemplateProgram program, std::string source, nlohmann::json variables,
                                         TemplateLimits limits);
    TemplateProcess(TemplateProcess&&) noexcept;
    TemplateProcess& operator=(TemplateProcess&&) noexcept;
    ~TemplateProcess();

    // `variables`: a JSON object. `now`: seconds since 1970, what the template is told the time is.
    Result<std::string> render(std::string_view variables, int64_t now);

private:
    class Child;
    TemplateProcess(TemplateProgram program, std::string source, nlohmann::json variables, TemplateLimits limits);
    Status restart();
    Result<std::string> ask(const std::string& question, int64_t limit_ms);

    TemplateProgram program_;
    std::string source_;
    nlohmann::json variables_;
    TemplateLimits limits_;
    std::unique_ptr<Child> child_;  // none after a failure
};

}  // namespace verbatim::text
