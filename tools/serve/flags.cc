#include "tools/serve/flags.h"

#include <CLI/CLI.hpp>

#include "kernels/executors/drafter_choice.h"
#include "tools/program/admission_option.h"
#include "tools/program/choice_option.h"
#include "tools/program/cli.h"
#include "tools/program/engine_options.h"
#include "tools/program/executor_option.h"
#include "tools/program/file_roles.h"
#include "tools/program/packed_option.h"

namespace verbatim::tools {

using namespace executors;

namespace {

template <typename Formats, typename Format>
Choices<std::optional<Format>> format_choices(const Formats& formats, Format) {
    Choices<std::optional<Format>> choices = {{"auto", std::nullopt}};
    for (const auto& [name, format] : formats) choices.emplace_back(name, format);
    return choices;
}

void add_form_options(CLI::App& verb, ServeOptions& options) {
    add_choice_option(verb, "--tool-parser", options.tool_format,
                      format_choices(text::kToolFormats, text::ToolFormat::kNone),
                      "how the model writes calls of tools; auto: as its chat template says");
    add_choice_option(verb, "--reasoning-parser", options.reasoning_format,
                      format_choices(text::kReasoningFormats, text::ReasoningFormat::kNone),
                      "how the model writes reasoning; auto: as its chat template says");
}

void add_model_options(CLI::App& verb, ServeOptions& options) {
    verb.add_option("--model", options.model, "a checkpoint's folder, or a GGUF file")->capture_default_str();
    verb.add_option(
            "--name", options.names,
            "what clients call the model, repeatable: the first one is in answers, `any` takes whatever a client "
            "says; without it the folder's name")
        ->expected(1)
        ->take_all();
    verb.add_option("--chat-template", options.chat_template,
                    "a Jinja file in the place of the folder's chat template");
    add_form_options(verb, options);
    verb.add_option("--grammar-python", options.grammar_python,
                    "a Python interpreter with the library llguidance, for structured output; without it the one in "
                    "build/python, else /usr/bin/python3");
}

void add_executor_options(CLI::App& verb, ServeOptions& options) {
    add_executor_option(verb, options.executor, "what computes");
    Choices<reference::Profile> profiles;
    for (const reference::Profile one : reference::kProfiles)
        if (takes_blocks(one)) profiles.emplace_back(reference::name(one), one);
    add_choice_option(verb, "--profile", options.profile, profiles,
                      "the arithmetic; exact.int8 is of quantised weights, with activations in int8, and exact.fp8 of "
                      "FP8 weights, with activations in FP8 as their recipe has them");
    add_threads_option(verb, options.threads, "of the executor");
    add_packed_option(verb, options.packed_file);
    add_seed_option(verb, options.seed);
}

void add_http_options(CLI::App& verb, ServeOptions& options) {
    verb.add_option("--host", options.host, "the address to listen on")->capture_default_str();
    add_count_option(verb, "--port", options.port, 0, "0: any that is free; it is printed");
    verb.add_option("--cors-origin", options.cors_origins,
                    "an origin whose pages may ask from a browser (https://host:port), repeatable; * for all")
        ->expected(1)
        ->take_all();
    verb.add_option("--api-key-file", options.api_key_file,
                    "lines `TENANT KEY`: who may ask; without it anybody who reaches the port");
}

void add_queue_options(CLI::App& verb, ServeOptions& options) {
    add_count_option(verb, "--max-requests", options.max_requests, 1, "requests that run at a time");
    add_count_option(verb, "--max-queue-requests", options.max_queue_requests, 0,
                     "requests that wait beside them; more are refused with 429");
    add_count_option(verb, "--max-queue-tokens", options.max_queue_tokens, 1,
                     "tokens of the prompts that wait; where none waits, one may be longer");
}

void add_conversation_options(CLI::App& verb, ServeOptions& options) {
    verb.add_option(
        "--ledger", options.ledger,
        "where conversations are kept: a file, sqlite:///FILE, postgresql://HOST/DATABASE, or none; without "
        "it NAME-TOKENIZER.ledger in $XDG_STATE_HOME/verbatim or ~/.local/state/verbatim");
    add_bytes_option(verb, "--ledger-memory", options.ledger_bytes,
                     "for loaded conversations of the ledger; others are read when a request names them");
    auto* tier =
        verb.add_option("--tier", options.tier,
                        "a folder for heads that memory lets go of, and that outlive the process; without it none");
    add_bytes_option(verb, "--tier-bytes", options.tier_bytes, "of the tier's files; the least recently used go first")
        ->needs(tier);
    verb.add_flag("--tier-read-only", options.tier_is_read_only,
                  "heads of the tier are found and nothing is written: another server writes to the folder")
        ->needs(tier);
    add_bytes_option(verb, "--host-bytes", options.host_bytes,
                     "of host memory for heads that a device's memory lets go of, before the tier");
    const Choices<RestorePolicy> restores = {
        {"auto", RestorePolicy::kAuto}, {"always", RestorePolicy::kAlways}, {"never", RestorePolicy::kNever}};
    add_choice_option(verb, "--restore", options.restores, restores,
                      "read a head of the tier if that is expected to be quicker than computing, always or never");
    verb.add_flag("--head-transfer", options.has_head_transfer,
                  "give out and take in heads over HTTP (/v1/conversations/ID/head): for clients that are trusted");
}

void add_cache_options(CLI::App& verb, ServeOptions& options) {
    add_cache_bytes_options(verb, options.cache_bytes);
    add_step_tokens_option(verb, options.step_tokens);
    add_block_size_option(verb, options.block_size);
    const Choices<LookupMode> lookups = {{"prefix", LookupMode::kPrefix}, {"conversation", LookupMode::kConversation}};
    add_choice_option(verb, "--lookup", options.lookup, lookups,
                      "find states by the conversation's name, or also by the tokens under the salt");
    add_admission_options(verb, options.admission, options.max_wait_steps);
}

void add_window_options(CLI::App& verb, ServeOptions& options) {
    const Choices<std::string> drafters = {{"none", "none"}, {"ngram", "ngram"}, {"mtp", "mtp"}};
    add_choice_option(
        verb, "--draft", options.draft, drafters,
        "what guesses tokens that a window then verifies: n-grams of the request's own tokens, or the model's "
        "own layer for it (Qwen3.5, Qwen3-Next, Nemotron-3), whose KV takes a quarter of --cache-bytes");
    verb.add_option("--window", options.window,
                    "with --draft: positions that draw in one step: the last known token's and drafts'; auto follows "
                    "what was accepted so far, and the time of steps with drafts and without")
        ->type_name("2..128|auto")
        ->default_str(std::to_string(WindowChoice().max_window));
}

}  // namespace

void add_serve_flags(CLI::App& verb, ServeOptions& options) {
    add_group(verb, "Model", [&] { add_model_options(verb, options); });
    add_group(verb, "Address and clients", [&] { add_http_options(verb, options); });
    add_group(verb, "Executor", [&] { add_executor_options(verb, options); });
    add_group(verb, "Requests", [&] { add_queue_options(verb, options); });
    add_group(verb, "Conversations and heads that outlive memory", [&] { add_conversation_options(verb, options); });
    add_group(verb, "Cache and scheduler", [&] { add_cache_options(verb, options); });
    add_group(verb, "Drafts and windows", [&] { add_window_options(verb, options); });
    add_group(verb, "Record", [&] { add_record_options(verb, options.record); });
}

}  // namespace verbatim::tools
