// `verbatim serve`: an engine behind HTTP, as OpenAI's clients speak it.
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/recorder.h"
#include "files/repository_path.h"
#include "kernels/cpu/packed_file.h"
#include "kernels/executors/drafter_choice.h"
#include "kernels/executors/executor_choice.h"
#include "reference/loader/gguf.h"
#include "reference/loader/model_choice.h"
#include "server/checkpoints.h"
#include "server/engine_host.h"
#include "server/http/http_server.h"
#include "server/http/page.h"
#include "server/http/tenants.h"
#include "server/ledger/conversation_ledger.h"
#include "server/ledger/ledger_address.h"
#include "server/room.h"
#include "server/text/chat.h"
#include "server/text/stop_tokens.h"
#include "server/text/tokenizer_json.h"
#include "simulator/model_shape.h"
#include "simulator/value_rule.h"
#include "tools/program/admission_option.h"
#include "tools/program/cache_memory.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"
#include "tools/program/host_tier.h"
#include "tools/program/packed_option.h"
#include "tools/program/record_option.h"
#include "tools/serve/flags.h"

namespace verbatim::tools {

using namespace executors;

namespace {

using namespace verbatim::server;

constexpr const char* kServeExitCodes =
    "Exit codes: 0 ended by a signal; 2 bad flag; 3 the model, its tokenizer or template is wrong, or another file, "
    "size\n"
    "or address that a flag names; 4 the port is taken, or the machine is in the way.";

// Without a drafter a step samples one position of a request.
Result<WindowChoice> windows_of(const ServeOptions& options) {
    if (options.draft != "none") return window_of(options.window);
    if (options.window.empty()) return WindowChoice{.max_window = 1};
    return error("--window {}: nothing drafts; --draft ngram or mtp does", options.window);
}

// A drafter with a model uses a fixed part of the same bytes.
int64_t drafter_bytes(const ServeOptions& options) {
    return drafts_by_model(options.draft) ? options.cache_bytes.chosen().total_bytes / 4 : 0;
}
CacheBytes cache_bytes_of(const ServeOptions& options) {
    CacheBytes bytes = options.cache_bytes.chosen();
    bytes.total_bytes -= drafter_bytes(options);
    return bytes;
}

// Reports nothing.
Result<EngineConfig> engine_config_of(const ServeOptions& options, const reference::ModelConfig& model) {
    EngineConfig engine;
    ASSIGN_OR_RETURN(engine.cache, cache_within(cache_bytes_of(options), model, options.block_size));
    set_value_rule(engine.cache, shape_of("", model));
    RETURN_IF_ERROR(fit_into_memory(options.executor, engine.cache, drafter_bytes(options)));
    engine.scheduler.step_tokens = options.step_tokens;
    engine.scheduler.max_num_sequences = static_cast<int32_t>(std::min<int64_t>(options.max_requests, 4096));
    engine.scheduler.admission = options.admission;
    engine.scheduler.max_wait_steps = options.max_wait_steps;
    engine.cache.lookup = options.lookup;
    keep_checkpoints(engine);
    ASSIGN_OR_RETURN(const WindowChoice windows, windows_of(options));
    engine.scheduler.max_window = windows.max_window;
    engine.scheduler.paced_windows = windows.is_paced;
    engine.max_model_len = served_length(engine.cache, model.max_position_embeddings);
    if (engine.max_model_len < 1)
        return error(
            "--cache-bytes: no block is left for a request after its state row and the copy of a block: give more");
    engine.seed = options.seed;
    engine.digest_heads = options.record.has_states();
    RETURN_IF_ERROR(validate(engine));
    return engine;
}

int64_t seconds_now() {
    using std::chrono::system_clock;
    return std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
}

// A folder is called by its last part. `any` is no name: it stands for all of them.
ModelNames served_names(const ServeOptions& options) {
    ModelNames names;
    for (const std::string& name : options.names) {
        if (name == "any")
            names.takes_any = true;
        else if (std::ranges::find(names.all, name) == names.all.end())
            names.all.push_back(name);
    }
    const auto folder = std::filesystem::weakly_canonical(options.model);
    if (names.all.empty())
        names.all.push_back(folder.filename().empty() ? folder.parent_path().filename().string()
                                                      : folder.filename().string());
    return names;
}

Status check_names(const ServeOptions& options) {
    for (const std::string& name : options.names) {
        if (name.starts_with("--")) return error("--name {:?}: this is a flag; a name has no -- in front", name);
        if (!is_identifier(name))
            return error("--name {:?}: wanted 1 to {} bytes of UTF-8 without control characters", name, kMaxIdBytes);
    }
    return {};
}

// Flags that nothing would read.
Status check_unread_flags(const ServeOptions& options) {
    if (!options.tier.empty() && options.tier_bytes == 0) return error("--tier-bytes: got 0, wanted room for a head");
    if (options.restores != RestorePolicy::kAuto && options.tier.empty() && options.host_bytes == 0)
        return error("--restore: there are no heads to read; --tier or --host-bytes keeps some");
    return check_max_wait(options.admission == AdmissionOrder::kFewestTokens, options.max_wait_steps);
}

// As a browser writes it: an answer for an origin that is written in another way would be for none.
Status check_origins(const ServeOptions& options) {
    for (const std::string& origin : options.cors_origins) {
        const size_t host = origin.find("://");
        const bool is_origin = host != std::string::npos && host > 0 && host + 3 < origin.size() &&
                               origin.find_first_of("/?#@ \t", host + 3) == std::string::npos &&
                               std::ranges::none_of(origin, [](char c) { return c <= ' ' || (c >= 'A' && c <= 'Z'); });
        if (!is_origin && origin != "*" && origin != "null")
            return error("--cors-origin {:?}: wanted scheme://host or scheme://host:port in lower case, null, or *",
                         origin);
    }
    return {};
}

// The repository's own, where tests/environment.py has made it.
std::string default_grammar_python() {
    std::string own = repository_path("build/python/bin/python3");
    return std::filesystem::exists(own) ? own : text::ChildProgram().interpreter;
}

// An interpreter that was named and cannot be run: forms of answers will be refused, and all else is served. Whether it
// has the library is known when a request has a form.
void warn_of_grammar_python(const std::string& python) {
    if (python.empty()) return;
    std::error_code problem;
    if (std::filesystem::is_regular_file(python, problem) && ::access(python.c_str(), X_OK) == 0) return;
    fmt::print(stderr,
               "verbatim: warning: --grammar-python {}: no program that can be run; requests for structured output get "
               "501\n",
               python);
}

// The text of the model: a template where the folder has one.
struct ModelText {
    std::unique_ptr<text::Tokenizer> tokenizer;
    std::optional<text::Chat> chat;
    std::string chat_template;  // its source
    std::vector<TokenId> stop_tokens;
};

// Weights alone can be replayed, not served.
Status check_has_tokenizer(const std::string& folder) {
    if (reference::is_gguf(folder)) return {};  // reading it says what is missing
    if (std::filesystem::exists(std::filesystem::path(folder) / "tokenizer.json")) return {};
    return error(
        "--model {}: there is no tokenizer.json: serving needs the checkpoint's tokenizer, and for chats its template "
        "(chat_template.jinja, or chat_template in tokenizer_config.json): copy these files from where the weights "
        "are from. `verbatim replay --model {}` runs a model without a tokenizer",
        folder, folder);
}

Result<ModelText> load_text(const std::string& folder, const std::string& template_file) {
    RETURN_IF_ERROR(check_has_tokenizer(folder));
    ModelText model;
    ASSIGN_OR_RETURN(text::Tokenizer tokenizer, text::load_tokenizer(folder));
    model.tokenizer = std::make_unique<text::Tokenizer>(std::move(tokenizer));
    ASSIGN_OR_RETURN(const auto chat_template, text::find_chat_template(folder, template_file));
    if (chat_template) {
        model.chat_template = chat_template->source;
        ASSIGN_OR_RETURN(model.chat,
                         text::Chat::load(folder, *model.tokenizer, {repository_path("server/text/render_chat.py")}, {},
                                          template_file));
    }
    return model;
}

// All that answers are made of. What stands on something else is declared after it.
struct LoadedModel {
    ModelText text;
    text::GrammarVocabulary grammar_vocabulary;
    text::GrammarRunner grammars;                     // that read it
    std::optional<text::GrammarProcess> first_masks;  // none: no token ends answers
    std::unique_ptr<reference::Model> model;
    Digest digest;  // of the model
    EngineConfig config;
    ChosenExecutor executor;
    std::unique_ptr<TokenStore> store;
    ValueEviction policy;
    files::OutputFile record_file;                     // until the recording has it
    std::unique_ptr<records::RunRecording> recording;  // null: no --record
    std::unique_ptr<RecorderList> recorders;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<ConversationLedger> ledger;
    std::unique_ptr<HeadTier> tier;  // null: none
    HostTier host_tier;
    ChosenDrafter drafter;
    std::unique_ptr<EngineHost> host;
};

// The executor, looked at by a recording that goes on.
HostExecutor host_executor(LoadedModel& loaded) {
    reference::NumericExecutor* executor = loaded.executor.executor.get();
    const bool is_recorded = loaded.recording && !loaded.recording->is_finished();
    Executor* watched = is_recorded ? &loaded.recording->watch(*executor, *executor) : executor;
    return {watched, [executor](SequenceSlot slot, int32_t row) { return executor->logits(slot, row); }};
}

Status record_run(const ServeOptions& options, LoadedModel& loaded) {
    std::vector<Recorder*> told;
    if (loaded.record_file.is_wanted()) {
        const reference::NumericExecutor& executor = *loaded.executor.executor;
        ASSIGN_OR_RETURN(loaded.recording, start_recording(options.record, std::move(loaded.record_file),
                                                           {.model = options.model,
                                                            .model_seed = options.seed,
                                                            .model_digest = loaded.digest,
                                                            .vocab_size = loaded.model->config.vocab_size,
                                                            .numerics = executor.numerics_id(),
                                                            .ordinary_numerics = executor.ordinary_numerics_id(),
                                                            .executor = options.executor,
                                                            .profile = std::string(name(executor.profile())),
                                                            .num_threads = options.threads,
                                                            .draft = options.draft,
                                                            .eviction = "value",
                                                            .engine = loaded.config},
                                                           "the server goes on without a record"));
        told.push_back(&loaded.recording->recorder());
    }
    loaded.recorders = std::make_unique<RecorderList>(std::move(told));
    return {};
}

Result<HostExecutor> replace_executor(const std::string& name, const ExecutorOptions& chosen, LoadedModel& loaded) {
    if (loaded.recording) loaded.recording->look_away();
    loaded.drafter.listen_to(nullptr);
    loaded.executor.executor.reset();  // its memory first
    auto fresh = choose_executor(name, chosen, *loaded.model);
    if (!fresh) {
        if (loaded.recording && !loaded.recording->is_finished())
            static_cast<void>(loaded.recording->finish("no executor is left: " + fresh.error().message));
        return tl::unexpected(fresh.error());
    }
    loaded.executor = *std::move(fresh);
    loaded.drafter.listen_to(loaded.executor.executor.get());
    return host_executor(loaded);
}

// What is known of conversations, from where it lies.
Status open_ledger(const ServeOptions& options, LoadedModel& loaded) {
    const std::string digest = text::digest_of(*loaded.text.tokenizer).hex();
    std::string address = options.ledger;
    if (address.empty()) {
        ASSIGN_OR_RETURN(address,
                         default_ledger(fmt::format("{}-{}", served_names(options).first(), digest.substr(0, 8))));
    }
    // It is written, too, and need not be there yet.
    constexpr std::string_view kSqlite = "sqlite://";
    const std::string file = address.starts_with(kSqlite) ? address.substr(kSqlite.size()) : address;
    if (address != "none")
        RETURN_IF_ERROR(check_file_roles({}, {{"--ledger", file}, {"--record", options.record.path}}));
    ASSIGN_OR_RETURN(std::unique_ptr<LedgerStore> store, make_ledger_store(address));
    loaded.ledger = std::make_unique<ConversationLedger>(
        std::move(store), LedgerWriterConfig(), LedgerMemory{.max_bytes = static_cast<int64_t>(options.ledger_bytes)});
    RETURN_IF_ERROR(loaded.ledger->open({.tokenizer = digest, .vocab_size = loaded.model->config.vocab_size}));
    return {};
}

Status open_tiers(const ServeOptions& options, LoadedModel& loaded) {
    const reference::NumericExecutor& executor = *loaded.executor.executor;
    server::HeadTierConfig config = {.model = loaded.digest.hex(),
                                     .numerics = executor.numerics_id(),
                                     .tensors = executor.tensors(),
                                     .vocab_size = loaded.model->config.vocab_size};
    ASSIGN_OR_RETURN(loaded.host_tier,
                     HostTier::open(static_cast<int64_t>(options.host_bytes), options.executor, config));
    if (options.tier.empty()) return {};
    config.folder = options.tier;
    config.max_bytes = static_cast<int64_t>(options.tier_bytes);
    config.read_only = options.tier_is_read_only;
    ASSIGN_OR_RETURN(loaded.tier, HeadTier::open(std::move(config)));
    return {};
}

// Nothing is started before a request has a grammar.
void prepare_grammars(const ServeOptions& options, int32_t vocab_size, LoadedModel& loaded) {
    if (loaded.text.stop_tokens.empty()) return;
    loaded.grammar_vocabulary = text::grammar_vocabulary(*loaded.text.tokenizer, vocab_size, loaded.text.stop_tokens);
    const std::string python = options.grammar_python.empty() ? default_grammar_python() : options.grammar_python;
    loaded.grammars = {.program = {repository_path("server/text/run_grammars.py"), python},
                       .vocabulary = &loaded.grammar_vocabulary,
                       .limits = {}};
    loaded.first_masks.emplace(loaded.grammars);
}

// Into its place for good: the host's thread holds pointers to it.
Status load(const ServeOptions& options, LoadedModel& loaded) {
    ASSIGN_OR_RETURN(loaded.text, load_text(options.model, options.chat_template));
    reference::LoadOptions reading{.mtp = drafts_by_mtp(options.draft)};
    ASSIGN_OR_RETURN(reading.known_canonical, cpu::known_canonical(options.packed_file));
    ASSIGN_OR_RETURN(reference::Model model, reference::choose_model(options.model, options.seed, reading));
    loaded.model = std::make_unique<reference::Model>(std::move(model));
    ASSIGN_OR_RETURN(loaded.digest, reference::model_digest(*loaded.model));
    const int32_t vocab_size = loaded.model->config.vocab_size;
    if (loaded.text.tokenizer->num_ids() > vocab_size)
        return error("{}: the tokenizer has {} tokens, the model {}", options.model, loaded.text.tokenizer->num_ids(),
                     vocab_size);
    ASSIGN_OR_RETURN(loaded.text.stop_tokens, text::load_stop_tokens(options.model, vocab_size));
    prepare_grammars(options, vocab_size, loaded);
    ASSIGN_OR_RETURN(loaded.config, engine_config_of(options, loaded.model->config));
    const ExecutorOptions chosen = {.pools = loaded.config.cache.pools,
                                    .budget = pool_budget(loaded.config.cache),
                                    .max_log_tokens = loaded.config.scheduler.max_log_tokens(),
                                    .num_threads = options.threads,
                                    .packed_file = options.packed_file,
                                    .profile = options.profile};
    ASSIGN_OR_RETURN(loaded.executor, choose_executor(options.executor, chosen, *loaded.model));
    loaded.store = std::make_unique<TokenStore>(vocab_size);
    RETURN_IF_ERROR(record_run(options, loaded));
    HostExecutor executor = host_executor(loaded);
    loaded.engine =
        std::make_unique<Engine>(loaded.config, *executor.executor, loaded.policy, *loaded.store, *loaded.recorders);
    RETURN_IF_ERROR(open_ledger(options, loaded));
    RETURN_IF_ERROR(open_tiers(options, loaded));
    ASSIGN_OR_RETURN(loaded.drafter, choose_drafter({.name = options.draft,
                                                     .max_window = loaded.config.scheduler.max_window,
                                                     .max_num_sequences = loaded.config.scheduler.max_num_sequences,
                                                     .memory_bytes = drafter_bytes(options),
                                                     .executor = loaded.executor.executor.get(),
                                                     .num_threads = options.threads,
                                                     .is_priced = loaded.config.scheduler.paced_windows},
                                                    *loaded.model, *loaded.engine));
    EngineHostConfig host = {.max_requests = static_cast<size_t>(options.max_requests),
                             .max_queue_requests = static_cast<size_t>(options.max_queue_requests),
                             .max_queue_tokens = options.max_queue_tokens,
                             .ledger = loaded.ledger.get(),
                             .tier = loaded.tier.get(),
                             .host_tier = loaded.host_tier.tier.get(),
                             .restores = options.restores,
                             .tokenizer = loaded.text.tokenizer.get(),
                             .drafter = loaded.drafter.drafter.get(),
                             .grammars = loaded.grammars};
    host.replacement = [&loaded, name = options.executor, chosen] { return replace_executor(name, chosen, loaded); };
    loaded.host = std::make_unique<EngineHost>(*loaded.engine, std::move(executor), std::move(host));
    return {};
}

// Errors: the record could not be written, now or before.
Status end_record(LoadedModel& loaded) {
    if (!loaded.recording) return {};
    if (!loaded.recording->is_finished()) return loaded.recording->finish();
    if (!loaded.recording->failed()) return {};
    return tl::unexpected(Error{"--record: the record could not be written", ErrorKind::kMachine});
}

Service service_of(const ServeOptions& options, LoadedModel& loaded) {
    const std::string numerics = loaded.executor.executor->numerics_id();
    std::function<RecordView()> record;
    if (loaded.recording)
        record = [recording = loaded.recording.get()] {
            return RecordView{recording->failed(), recording->file_bytes()};
        };
    const std::string& source = loaded.text.chat_template;
    return {.tokenizer = loaded.text.tokenizer.get(),
            .chat = loaded.text.chat ? &*loaded.text.chat : nullptr,
            .chat_template = source,
            .tool_format = options.tool_format.value_or(text::tool_format_in(source)),
            .reasoning_format = options.reasoning_format.value_or(text::reasoning_format_in(source)),
            .host = loaded.host.get(),
            .model = served_names(options),
            .fingerprint = fmt::format("{}-{}", numerics, loaded.digest.hex()),
            .max_model_len = loaded.config.max_model_len,
            .vocab_size = loaded.model->config.vocab_size,
            .stop_tokens = loaded.text.stop_tokens,
            .grammars = loaded.first_masks ? &*loaded.first_masks : nullptr,
            .now = seconds_now,
            .heads = options.has_head_transfer
                         ? std::optional(HeadIdentity{.model = loaded.digest.hex(),
                                                      .tensors = loaded.executor.executor->tensors(),
                                                      .spool = options.tier_is_read_only ? "" : options.tier})
                         : std::nullopt,
            .record = std::move(record)};
}

// Every client has a file number.
void allow_many_files() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

std::string ledger_line(const ConversationLedger& ledger) {
    if (ledger.where().empty()) return "conversations end with this process (--ledger none)";
    return fmt::format("{} conversations in the ledger {}", ledger.num_conversations(), ledger.where());
}

std::string forms_line(const Service& service) {
    return fmt::format("calls of tools are read as {}, reasoning as {} (--tool-parser, --reasoning-parser)",
                       text::name(service.tool_format), text::name(service.reasoning_format));
}

std::string tier_line(const ServeOptions& options, const HeadTierCounts& tier) {
    const char* then = options.tier_is_read_only ? "are not used" : "are deleted";
    const std::string damaged = tier.damaged == 0 ? "" : fmt::format("; {} damaged files {}", tier.damaged, then);
    return fmt::format("{} heads ({} bytes) in the tier {}{}{}", tier.num_files, tier.num_bytes, options.tier,
                       options.tier_is_read_only ? ", which is only read" : "", damaged);
}

// The thread that has the sockets. It ends with the object, which an error that is thrown leaves, too.
class SocketsThread {
public:
    explicit SocketsThread(HttpServer& server) : server_(server), thread_([this] { run(); }) {}
    ~SocketsThread() {
        end_loading();
        server_.stop();
        join();
    }
    SocketsThread(const SocketsThread&) = delete;
    SocketsThread& operator=(const SocketsThread&) = delete;

