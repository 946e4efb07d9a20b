// tools/serve/flags.h: the flags of `verbatim serve`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/restore_rule.h"
#include "engine/scheduler/scheduler.h"
#include "files/repository_path.h"
#include "reference/numerics/profile.h"
#include "server/text/answer_form.h"
#include "tools/program/cache_memory.h"
#include "tools/program/record_option.h"

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

struct ServeOptions {
    std::string model = repository_path("server/models/tiny-python");
    std::vector<std::string> names;
    std::string chat_template;
    std::optional<text::ToolFormat> tool_format;  // none: the chat template says it
    std::optional<text::ReasoningFormat> reasoning_format;
    std::string grammar_python;  // empty: default_grammar_python()
    std::string executor = "cpu";
    reference::Profile profile = reference::Profile::kExact;
    std::string host = "127.0.0.1";
    int64_t port = 8000;
    int32_t threads = std::max<int32_t>(1, std::thread::hardware_concurrency());
    std::string packed_file;  // empty: packed weights are not kept
    int64_t max_requests = 256;
    int64_t max_queue_requests = 4096;
    int64_t max_queue_tokens = int64_t{16} << 20;
    std::vector<std::string> cors_origins;
    std::string api_key_file;
    std::string ledger;
    uint64_t ledger_bytes = uint64_t{64} << 20;
    std::string tier;  // empty: none
    uint64_t tier_bytes = uint64_t{10} << 30;
    bool tier_is_read_only = false;
    uint64_t host_bytes = 0;  // before the tier; 0: none
    RestorePolicy restores = RestorePolicy::kAuto;
    bool has_head_transfer = false;
    int32_t step_tokens = 512;
    int32_t block_size = 16;
    CacheBytesFlags cache_bytes{.cache_bytes = uint64_t{512} << 20};
    LookupMode lookup = LookupMode::kPrefix;
    AdmissionOrder admission = AdmissionOrder::kArrival;
    int32_t max_wait_steps = SchedulerConfig().max_wait_steps;  // of kFewestTokens
    std::string draft = "none";
    std::string window;  // of the drafter; empty: the default
    uint64_t seed = 0;
    records::RecordingOptions record;
};

void add_serve_flags(CLI::App& verb, ServeOptions& options);

}  // namespace verbatim::tools
