#include "tests/system/system_door.h"

#include <utility>

#include "tests/support/must.h"

namespace verbatim::tests {

void HostDoor::submit(int64_t number, const server::HostRequest& request, int64_t, Sink sink) {
    const auto ticket = host_.submit(request, std::move(sink));
    MUST(ticket.has_value(), "request {} finds no room", number);
    tickets_[number] = *ticket;
}

void HostDoor::leave(int64_t number) {
    if (const auto ticket = tickets_.find(number); ticket != tickets_.end()) host_.abort(ticket->second);
}

void HostDoor::ask(const server::ConversationCall& call, Done done) {
    MUST(host_.ask(call, std::move(done)), "a call finds no room");
}

}  // namespace verbatim::tests
