// kernels/sandbox/sanitized_run.h: owns calling a CPU kernel under a sanitizer of the compiler's (`--flag
// -fsanitize=thread`): g++ makes one program of the file and kernels/sandbox/sanitized/host_run.cc, in which the
// sanitizer's runtime is linked and tasks run on four threads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/judge.h"

namespace verbatim::sandbox {

// Whether a compiler's flag asks for a sanitizer.
bool is_sanitizer(std::string_view flag);
// The flags without those.
std::vector<std::string> without_sanitizers(const std::vector<std::string>& flags);

// What a run has found: its verdict, and the first report's line and first words.
struct SanitizerReport {
    Verdict verdict = Verdict::kPass;
    std::string text;  // "my_op.cc:31: ThreadSanitizer: data race"; of a pass, what has run
};
// Reads the output of a sanitized program: `code` is how it ended, `file` the kernel's source.
SanitizerReport read_sanitized(int code, const std::string& output, const std::string& file);
// Calls the kernel with up to sixteen of the cases. Error: the file does not compile so.
Result<SanitizerReport> sanitized_run(const std::string& file, const std::vector<std::string>& flags,
                                      const KernelInfo& kernel, const std::vector<CheckCase>& cases);

}  // namespace verbatim::sandbox
