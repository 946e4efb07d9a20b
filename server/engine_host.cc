#include "server/engine_host.h"

namespace verbatim::server {
namespace {

using Kind = HostUpdate::Kind;

ChatRequest chat_request(const HostRequest& request, Ticket ticket, TokenStore& store) {
    ChatRequest chat;
    chat.conversation.salt = request.salt;
    chat.conversation.conversation_id =
        request.conversation_id.value_or(fmt::format("request {}", static_cast<int64_t>(ticket)));
    chat.input = InputKind::kHistory;
    chat.messages = {{store.store(request.prompt)}};
    chat.max_tokens = request.max_tokens;
    chat.sampling = request.sampling;
    chat.seed = request.seed;
    chat.stop_tokens = request.stop_tokens;
    chat.use_cache = request.use_cache;
    return chat;
}

}  // namespace

EngineHost::EngineHost(Engine& engine, size_t max_requests)
    : engine_(engine), max_requests_(max_requests), thread_([this] { run(); }) {}

EngineHost::~EngineHost() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

std::optional<Ticket> EngineHost::submit(HostRequest request, Sink sink) {
    std::optional<Ticket> ticket;
    {
        const std::lock_guard lock(mutex_);
        if (stopping_ || !failure_.empty() || num_requests_ >= max_requests_) return std::nullopt;
        ticket = Ticket{next_ticket_++};
        ++num_requests_;
        commands_.push_back({*ticket, std::move(request), std::move(sink)});
    }
    changed_.notify_all();
    return ticket;
}

void EngineHost::abort(Ticket ticket) {
    {
        const std::lock_guard lock(mutex_);
        commands_.push_back({ticket, std::nullopt, nullptr});
        ++num_aborts_;
    }
    changed_.notify_all();
}

size_t EngineHost::num_requests() const {
    const std::lock_guard lock(mutex_);
    return num_requests_;
}

int64_t EngineHost::num_aborts() const {
    const std::lock_guard lock(mutex_);
    return num_aborts_;
}

std::string EngineHost::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

void EngineHost::run() {
    while (true) {
        std::vector<Command> commands;
        bool stopping = false;
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return !commands_.empty() || stopping_ || !engine_.idle(); });
            commands.swap(commands_);
            stopping = stopping_;
        }
        for (Command& command : commands) carry_out(std::move(command));
        if (stopping) {
            const auto requests = requests_;
            for (const auto& [ticket, request] : requests) engine_.abort(request);
            deliver();
            return;
        }
        const Result<bool> stepped = engine_.step();
        deliver();
        if (!stepped) fail(stepped.error().message);
    }
}

void EngineHost::carry_out(Command command) {
    if (command.request) return submit_now(std::move(command));
    const auto found = requests_.find(command.ticket);
    if (found == requests_.end()) return;
    engine_.abort(found->second);
    deliver();
}

void EngineHost::submit_now(Command command) {
    const HostRequest& request = *command.request;
    if (const std::string why = failure(); !why.empty()) {
        command.sink({.kind = Kind::kFailed, .failure = why});
        return end_one();
    }
    ChatRequest chat = chat_request(request, command.ticket, engine_.token_store());
    const ConversationKey key = chat.conversation;
    const auto accepted = engine_.submit(std::move(chat));
    if (!accepted) {
        command.sink({.kind = Kind::kRefused, .refusal = accepted.error()});
        return end_one();
    }
    command.sink({.kind = Kind::kAccepted});
    requests_[command.ticket] = accepted->request;
    const bool named = request.conversation_id.has_value();
    live_[accepted->request] = {command.ticket, std::move(command.sink), named ? std::nullopt : std::optional(key)};
}

// What the engine tells goes to whom it belongs to, in order.
void EngineHost::deliver() {
    for (const EngineEvent& event : engine_.take_events()) {
        const auto found = live_.find(event.request);
        if (found == live_.end()) continue;
        if (event.kind == EngineEvent::Kind::kToken)
            found->second.sink({.kind = Kind::kToken, .token = event.token});
        else
            finish(event);
    }
}

void EngineHost::finish(const EngineEvent& event) {
    const Live live = std::move(live_.at(event.request));
    live_.erase(event.request);
    requests_.erase(live.ticket);
    if (live.forget) (void)engine_.remove(*live.forget);  // refused where nothing was committed
    live.sink({.kind = Kind::kFinished, .end = event});
    end_one();
}

// Every turn has ended; nothing more is taken in, for what the executor holds is not known.
void EngineHost::fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    failure_ = why;
}

void EngineHost::end_one() {
    const std::lock_guard lock(mutex_);
    --num_requests_;
}

}  // namespace verbatim::server