    void end_loading() { is_loading_ = false; }
    void join() {
        if (thread_.joinable()) thread_.join();
    }

private:
    void run() {
        server_.run(/*signals=*/true);
        if (is_loading_) std::_Exit(kExitOk);  // a signal came first: there is nothing to end in order
    }

    HttpServer& server_;
    std::atomic<bool> is_loading_ = true;
    std::thread thread_;
};

// It listens before the model is there: alive, and not ready.
Status serve(const ServeOptions& options) {
    if (!std::filesystem::is_directory(options.model) && !reference::is_gguf(options.model))
        return error("--model {}: neither a folder nor a GGUF file is there", options.model);
    Tenants tenants;
    if (!options.api_key_file.empty()) {
        ASSIGN_OR_RETURN(tenants, Tenants::read(options.api_key_file));
    }
    ASSIGN_OR_RETURN(std::string page, read_page(repository_path("server/page")));
    allow_many_files();
    LoadedModel loaded;
    ASSIGN_OR_RETURN(loaded.record_file, create_record_file(options.record));
    HttpServer server(
        {.address = options.host, .port = static_cast<uint16_t>(options.port), .cors_origins = options.cors_origins},
        std::move(tenants), std::move(page));
    ASSIGN_OR_RETURN(const uint16_t port, server.listen());
    SocketsThread sockets(server);
    const Status made = load(options, loaded);
    sockets.end_loading();
    if (made) {
        for (const std::string& line : room_lines(loaded.config.cache, loaded.model->config.max_position_embeddings))
            fmt::print(stderr, "{}\n", line);
        const Service service = service_of(options, loaded);
        fmt::print(stderr, "{}\n", forms_line(service));
        server.serve(service);
        const bool is_v6 = options.host.find(':') != std::string::npos;
        fmt::print("{} at http://{}{}{}:{}/v1\n", served_names(options).first(), is_v6 ? "[" : "", options.host,
                   is_v6 ? "]" : "", port);
        fmt::print("{}\n", ledger_line(*loaded.ledger));
        if (loaded.tier) fmt::print("{}\n", tier_line(options, loaded.tier->counts()));
        std::fflush(stdout);
    } else {
        server.stop();
    }
    sockets.join();
    loaded.host.reset();  // nothing is reported after this
    if (!made) return made;
    const Status recorded = end_record(loaded);
    const size_t num_unkept = loaded.ledger->close();
    if (num_unkept == 0) return recorded;
    return tl::unexpected(Error{fmt::format("the ledger {}: {} changes could not be written: {}",
                                            loaded.ledger->where(), num_unkept, loaded.ledger->problem()),
                                ErrorKind::kMachine});
}

int run_serve(const ServeOptions& options) {
    if (options.port > 65535) return report_error({"--port: 65535 at most"}, kExitBadUsage);
    if (const Status names = check_names(options); !names) return report_error(names.error(), kExitBadUsage);
    if (const Status origins = check_origins(options); !origins) return report_error(origins.error(), kExitBadUsage);
    if (const Status read = check_unread_flags(options); !read) return report_error(read.error(), kExitBadUsage);
    const Status packed = check_packed_file(options.packed_file, options.model, options.executor == "cpu",
                                            fmt::format("--executor {} is not what", options.executor));
    if (!packed) return report_error(packed.error(), kExitBadUsage);
    if (const auto windows = windows_of(options); !windows) return report_error(windows.error(), kExitBadUsage);
    warn_of_grammar_python(options.grammar_python);
    const Status served = serve(options);
    return served ? kExitOk : report_error(served.error());
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
    auto options = std::make_shared<ServeOptions>();
    CLI::App* verb = app.add_subcommand("serve", "answer OpenAI's clients over HTTP");
    verb->footer(kServeExitCodes);
    add_serve_flags(*verb, *options);
    verb->callback([options, &exit_code] { exit_code = run_serve(*options); });
}

}  // namespace verbatim::tools
